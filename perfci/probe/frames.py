"""Which line of the user's code is being executed."""

from __future__ import annotations

import os
import sys
from types import FrameType

Place = tuple[str, int, str]
"""File relative to the checkout, line, function."""

_INSTALLED = ("site-packages", "dist-packages")


class UserCode:
    """Tells the user's frames from those of libraries: source files inside the checkout ``root``, without packages that
    are installed there (a virtual environment) and without perfci."""

    def __init__(self, root: str) -> None:
        self._root = os.path.join(os.path.realpath(root), "")  # noqa: PTH118  (pathlib is slow to import)
        self._start = os.getcwd()  # noqa: PTH109  (relative names of code were made relative to it)
        self._foreign = os.path.join(os.path.realpath(sys.prefix), "lib", "")  # noqa: PTH118
        self._known: dict[str, str | None] = {}

    def place(self, frame: FrameType | None) -> Place | None:
        """The innermost place of the user's code on the stack that ends in ``frame``, or None when there is none."""
        while frame is not None:
            if not str(frame.f_globals.get("__name__", "")).startswith("perfci."):
                path = self._relative(frame.f_code.co_filename)
                if path is not None:
                    code = frame.f_code
                    name = getattr(code, "co_qualname", code.co_name)  # since Python 3.11
                    return path, frame.f_lineno or code.co_firstlineno, name
            frame = frame.f_back
        return None

    def _relative(self, filename: str) -> str | None:
        if filename not in self._known:
            self._known[filename] = self._look_up(filename)
        return self._known[filename]

    def _look_up(self, filename: str) -> str | None:
        try:
            path = os.path.realpath(os.path.join(self._start, filename))  # noqa: PTH118
            is_file = os.path.isfile(path)  # noqa: PTH113
        except (OSError, ValueError):  # code made by `compile` may bear any name
            return None
        if not is_file or not path.startswith(self._root) or path.startswith(self._foreign):
            return None
        relative = path[len(self._root) :].replace(os.sep, "/")
        return None if any(f"/{folder}/" in f"/{relative}" for folder in _INSTALLED) else relative
