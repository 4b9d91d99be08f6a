"""Makes text from outside harmless to show: names of phases, kernels, branches and notes may hold anything."""

import hashlib
import re
import unicodedata
from urllib.parse import urlsplit

NAME_LIMIT = 80
PROSE_LIMIT = 600

_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_KEEP = {"\u200d", "\ufe0e", "\ufe0f"}  # joiner and variation selectors: parts of emoji
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # control, format (right-to-left marks), lone surrogates, …


def _visible(character: str) -> str:
    if character in "\t\n\r\v\f":
        return " "
    if character in _KEEP or unicodedata.category(character) not in _INVISIBLE:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def clean(text: str, *, limit: int = NAME_LIMIT) -> str:
    """One visible line of at most ``limit`` characters.

    Control and format characters (escape sequences, right-to-left marks, lone surrogates) become visible escapes,
    white space one blank. What is too long keeps its start and end around ``…`` and gets a short hash of the whole,
    so that different names stay different. Empty text becomes ``(no name)``.
    """
    shown = " ".join("".join(map(_visible, text[: 4 * limit + 1000])).split())
    if len(text) > 4 * limit + 1000 or len(shown) > limit:
        mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:6]
        tail = " ".join("".join(map(_visible, text[-limit:])).split())
        keep_end = limit // 4
        keep_start = limit - keep_end - len(mark) - 3
        shown = f"{shown[:keep_start]}…{tail[-keep_end:]} #{mark}"
    return shown or "(no name)"


def no_command(line: str) -> str:
    """GitHub's runner obeys ``::command::`` at the start of a log line, blanks aside, and ``##[command]`` anywhere:
    names must not speak to it."""
    start = len(line) - len(line.lstrip())
    if line.startswith("::", start):
        line = f"{line[:start]}: :{line[start + 2 :]}"
    return line.replace("##[", "# #[")


def plain_lines(text: str) -> str:
    """Lines for a log or a terminal that may quote a program: colours are dropped, other control characters become
    visible, and no line is a command of the CI runner."""
    lines = _COLOUR.sub("", text).split("\n")
    return "\n".join(no_command("".join(map(_visible, line))) for line in lines)


def cut_utf8(text: str, limit_bytes: int) -> str:
    """The longest prefix of ``text`` whose UTF-8 form has at most ``limit_bytes`` bytes; no character is split."""
    encoded = text.encode("utf-8")
    if len(encoded) <= limit_bytes:
        return text
    return encoded[: max(limit_bytes, 0)].decode("utf-8", "ignore")


def safe_url(url: str) -> str | None:
    """``url`` when it may stand in a link: http, https or a relative path of visible ASCII. Else None: show it as
    text."""
    if not url or any(not "!" <= character <= "~" for character in url) or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme in ("http", "https") and parts.netloc:
        return url
    return url if not parts.scheme and not parts.netloc and not url.startswith("//") else None
