"""Escapes text for GitHub markdown. Input is one clean line (names.clean)."""

import re

_GUARD = "\u2060"
"""Word joiner: invisible, breaks the patterns by which GitHub finds mentions, references and bare links."""
_SPECIAL = re.compile(r"([\\`*_\[\]|~$])")
_LEADING = re.compile(r"^(?:[#+=-]|\d+(?=[.)]))")
"""What opens a heading, list, rule or underlined heading at the start of a line."""
_SPEAKING = re.compile(r"@|#(?=\d)|:(?=//)|(?i:(?<!\w)gh(?=-\d))|(?i:(?<!\w)www(?=\.))|(?i:mailto|xmpp)(?=:)")


def code(text: str, *, cell: bool = False) -> str:
    """A code span: in it GitHub finds no mention, link, reference, emoji or HTML. ``cell`` also keeps ``|`` from ending
    a table cell, which it does even inside code."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    body = f"{fence}{pad}{text}{pad}{fence}"
    return body.replace("|", "\\|") if cell else body


def prose(text: str) -> str:
    """Running text in which nothing is markup and nobody is called."""
    guarded = _SPEAKING.sub(lambda found: found.group() + _GUARD, text)
    escaped = _LEADING.sub(_escape_last, _SPECIAL.sub(r"\\\1", guarded))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _escape_last(found: re.Match[str]) -> str:
    """Break the opener: a mark is escaped, a list number is kept apart from its dot."""
    text = found.group()
    return text + _GUARD if text.isdigit() else "\\" + text
