"""Bytes of the document from a file on disk: a gzip file, or the zip that GitHub makes of an artifact. Nothing is ever
unpacked to disk, so paths and links inside an archive have nowhere to lead."""

import io
import os
import stat
import struct
import zipfile
import zlib
from pathlib import Path

from perfci.bundle.content import FILE_NAME, BundleError, BundleLimits

_GZIP_MAGIC = b"\x1f\x8b"
_ZIP_MAGIC = b"PK\x03\x04"
_EMPTY_ZIP_MAGIC = b"PK\x05\x06"
_END_RECORD = struct.Struct("<4s4H2LH")
_END_RECORD_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64_BYTES = 20
_MAX_DIRECTORY_ENTRY_BYTES = 512


def read_file(path: Path, *, limit_bytes: int) -> bytes:
    """All bytes of a regular file. Symbolic links, folders, pipes and devices are refused, sizes checked first."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BundleError(f"cannot open the bundle {path}: {error.strerror}", wanted="a regular file") from None
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode):
        os.close(descriptor)
        raise BundleError(f"the bundle {path} is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        if state.st_size > limit_bytes:
            raise _too_large(f"the bundle {path} has {state.st_size} bytes", limit_bytes)
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise _too_large(f"the bundle {path} grows while it is read", limit_bytes)
    return data


def documents_in(data: bytes, limits: BundleLimits) -> tuple[bytes, ...]:
    """The JSON documents inside: one for a gzip file; for a zip one per member, each of which is a gzip file or plain
    JSON. All members together stay within ``limits.json_bytes``."""
    if data.startswith(_GZIP_MAGIC):
        return (_gunzip(data, limits.json_bytes),)
    if data.startswith((_ZIP_MAGIC, _EMPTY_ZIP_MAGIC)):
        left = limits.json_bytes
        documents = []
        for member in _zip_members(data, limits):
            document = _gunzip(member, left) if member.startswith(_GZIP_MAGIC) else member
            left -= len(document)
            if left < 0:
                raise _too_large("the artifact", limits.json_bytes)
            documents.append(document)
        return tuple(documents)
    raise BundleError("the file is neither a bundle nor a zip of bundles", wanted="a file made by `perfci bundle`")


def _gunzip(data: bytes, limit_bytes: int) -> bytes:
    """Decompress one gzip member with a bound on the output: a bomb costs at most ``limit_bytes``."""
    stream = zlib.decompressobj(wbits=31)
    try:
        document = stream.decompress(data, limit_bytes + 1)
    except zlib.error as error:
        raise BundleError(f"the bundle is damaged ({error})") from None
    if len(document) > limit_bytes:
        raise _too_large("the bundle, decompressed,", limit_bytes)
    if not stream.eof:
        raise BundleError("the bundle is cut off", todo="look whether the upload of the measuring job finished")
    if stream.unused_data:
        raise BundleError("the bundle has bytes after its end")
    return document


def _zip_members(data: bytes, limits: BundleLimits) -> list[bytes]:
    _check_directory(data, limits)
    members: list[bytes] = []
    left = limits.json_bytes
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for info in archive.infolist():
                _check_member(info)
                with archive.open(info) as member:
                    content = member.read(left + 1)
                left -= len(content)
                if left < 0:
                    raise _too_large("the artifact, unpacked,", limits.json_bytes)
                members.append(content)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError, struct.error) as error:
        raise BundleError(f"the artifact is damaged ({type(error).__name__})") from None
    return members


def _check_directory(data: bytes, limits: BundleLimits) -> None:
    """Bound the central directory *before* zipfile reads it: it makes an object of every entry it finds there.

    The end record must be the last 22 bytes (no comment), so that we and zipfile look at the same one.
    """
    at = len(data) - _END_RECORD.size
    if at < 0:
        raise BundleError("the artifact is cut off")
    signature, _, _, _, entries, size, _, comment = _END_RECORD.unpack_from(data, at)
    if signature != b"PK\x05\x06" or comment:
        raise BundleError("the artifact is damaged or has a comment", wanted="a zip as GitHub makes it")
    at -= _LOCATOR_64_BYTES + _END_RECORD_64.size
    if at >= 0 and data[at : at + 4] == b"PK\x06\x06":
        _, _, _, _, _, _, _, entries, size, _ = _END_RECORD_64.unpack_from(data, at)
    if entries > limits.zip_entries or size > limits.zip_entries * _MAX_DIRECTORY_ENTRY_BYTES:
        raise BundleError(f"the artifact has too many entries ({entries})", wanted=f"at most {limits.zip_entries}")


def _check_member(info: zipfile.ZipInfo) -> None:
    kind = stat.S_IFMT(info.external_attr >> 16)
    named = FILE_NAME.fullmatch(info.filename) and info.filename == info.orig_filename
    if not named or kind not in (0, stat.S_IFREG) or info.flag_bits & 0x1:
        raise BundleError(
            f"the artifact holds {info.filename[:120]!r}", wanted="only plain files without folders, links or passwords"
        )


def _too_large(what: str, limit_bytes: int) -> BundleError:
    return BundleError(f"{what} is too large", wanted=f"at most {limit_bytes:,} bytes")
