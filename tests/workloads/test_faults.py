"""Each fault changes what it says, on the CPU as far as it can be seen there, and nothing else."""

import functools
import json
import re
from pathlib import Path

import pytest
import yaml
from workload_plan import plan

from perfci.config.load import DEFAULT_GATES
from perfci.model.metrics import METRICS, PSEUDO_PHASES
from perfci.probe.locations import LocationKind, read_locations

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
EFFECTS = Path(__file__).with_name("fault_effects.py")
TABLE = yaml.safe_load((ROOT / "workloads" / "faults.yaml").read_text())["faults"]

WIDTHS = {"slower-matmul-1": 64, "slower-matmul-2": 128, "slower-matmul-5": 320}
CHANGES = {
    "none": {},
    "item-each-step": {"calls": [0, 20], "opened": ["log"] * 20},
    "print-each-n-steps": {"calls": [0, 2], "opened": ["log"] * 20},
    "pageable-copies": {"pin_memory": False},
    "serial-loader": {"workers": [0, False, None]},
    "unfused-optimizer": {name: [False, False] for name in ("AdamW", "Adam", "SGD")},
    "validation-with-grad": {"validation records": [True, True, True]},
    "sync-each-micro-step": {"micro-steps travel": True},
    "cuda-malloc-each-step": {"calls": [20, 0], "opened": ["log"] * 20},
    "float32-layer": {"types": ["torch.bfloat16", "torch.float32", "torch.bfloat16"]},
    **{
        name: {
            "feed-forward": [[1024 + n, 256], [1024 + n], [256, 1024 + n]],
            "feed-forward says": [1024 + n, 1024 + n],
        }
        for name, columns in WIDTHS.items()
        for n in [columns * 1024 // 4096]
    },
}
"""Fault → the observations of fault_effects.py that differ under it."""


def run(zygote, fault, script, log, **more):
    return zygote.run([ROOT / "workloads" / "faults.py", fault, script], cwd=log.parent, log=log, **more)


def effects(zygote, fault, log):
    code, text = run(zygote, fault, EFFECTS, log)
    assert code == 0, text
    return seen_in(text)


def seen_in(text):
    return json.loads(re.search(r"^effects (.*)$", text, re.MULTILINE)[1])


@pytest.fixture(scope="module")
def clean(zygote, tmp_path_factory):
    log = tmp_path_factory.mktemp("clean") / "log"
    code, text = zygote.run([EFFECTS], cwd=log.parent, log=log)
    assert code == 0, text
    seen = seen_in(text)
    return seen | {"result": pytest.approx(seen["result"], rel=1e-3)}  # sums over padded rows are rounded otherwise


def test_observations_of_a_clean_run(clean):
    assert clean["pin_memory"] is True
    assert clean["workers"] == [1, True, 3]
    assert clean["AdamW"] == clean["Adam"] == [True, None]
    assert clean["validation records"] == [False, False, True]
    assert clean["micro-steps travel"] is False
    assert clean["types"] == ["torch.bfloat16"] * 3
    assert clean["calls"] == [0, 0]
    assert clean["opened"] == []


@pytest.mark.parametrize("fault", CHANGES)
def test_a_fault_changes_what_it_says_and_nothing_else(zygote, clean, tmp_path, fault):
    assert effects(zygote, fault, tmp_path / "log") == clean | CHANGES[fault]


def test_the_fault_may_be_named_by_a_file(zygote, clean, tmp_path):
    (tmp_path / "fault").write_text("pageable-copies\n")
    assert effects(zygote, f"@{tmp_path / 'fault'}", tmp_path / "log") == clean | {"pin_memory": False}


def test_modules_beside_the_script_are_found(zygote, tmp_path):
    (tmp_path / "beside.py").write_text("print('effects of', __name__)\n")
    (tmp_path / "train.py").write_text("import sys, beside\nprint(sys.path[0], sys.argv)\n")
    code, text = run(zygote, "none", "train.py", tmp_path / "log")
    assert code == 0, text
    assert text.splitlines()[-2:] == ["effects of beside", f"{tmp_path.resolve()} ['train.py']"]


@pytest.mark.parametrize("arguments", [[], ["none"], ["no-such-fault", "train.py"]])
def test_usage(zygote, tmp_path, arguments):
    code, text = zygote.run([ROOT / "workloads" / "faults.py", *arguments], cwd=tmp_path, log=tmp_path / "log")
    assert code == 1
    assert re.search(r"^usage: faults.py FAULT SCRIPT .*item-each-step", text, re.MULTILINE)


@pytest.fixture(scope="module")
def probed(zygote, project, checkout):
    return functools.partial(run_probed, zygote, project, checkout)


def run_probed(zygote, project, checkout, *, out, fault, name):
    """Losses and places of a workload under a fault."""
    (workload,) = project.select([name], preset="cpu-smoke")
    directory = checkout / workload.spec.directory
    env = dict(workload.spec.environment) | plan(out, warmup=1, wall=0, capture=10, probe=checkout)
    argv = [checkout / "workloads" / "faults.py", fault, "train.py"]
    code, text = zygote.run(argv, cwd=directory, log=out / "log", env=env)
    assert code == 0, text
    losses = json.loads((out / "sidecar.json").read_text())["losses"]
    return losses, read_locations([out / "trace.json"], checkout), text


@pytest.fixture(scope="module")
def gpt(probed, tmp_path_factory):
    def probe(fault):
        if fault not in known:
            known[fault] = probed(out=tmp_path_factory.mktemp("gpt"), fault=fault, name="gpt")
        return known[fault]

    known = {}
    return probe


def in_log(locations):
    return {
        (x.path, x.count_per_step)
        for x in locations
        if x.phases == ("log",) and x.kind is LocationKind.SYNC and x.path is not None
    }


def operators(locations, phase):
    counts = {}
    for x in locations:
        if x.kind is LocationKind.OPERATOR and x.phases == (phase,):
            counts[x.name] = counts.get(x.name, 0) + x.count_per_step
    return counts


def test_waits_in_a_real_workload(gpt):
    assert in_log(gpt("none")[1]) == set()
    assert in_log(gpt("item-each-step")[1]) == {("workloads/faults.py", 1.0)}
    assert in_log(gpt("print-each-n-steps")[1]) == {("workloads/faults.py", 0.1)}
    assert gpt("print-each-n-steps")[2].count("loss 7.") == 2  # in step 0, which is warm-up, and in step 10
    assert gpt("none")[0] == gpt("item-each-step")[0] == gpt("print-each-n-steps")[0]


def test_an_unfused_optimizer_in_a_real_workload(gpt):
    fused, unfused = operators(gpt("none")[1], "optimizer"), operators(gpt("unfused-optimizer")[1], "optimizer")
    assert fused["aten::_fused_adamw_"] == 1
    assert "aten::_fused_adamw_" not in unfused
    assert unfused["aten::addcdiv_"] == unfused["aten::sqrt"] > 10  # one each per parameter
    assert gpt("unfused-optimizer")[0] == pytest.approx(gpt("none")[0], rel=1e-3)


def test_a_slower_matmul_in_a_real_workload(gpt):
    for phase in ("forward", "backward", "optimizer"):
        assert operators(gpt("slower-matmul-5")[1], phase) == operators(gpt("none")[1], phase)
    assert gpt("slower-matmul-5")[0] == pytest.approx(gpt("none")[0], rel=1e-3)


def test_validation_with_grad_in_a_real_workload(probed, tmp_path):
    clean = probed(out=tmp_path / "a", fault="none", name="eval")
    recorded = probed(out=tmp_path / "b", fault="validation-with-grad", name="eval")
    assert clean[0] == recorded[0]  # it costs memory only
    before, after = operators(clean[1], "validation"), operators(recorded[1], "validation")
    assert after.pop("aten::detach") > 0  # what a backward would need is kept
    assert before == after


def test_every_fault_has_a_row_of_what_must_be_found():
    assert {row["fault"] for row in TABLE} == set(CHANGES)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row['fault']}-{row['workload']}")
