"""Is this bundle what the event says was measured? The event decides; the bundle is only asked whether it agrees."""

from collections.abc import Sequence
from dataclasses import dataclass

from perfci.bundle.content import Bundle, BundleError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedIdentity:
    """From the event of GitHub. ``base_sha`` is None when the publisher does not know the merge base."""

    repository: str
    head_sha: str
    run_id: int
    run_attempt: int
    base_sha: str | None = None


def verify_identity(bundle: Bundle, expected: ExpectedIdentity) -> None:
    """BundleError unless the bundle is of this repository, commit and measuring run, and every run in it is of the head
    or the base, clean.

    An earlier attempt of the same workflow run is accepted: re-running failed jobs keeps the artifacts of the others.
    """
    claim = bundle.identity
    for name, seen, wanted in (
        ("repository", claim.repository.lower(), expected.repository.lower()),
        ("head commit", claim.head_sha, expected.head_sha),
        ("workflow run", str(claim.run_id), str(expected.run_id)),
    ):
        if seen != wanted:
            raise _mismatch(name, seen, wanted)
    if claim.run_attempt > expected.run_attempt:
        raise _mismatch("attempt", str(claim.run_attempt), f"at most {expected.run_attempt}")
    if expected.base_sha is not None and claim.base_sha not in (None, expected.base_sha):
        raise _mismatch("base commit", str(claim.base_sha), expected.base_sha)
    allowed = {claim.head_sha, claim.base_sha} - {None}
    for run in bundle.runs:
        if run.revision.commit not in allowed or run.revision.dirty:
            raise _mismatch("commit of a run", run.revision.identity[:120], "the head or the base, without changes")


def merge_bundles(bundles: Sequence[Bundle]) -> Bundle:
    """One bundle of the bundles of a matrix. Their claims must agree, save for the attempt (the highest is kept)."""
    if not bundles:
        raise BundleError("no bundle was given", todo="look whether the measuring job uploaded one")
    first = bundles[0].identity
    for bundle in bundles[1:]:
        other = bundle.identity
        if (other.repository, other.head_sha, other.base_sha, other.run_id) != (
            first.repository,
            first.head_sha,
            first.base_sha,
            first.run_id,
        ):
            raise _mismatch("identity of one bundle", other.head_sha, f"{first.head_sha}, as in the first bundle")
    newest = max((bundle.identity for bundle in bundles), key=lambda identity: identity.run_attempt)
    try:
        return Bundle(
            identity=newest,
            runs=tuple(run for bundle in bundles for run in bundle.runs),
            failures=tuple(failure for bundle in bundles for failure in bundle.failures),
            files=tuple(file for bundle in bundles for file in bundle.files),
        )
    except ValueError as error:
        raise BundleError(f"the bundles do not fit together: {error}") from None


def _mismatch(name: str, seen: str, wanted: str) -> BundleError:
    return BundleError(
        f"the bundle is not what GitHub says was measured: {name} is {seen}",
        wanted=wanted,
        todo="do not trust this bundle; look at the measuring job that made it",
    )
