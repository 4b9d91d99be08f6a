"""Small uploads from pageable memory that are new are named; old ones, rare ones and fetches are not."""

import pytest
from launches import GPT, evidence, recorded, training

from perfci.diagnosis.pair_patterns import new_pageable_uploads
from perfci.diagnosis.pair_view import PairView
from perfci.model.finding import Confidence
from perfci.model.metrics import BACKGROUND


def find(baseline, candidate):
    return list(new_pageable_uploads.find(PairView(baseline, candidate)))


def uploading(counts, *, phase="h2d", size=256, metric="h2d_pageable"):
    """A launch of ten steps with so many uploads in each."""
    made = training().with_series("step", "h2d_pageable_count", counts if metric == "h2d_pageable" else [0] * 10)
    made = made.with_series(phase, f"{metric}_count", counts)
    made = made.with_series(phase, f"{metric}_bytes", [size * n for n in counts])
    return made.with_series(phase, f"{metric}_ns", [1_500 * n for n in counts])


CLEAN = uploading([0] * 10)
SMALL = uploading([1] * 10)


def test_a_small_upload_in_every_step():
    (finding,) = find([CLEAN] * 2, [SMALL] * 2)
    assert (finding.rule, finding.phase, finding.subject) == ("pageable-copies", "h2d", "host to device")
    assert finding.new
    assert finding.confidence is Confidence.MEDIUM
    assert finding.title == "host to device copies of pageable memory are new: 1× per step (h2d)"
    assert [q.value for q in finding.evidence] == [1, 256, 1_500]


def test_one_more_than_before_and_a_phase_that_is_new():
    (more,) = find([SMALL], [uploading([3] * 10)])
    assert evidence(more)["new copies per step"] == 2
    (elsewhere,) = find([CLEAN], [uploading([1] * 10, phase="augment")])
    assert elsewhere.phase == "augment"


def test_the_upload_of_a_recorded_training_against_a_twin_without_it():
    """The GPT recording copies its batch, inputs and targets, from pageable memory in every step."""
    planted = recorded(GPT)
    clean = planted.with_series("h2d", "h2d_pageable_count", [0] * 8)
    (finding,) = find([clean], [planted])
    assert (finding.phase, evidence(finding)["new copies per step"]) == ("h2d", 2)


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        ([CLEAN], [CLEAN]),
        ([SMALL], [SMALL]),
        ([SMALL], [CLEAN]),
        ([CLEAN], [uploading([0, 0, 1] * 3 + [0])]),
        ([CLEAN], [uploading([0] * 9 + [20])]),
        ([CLEAN, SMALL], [SMALL, SMALL]),
        ([CLEAN], [SMALL, CLEAN]),
        ([CLEAN], [uploading([1] * 10, phase=BACKGROUND)]),
        ([CLEAN], [uploading([1] * 10, metric="d2h_pageable")]),
        ([training()], [SMALL]),
    ],
    ids=[
        "none", "both", "gone", "rare", "once many", "one launch before", "one launch without", "helper", "fetch",
        "baseline not measured",
    ],
)  # fmt: skip
def test_other_uploads_are_not_named(baseline, candidate):
    assert find(baseline, candidate) == []
