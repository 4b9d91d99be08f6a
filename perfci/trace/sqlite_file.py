"""Is this file a whole SQLite database? Says what it is instead."""

import gzip
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perfci.errors import TraceError

_MAGIC = b"SQLite format 3\0"
_GZIP = b"\x1f\x8b"
_HEADER_BYTES = 100
_WANTED = "an SQLite export of nsys (.sqlite or .sqlite.gz)"
_TODO_EXPORT = "export the report: nsys export --type=sqlite REPORT.nsys-rep"


@contextmanager
def checked_sqlite(path: Path) -> Iterator[Path]:
    """A path to the uncompressed database, for as long as the context lasts. TraceError for all that is not one:
    missing, a directory, empty, not SQLite, cut in the middle."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER_BYTES)
    except FileNotFoundError as error:
        raise TraceError(f"{path} does not exist", wanted=_WANTED) from error
    except IsADirectoryError as error:
        raise TraceError(f"{path} is a directory", wanted=_WANTED, todo="name the file inside it") from error
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}", wanted=_WANTED) from error
    if head.startswith(_GZIP):
        with tempfile.TemporaryDirectory(prefix="perfci-trace-") as folder:
            unpacked = Path(folder) / "trace.sqlite"
            _unpack(path, unpacked)
            with unpacked.open("rb") as file:
                _check(path, file.read(_HEADER_BYTES), unpacked.stat().st_size)
            yield unpacked
        return
    _check(path, head, path.stat().st_size)
    yield path


def _unpack(path: Path, target: Path) -> None:
    try:
        with gzip.open(path) as packed, target.open("wb") as file:
            shutil.copyfileobj(packed, file, 1 << 20)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(
            f"{path} is a damaged gzip file: {error}", wanted=_WANTED, todo="copy or download it again"
        ) from error
    except OSError as error:
        raise TraceError(f"{path} cannot be unpacked: {error.strerror}", todo="free space in TMPDIR") from error


def _check(path: Path, head: bytes, size: int) -> None:
    if size == 0:
        raise TraceError(
            f"{path} is empty", wanted=_WANTED, todo="look into the log of the nsys run: the export did not finish"
        )
    if not head.startswith(_MAGIC):
        if path.suffix in (".nsys-rep", ".qdrep", ".qdstrm"):
            raise TraceError(f"{path} is a report, not an export of one", wanted=_WANTED, todo=_TODO_EXPORT)
        raise TraceError(f"{path} is not an SQLite database", wanted=_WANTED, todo=_TODO_EXPORT)
    stated = stated_bytes(head)
    if stated is not None and size < stated:
        raise TraceError(
            f"{path} is cut: {size} of {stated} bytes are there",
            wanted="all of it",
            todo="copy it again",
        )


def stated_bytes(head: bytes) -> int | None:
    """Size that the header of a database states (https://www.sqlite.org/fileformat2.html, section 1.3), or None where
    it states none that is valid."""
    if len(head) < _HEADER_BYTES:
        return _HEADER_BYTES
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    count = int.from_bytes(head[28:32], "big")
    valid = head[24:28] == head[92:96]
    return page * count if valid and count else None
