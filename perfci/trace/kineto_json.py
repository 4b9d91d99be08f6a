"""Reads the Chrome trace JSON of torch.profiler (Kineto) event by event: memory does not grow with the file."""

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from perfci.errors import TraceError

_GZIP = b"\x1f\x8b"
_CHUNK_CHARACTERS = 1 << 20
_LARGEST_VALUE_CHARACTERS = 1 << 24
"""More text than this without the end of one event or one fact is damage (or an attack), not a trace."""
_WANTED = "a trace of torch.profiler as export_chrome_trace writes it (.json or .json.gz)"
_TODO = "record it again; the file is whole only after the profiled process has ended"

_BETWEEN = re.compile(r"[\s,]*")
_EVENT_END = re.compile(r"\}\s*(?:,\s*\{\s*\"(?:ph|name)\"|\])")
_NAME = re.compile(r'("name":\s*)"(.*?)"(\s*,\s*"pid":)', re.DOTALL)
_NO_NUMBER = re.compile(r"(?<=[:\[,\s])-?(?:inf|nan)(?=\s*[,\]}])")

_DECODER = json.JSONDecoder(strict=False, parse_float=str)
"""Numbers with a fraction stay text: a double does not hold every nanosecond."""


def looks_like_json(path: Path) -> bool:
    """True when the file (or what is packed in it) begins like a JSON document, or is empty and named like one. Never
    raises: what cannot be read looks like nothing."""
    try:
        with _opened(path) as file:
            head = file.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n")
    except (OSError, EOFError, zlib.error):
        return False
    return head.startswith((b"{", b"[")) or (not head and path.name.endswith((".json", ".json.gz")))


class KinetoFile:
    """One trace file. Iterate over ``events()`` once; afterwards ``facts`` holds everything else of the document."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str]
        self._buffer = ""
        self._at = 0
        self._ended = False
        self.facts: dict[str, Any] = {}

    def events(self) -> Iterator[dict[str, Any]]:
        """Every trace event in the order of the file; numbers with a fraction are text. TraceError when the file is no
        JSON, is another kind of document, or is cut or damaged."""
        try:
            with TextIOWrapper(_opened(self._path), encoding="utf-8-sig", errors="replace", newline="") as file:
                self._file = file
                yield from self._document()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise TraceError(f"{self._path} is a damaged gzip file: {error}", wanted=_WANTED, todo=_TODO) from error
        except OSError as error:
            raise TraceError(f"{self._path} cannot be read: {error.strerror}", wanted=_WANTED) from error

    def _document(self) -> Iterator[dict[str, Any]]:
        first = self._next_sign()
        if first == "":
            raise TraceError(f"{self._path} is empty", wanted=_WANTED, todo=_TODO)
        if first != "{":
            raise TraceError(f"{self._path} is JSON, but not a trace of torch.profiler", wanted=_WANTED)
        self._at += 1
        has_events = False
        while (sign := self._next_sign()) != "}":
            if sign != '"':
                raise self._damage()
            key = self._value()
            if self._next_sign() != ":":
                raise self._damage()
            self._at += 1
            if key == "traceEvents" and self._next_sign() == "[":
                self._at += 1
                has_events = True
                yield from self._event_list()
            else:
                self._next_sign()
                self.facts[key] = self._value()
        if not has_events:
            raise TraceError(f"{self._path} is JSON, but not a trace of torch.profiler", wanted=_WANTED)

    def _event_list(self) -> Iterator[dict[str, Any]]:
        while (sign := self._next_sign()) != "]":
            if sign != "{":
                raise self._damage()
            yield self._value()
        self._at += 1

    def _next_sign(self) -> str:
        """The next character that is neither space nor comma; empty at the end of the file."""
        while True:
            match = _BETWEEN.match(self._buffer, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._read_more():
                return ""

    def _read_more(self) -> bool:
        """Slide the window forward over the file; False at its end."""
        kept = self._buffer[self._at :]
        if len(kept) > _LARGEST_VALUE_CHARACTERS:
            return False
        more = self._file.read(max(_CHUNK_CHARACTERS, len(kept)))  # as much again: reading stays linear in all
        self._buffer, self._at = kept + more, 0
        self._ended = more == ""
        return not self._ended

    def _value(self) -> Any:
        while True:
            try:
                found, end = _DECODER.raw_decode(self._buffer, self._at)
            except (ValueError, RecursionError):  # ValueError: also an integer of thousands of digits
                mended = self._mended_event()
                if mended is not None:
                    return mended
                if not self._read_more():
                    raise self._damage() from None
                continue
            if end < len(self._buffer) or not self._read_more():  # a number at the edge may go on behind it
                self._at = end
                return found

    def _mended_event(self) -> Any:
        """The event under the window when it is all there but no JSON: Kineto writes names without escaping quotes, and
        ``inf`` and ``nan`` for numbers. None when it cannot be had."""
        end = _EVENT_END.search(self._buffer, self._at)
        if end is None or self._buffer[self._at] != "{":
            return None
        text = _NO_NUMBER.sub("null", self._buffer[self._at : end.start() + 1])
        text = _NAME.sub(lambda part: part[1] + json.dumps(part[2]) + part[3], text)
        try:
            found = _DECODER.decode(text)
        except (ValueError, RecursionError):
            return None
        self._at = end.start() + 1
        return found

    def _damage(self) -> TraceError:
        rest = self._buffer[self._at :]
        if self._ended and _EVENT_END.search(rest) is None:
            return TraceError(f"{self._path} is cut: it ends in the middle of the trace", wanted=_WANTED, todo=_TODO)
        return TraceError(f"{self._path} is damaged: no JSON near {rest[:40]!r}", wanted=_WANTED, todo=_TODO)


def _opened(path: Path) -> BinaryIO:
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
    return cast(BinaryIO, gzip.open(path)) if packed else path.open("rb")