def test_rows_of_the_table_name_what_exists(row):
    assert set(row) == {"fault", "workload", "metrics", "phases", "rules", "may", "gpus"}
    assert (ROOT / "workloads" / row["workload"] / "workload.yaml").is_file()
    rules = {page.stem for page in (ROOT / "docs" / "rules").glob("*-*.md")}
    assert set(row["rules"]) | set(row["may"]) <= rules
    gated = {gate.metric: gate.phase for gate in DEFAULT_GATES}
    assert set(row["metrics"]) <= set(gated) <= set(METRICS)  # found with no configuration of gates
    script = (ROOT / "workloads" / row["workload"] / "train.py").read_text()
    known = set(re.findall(r'phases\.phase\("(\w+)"\)', script)) | {"data", "log", *PSEUDO_PHASES}
    assert set(row["phases"]) <= known
    assert bool(row["metrics"]) == bool(row["rules"]) == (row["fault"] != "none")


def test_the_page_shows_the_table():
    text = (ROOT / "docs" / "faults.md").read_text()
    for row in TABLE:
        cells = [f"`{row['fault']}`", row["workload"], *(", ".join(row[k]) or "–" for k in ("metrics", "phases"))]
        cells.append(", ".join(f"[{rule}](rules/{rule}.md)" for rule in row["rules"]) or "–")
        cells.append(", ".join(row["may"]) or "–")
        assert f"| {' | '.join(cells)} |" in text
