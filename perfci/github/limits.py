"""GitHub's limits, and cutting text so that it fits by construction.

Sources: docs.github.com "Checks" REST reference (50 annotations a request), "Commit statuses" (description), the
"Workflow commands" page (job summary), and the message of the API for bodies ("is too long (maximum is 65536
characters)"). The contract server of the tests holds the same numbers on its own.
"""

COMMENT_CHARS = 65_536
CHECK_SUMMARY_CHARS = 65_535
CHECK_TITLE_CHARS = 255
ANNOTATIONS_PER_REQUEST = 50
ANNOTATION_MESSAGE_BYTES = 64 * 1024
ANNOTATION_TITLE_CHARS = 255
STATUS_DESCRIPTION_CHARS = 140
JOB_SUMMARY_BYTES = 1024 * 1024
"""Over it GitHub drops the whole summary of the step, not only the end."""


def cut_line(text: str, limit_chars: int) -> str:
    """The text, or its start with an ellipsis, in at most ``limit_chars`` characters."""
    return text if len(text) <= limit_chars else text[: limit_chars - 1].rstrip() + "…"


def utf16_length(text: str) -> int:
    """Length as GitHub's web tier may count it: characters outside the basic plane count twice. Used as the careful
    measure of bodies, so that a body of emoji is not refused."""
    return len(text.encode("utf-16-le", "replace")) // 2
