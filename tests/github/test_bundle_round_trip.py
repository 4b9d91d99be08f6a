"""What is written is read back equal; claims are checked against the event."""

import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from bundle_cases import BASE, HEAD, NOW, identity, run, write, zipped

from perfci.bundle import (
    Bundle,
    BundleError,
    BundleFile,
    BundleLimits,
    ExpectedIdentity,
    Failure,
    merge_bundles,
    read_bundle,
    verify_identity,
    write_bundle,
)
from perfci.errors import ExitCode

EXPECTED = ExpectedIdentity(repository="octo/train", head_sha=HEAD, run_id=500, run_attempt=2, base_sha=BASE)


def test_runs_failures_and_files_come_back_equal(tmp_path):
    runs = (run(), run(revision_commit=BASE, position=1), run(workload="eval"))
    failures = (Failure(workload="resnet", commit=HEAD, text="the process ended with 1"),)
    files = (BundleFile(name="timeline.json.gz", data=bytes(range(256)) * 9),)
    written = write_bundle(runs, identity(), tmp_path / "b.json.gz", failures=failures, files=files)
    assert (written.run_count, written.left_out) == (3, ())
    found = read_bundle(written.path, now=NOW)
    assert found == Bundle(identity=identity(), runs=runs, failures=failures, files=files)
    verify_identity(found, EXPECTED)


def test_equal_input_gives_equal_bytes(tmp_path):
    one, two = write(tmp_path / "1.gz"), write(tmp_path / "2.gz")
    assert one.read_bytes() == two.read_bytes()


def test_paths_of_the_measuring_machine_are_left_behind(tmp_path):
    path = write(tmp_path / "b.gz", replace(run(), artifacts=("profiles/gpt.nsys-rep",)))
    assert read_bundle(path).runs[0].artifacts == ()
    assert b"nsys-rep" not in gzip.decompress(path.read_bytes())


def test_files_that_do_not_fit_are_left_out_and_named_while_runs_stay(tmp_path):
    files = [BundleFile(name="small.txt", data=b"x" * 10), BundleFile(name="large.bin", data=b"y" * 100_000)]
    limits = BundleLimits(json_bytes=60_000)
    written = write_bundle([run()], identity(), tmp_path / "b.gz", files=files, limits=limits)
    assert written.left_out == ("large.bin",)
    assert [f.name for f in read_bundle(written.path, limits=limits).files] == ["small.txt"]
    with pytest.raises(BundleError, match="runs make"):
        write_bundle([run()] * 9, identity(), tmp_path / "c.gz", limits=BundleLimits(json_bytes=2_000))
    assert not (tmp_path / "c.gz").exists()
    assert list(tmp_path.iterdir()) == [written.path], "nothing half-written stays"


def test_nothing_to_bundle_is_an_error(tmp_path):
    with pytest.raises(BundleError, match="no run"):
        write_bundle([], identity(), tmp_path / "b.gz")


@pytest.mark.parametrize("secret", ["ghs_" + "a" * 36, "-----BEGIN RSA PRIVATE KEY-----", "AKIA" + "A" * 16])
def test_what_looks_like_a_secret_is_not_bundled(tmp_path, secret):
    failure = Failure(workload="gpt", commit=None, text=f"clone failed with {secret}")
    for more in ({"failures": [failure]}, {"files": [BundleFile(name="log.txt", data=secret.encode())]}):
        with pytest.raises(BundleError, match="secret") as caught:
            write_bundle([run()], identity(), tmp_path / "b.gz", **more)
        assert secret not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"repository": "mallory/train"}, "repository"),
        ({"head_sha": "c" * 40}, "head commit"),
        ({"run_id": 501}, "workflow run"),
        ({"run_attempt": 3}, "attempt"),
        ({"base_sha": "c" * 40}, "base commit"),
    ],
)
def test_a_faked_identity_is_refused(tmp_path, more, what):
    bundle = read_bundle(write(tmp_path / "b.gz", claim=identity(**more)))
    with pytest.raises(BundleError, match=what) as caught:
        verify_identity(bundle, EXPECTED)
    assert caught.value.exit_code == ExitCode.MEASUREMENT


@pytest.mark.parametrize("commit", ["c" * 40, None])
def test_a_run_of_another_commit_is_refused(tmp_path, commit):
    bundle = read_bundle(write(tmp_path / "b.gz", run(), run(revision_commit=commit)))
    with pytest.raises(BundleError, match="commit of a run"):
        verify_identity(bundle, EXPECTED)


def test_a_dirty_run_is_refused(tmp_path):
    dirty = replace(run(), revision=replace(run().revision, dirty=True, tree="e" * 40))
    with pytest.raises(BundleError, match="commit of a run"):
        verify_identity(read_bundle(write(tmp_path / "b.gz", dirty)), EXPECTED)


def test_the_case_of_a_repository_and_an_earlier_attempt_do_not_matter(tmp_path):
    bundle = read_bundle(write(tmp_path / "b.gz", claim=identity(repository="Octo/Train", run_attempt=1)))
    verify_identity(bundle, EXPECTED)
    verify_identity(bundle, replace(EXPECTED, base_sha=None))


def test_bundles_of_a_matrix_become_one(tmp_path):
    one = read_bundle(write(tmp_path / "1.gz", claim=identity(run_attempt=1)))
    two = read_bundle(write(tmp_path / "2.gz", run(workload="eval"), claim=identity(run_attempt=2)))
    merged = merge_bundles([one, two])
    assert [r.workload for r in merged.runs] == ["gpt", "eval"]
    assert merged.identity.run_attempt == 2
    stranger = read_bundle(write(tmp_path / "3.gz", claim=identity(head_sha="c" * 40)))
    with pytest.raises(BundleError, match="identity of one bundle"):
        merge_bundles([one, stranger])
    with pytest.raises(BundleError, match="no bundle"):
        merge_bundles([])


def test_the_zip_of_an_artifact_is_read_without_unpacking(tmp_path):
    one, two = write(tmp_path / "1.gz"), write(tmp_path / "2.gz", run(workload="eval"))
    archive = zipped(tmp_path / "a.zip", {"perfci-1.json.gz": one.read_bytes(), "perfci-2.json.gz": two.read_bytes()})
    before = sorted(tmp_path.iterdir())
    assert [r.workload for r in read_bundle(archive).runs] == ["gpt", "eval"]
    assert sorted(tmp_path.iterdir()) == before


def test_a_newer_schema_says_what_to_do(tmp_path):
    document = json.loads(gzip.decompress(write(tmp_path / "b.gz").read_bytes()))
    path = tmp_path / "new.gz"
    path.write_bytes(gzip.compress(json.dumps({**document, "schema_version": 2}).encode()))
    with pytest.raises(BundleError, match="same perfci"):
        read_bundle(path)


def test_a_start_in_the_future_is_refused_when_the_time_is_known(tmp_path):
    late = replace(run(), launch=replace(run().launch, started_at=NOW + timedelta(hours=1)))
    path = write(tmp_path / "b.gz", late)
    assert read_bundle(path).runs == (late,)
    with pytest.raises(BundleError, match="future"):
        read_bundle(path, now=NOW)
    read_bundle(path, now=datetime(2030, 1, 1, tzinfo=UTC))
