"""What a bundle holds, and how large it may be."""

import re
from dataclasses import dataclass

from perfci.errors import MeasurementError
from perfci.model.run import Run

FORMAT = "perfci-bundle"
SCHEMA_VERSION = 1

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}/[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
MIB = 1024 * 1024


class BundleError(MeasurementError):
    """A bundle that cannot be read, is damaged, too large, impossible, or not what the event says. Never green."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleLimits:
    """Upper bounds of everything a bundle can make the reader do. The defaults hold about ten times what a matrix job
    of one workload with twelve launches a side needs."""

    file_bytes: int = 32 * MIB
    """The file as it lies on disk."""
    json_bytes: int = 64 * MIB
    """The document after decompression; checked while decompressing."""
    json_values: int = 2_000_000
    """Numbers, strings and containers: bounds the memory of the parsed document."""
    depth: int = 16
    string_chars: int = 16_384
    runs: int = 1_000
    failures: int = 1_000
    files: int = 64
    zip_entries: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleIdentity:
    """What the measuring job says it measured. A claim: the publisher compares it with the event of GitHub, and uses
    the event. ``pull_request`` is a hint that may only choose among pull requests GitHub already names."""

    repository: str
    head_sha: str
    base_sha: str | None
    run_id: int
    run_attempt: int
    pull_request: int | None = None

    def __post_init__(self) -> None:
        if not REPOSITORY.fullmatch(self.repository):
            raise ValueError(f"{self.repository!r} is not owner/name")
        for sha in (self.head_sha, self.base_sha):
            if sha is not None and not COMMIT.fullmatch(sha):
                raise ValueError(f"{sha!r} is not a full commit id")
        if self.run_id < 0 or self.run_attempt < 1 or (self.pull_request is not None and self.pull_request < 1):
            raise ValueError("run and pull request numbers must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A launch (or a whole workload) that gave no run: reported, so that the missing is not taken for the equal."""

    workload: str
    commit: str | None
    text: str

    def __post_init__(self) -> None:
        if not self.workload or not self.text:
            raise ValueError("a failure needs a workload and a text")
        if self.commit is not None and not COMMIT.fullmatch(self.commit):
            raise ValueError(f"{self.commit!r} is not a full commit id")


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleFile:
    """A small file for people, for example a timeline. Its name is one flat, plain name: there is no path to escape."""

    name: str
    data: bytes

    def __post_init__(self) -> None:
        if not FILE_NAME.fullmatch(self.name) or ".." in self.name:
            raise ValueError(f"{self.name!r} is not a plain file name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The content of a bundle, valid in itself. Whether it is what it says it is decides ``verify_identity``."""

    identity: BundleIdentity
    runs: tuple[Run, ...]
    failures: tuple[Failure, ...] = ()
    files: tuple[BundleFile, ...] = ()

    def __post_init__(self) -> None:
        names = [file.name for file in self.files]
        if len(names) != len(set(names)):
            raise ValueError("file names of a bundle must be unique")
