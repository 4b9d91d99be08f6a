"""The one file that crosses from the measuring machine to the publishing one. Reading treats it as hostile input."""

from perfci.bundle.content import Bundle, BundleError, BundleFile, BundleIdentity, BundleLimits, Failure
from perfci.bundle.identity import ExpectedIdentity, merge_bundles, verify_identity
from perfci.bundle.reading import parse_bundle, read_bundle
from perfci.bundle.writing import WrittenBundle, write_bundle

__all__ = [
    "Bundle",
    "BundleError",
    "BundleFile",
    "BundleIdentity",
    "BundleLimits",
    "ExpectedIdentity",
    "Failure",
    "WrittenBundle",
    "merge_bundles",
    "parse_bundle",
    "read_bundle",
    "verify_identity",
    "write_bundle",
]
