"""Waits until the program imports torch, which it may never do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Finder(MetaPathFinder):
    """Finds torch where the other finders do, with a loader that tells us when it is loaded. Gone after that."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                break
        else:  # not installed: the program may try again after it changed its path
            sys.meta_path.insert(0, self)
            return None
        if spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """The real loader of torch, and our hooks after it."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._real.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._real  # nobody shall see that we were here
        self._real.exec_module(module)
        from perfci.autophase.hooks import wait_for_training  # noqa: PLC0415  (only programs with torch pay for it)

        wait_for_training()


def wait_for_torch() -> None:
    """Call `hooks.wait_for_training` as soon as torch has been imported by the program."""
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _Finder())
