"""Waits until the program imports torch, which it may never do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Finder(MetaPathFinder):
    """Finds torch where the other finders do, with a loader that tells us when it is loaded. Gone after that, not
    before: many libraries first only ask whether torch is there (``importlib.util.find_spec``)."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch":
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None  # not installed: the program may try again after it changed its path


class _Loader(Loader):
    """The real loader of torch, and our hooks after it."""

    def __init__(self, real: Any, finder: _Finder) -> None:
        self._real = real
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        """What the real loader has beyond the two methods, for who only asked for the spec."""
        return getattr(self._real, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._real.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._real  # nobody shall see that we were here
        self._real.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        from perfci.autophase.hooks import wait_for_training  # noqa: PLC0415  (only programs with torch pay for it)

        wait_for_training()


def wait_for_torch() -> None:
    """Call `hooks.wait_for_training` as soon as torch has been imported by the program."""
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _Finder())
