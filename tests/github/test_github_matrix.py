import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.errors import UsageError
from perfci.github.matrix import github_matrix

NAMES = st.lists(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True), max_size=12)


@given(workloads=NAMES, labels=NAMES.filter(bool))
def test_every_pair_once_on_one_line(workloads, labels):
    text = github_matrix(workloads, labels)
    assert "\n" not in text
    pairs = [(job["workload"], job["gpu"]) for job in json.loads(text)["include"]]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == {(w, g) for w in workloads for g in labels}


@pytest.mark.parametrize("bad", ["", "a b", "a\nb", "$(x)", "a/b", "-x", "${{ secrets.X }}", "é"])
def test_names_that_could_be_something_else_are_refused(bad):
    for workloads, labels in (([bad], ["gpu"]), (["gpt"], [bad])):
        with pytest.raises(UsageError, match="cannot be used in a job matrix") as caught:
            github_matrix(workloads, labels)
        assert repr(bad) in caught.value.seen


def test_limits():
    assert len(json.loads(github_matrix(map(str, range(256)), ["gpu"]))["include"]) == 256
    with pytest.raises(UsageError, match="257"):
        github_matrix(map(str, range(257)), ["gpu"])
    with pytest.raises(UsageError, match="label"):
        github_matrix(["gpt"], [])
