"""perfci.yaml: what is accepted, and faults named with file and line."""

from pathlib import Path

import pytest
import yaml

from perfci.config.document import parse_document
from perfci.config.load import DEFAULT_GATES, default_project, find_config, load_project
from perfci.config.schema import ProjectSection
from perfci.config.template import TEMPLATE
from perfci.errors import ExitCode, UsageError


def project(tmp_path: Path, text: str, **kwargs: str):
    (tmp_path / "perfci.yaml").write_text(text)
    return load_project(tmp_path / "perfci.yaml", **kwargs)


MINIMAL = "workloads:\n  - {name: a, command: python train.py}\n"


def test_template_is_valid_and_names_every_section() -> None:
    parsed = parse_document(TEMPLATE, ProjectSection, name="template")
    assert parsed.workloads
    assert parsed.judge.error_rate == 0.01
    for key in ("database", "workloads", "measure", "judge", "environment"):
        assert f"\n{key}:" in TEMPLATE


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("workloads: []\nmesure: {}\n", "perfci.yaml:2: mesure: unknown key"),
        ("judge:\n  error_rate: 0.01\n  powr: 0.9\n", "perfci.yaml:3: judge.powr: unknown key"),
        ("workloads:\n- name: a\n  command: x\n  presets:\n    gpu:\n      evn: {}\n", "evn"),
        ("measure:\n  warmup_steps: -1\n", "perfci.yaml:2: measure.warmup_steps"),
        ("judge:\n  gates:\n    - {metric: wall_ns}\n    - {metric: wal_ns}\n", "perfci.yaml:4: judge.gates.1.metric"),
        ("database: 3\n", "perfci.yaml:1: database"),
        ("a: [\n", "perfci.yaml:2: not valid YAML"),
        ("a: &a [*a]\n", "alias of itself"),
        ("environment: {key: {rack: ''}}\n", "environment.key.rack"),
        ("judge: {statistics: {kernel_count: p10}}\n", "judge.statistics"),
        ("judge: {statistics: {wall_ns: p50}}\n", "judge.statistics.wall_ns"),
        ("judge: {max_minutes: .nan}\n", "judge.max_minutes"),
        ("measure: {}\njudge: {}\nmeasure: {}\n", "perfci.yaml:3: measure: given twice (first in line 1)"),
        ("judge:\n  max_launches: 1001\n", "perfci.yaml:2: judge.max_launches: Input should be less than or"),
        ("judge: {min_launches: 1000000000}\n", "perfci.yaml:1: judge.min_launches"),
        ("judge: {min_launches: 5, max_launches: 2}\n", "min_launches 5 is above max_launches 2"),
        ("judge: {gates: [{metric: wall_ns, budget: nan%}]}\n", "budget"),
        ("judge: {gates: [{metric: throughput_per_s}]}\n", "write `phase: run`"),
        ("judge: {gates: [{metric: unprofiled_wall_ns, phase: forward}]}\n", "write `phase: step`"),
        ("judge: {gates: [{metric: kernel_count, phase: run}]}\n", "measured per step"),
        ("- 1\n", "perfci.yaml:1"),
        ("database: perfci.db\n", "not a URL"),
        ("workloads: [nowhere/*]\n", "matches no folder"),
        (MINIMAL + "  - {name: a, command: b}\n", "defined twice"),
        ("workloads:\n  - {name: ../a, command: b}\n", "name"),
        ("workloads:\n  - {name: a, command: b, directory: ../x}\n", "directory"),
    ],
)
def test_fault_names_file_line_and_key(tmp_path: Path, text: str, wanted: str) -> None:
    with pytest.raises(UsageError) as caught:
        project(tmp_path, text)
    assert wanted in str(caught.value)
    assert caught.value.exit_code is ExitCode.USAGE


def test_several_faults_are_all_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        project(tmp_path, "x: 1\ny: 2\n")
    assert ":1: x: unknown key" in str(caught.value)
    assert ":2: y: unknown key" in str(caught.value)


def test_each_fault_of_a_workload_written_out_is_said_once_at_its_line(tmp_path: Path) -> None:
    text = "workloads:\n  - name: a\n    command: x\n    timeout_s: -1\n    env: {A: [1]}\n  - 7\n  - workloads/*\n"
    with pytest.raises(UsageError) as caught:
        project(tmp_path, text)
    places = [line.strip().removeprefix(f"{tmp_path}/").split(": ")[:2] for line in caught.value.seen.splitlines()]
    assert places == [
        ["perfci.yaml:4", "workloads.0.timeout_s"],
        ["perfci.yaml:5", "workloads.0.env.A"],
        ["perfci.yaml:6", "workloads.1"],
    ]
    assert "a folder with a workload.yaml, or a workload written out" in caught.value.seen


def test_a_key_in_angle_brackets_is_named_as_it_stands(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"perfci.yaml:1: workloads.0.env.<x>: "):
        project(tmp_path, "workloads: [{name: a, command: x, env: {<x>: [1]}}]\n")


def test_gates_of_the_user_replace_the_built_in_ones_and_are_required(tmp_path: Path) -> None:
    assert project(tmp_path, MINIMAL).judge.gates == DEFAULT_GATES
    judge = project(tmp_path, MINIMAL + "judge:\n  gates: [{metric: wall_ns, phase: 'for*', budget: 2%}]\n").judge
    (gate,) = judge.gates
    assert gate.required
    assert gate.budget_ratio == pytest.approx(0.02)
    assert gate.covers(workload="a", phase="forward", metric="wall_ns")
    assert not gate.covers(workload="a", phase="backward", metric="wall_ns")


def test_later_gate_overrides_earlier(tmp_path: Path) -> None:
    text = MINIMAL + "judge:\n  gates: [{metric: wall_ns, budget: 5%}, {metric: wall_ns, workload: a, budget: 1%}]\n"
    judge = project(tmp_path, text).judge
    assert judge.gate_for(workload="a", phase="step", metric="wall_ns").budget_ratio == 0.01
    assert judge.gate_for(workload="b", phase="step", metric="wall_ns").budget_ratio == 0.05
    assert judge.gate_for(workload="b", phase="step", metric="kernel_ns") is None


def workload_folder(tmp_path: Path, name: str, extra: str = "") -> None:
    folder = tmp_path / "workloads" / name
    folder.mkdir(parents=True)
    (folder / "workload.yaml").write_text(f"name: {name}\ncommand: python train.py\ntags: [fast]\n{extra}")


PRESETS = """
env: {A: general}
warmup_steps: 4
default_preset: small
presets:
  small: {env: {A: 1}, capture_steps: 5}
  large: {env: {A: 2}, warmup_steps: 9}
"""


def test_a_small_plan_needs_one_number(tmp_path: Path) -> None:
    judge = project(tmp_path, MINIMAL + "judge: {max_launches: 2}\n").judge
    assert (judge.min_launches, judge.max_launches) == (2, 2)
    judge = project(tmp_path, MINIMAL + "judge: {max_launches: 20}\n").judge
    assert (judge.min_launches, judge.max_launches) == (3, 20)
    with pytest.raises(UsageError, match="min_launches 3 is above max_launches 2"):
        project(tmp_path, MINIMAL + "judge: {min_launches: 3, max_launches: 2}\n")


def test_folders_presets_tags_and_globs(tmp_path: Path) -> None:
    workload_folder(tmp_path, "gpt", PRESETS)
    workload_folder(tmp_path, "gpt-compile")
    workload_folder(tmp_path, "resnet")
    loaded = project(tmp_path, "workloads: [workloads/*]\nmeasure: {wall_steps: 7}\n")
    assert loaded.workload_names() == ("gpt", "gpt-compile", "resnet")
    assert [w.spec.name for w in loaded.select(["gpt*"])] == ["gpt", "gpt-compile"]
    assert len(loaded.select(["tag:fast"])) == 3
    (small,) = loaded.select(["gpt"])
    assert small.spec.environment == (("A", "1"),)
    assert (small.measure.warmup_steps, small.measure.wall_steps, small.measure.capture_steps) == (4, 7, 5)
    assert small.spec.directory == "workloads/gpt"
    assert small.definition_file == "workloads/gpt/workload.yaml"
    (large,) = loaded.select(["gpt"], preset="large")
    assert large.spec.name == "gpt@large"
    assert large.measure.warmup_steps == 9
    assert large.spec.definition_hash != small.spec.definition_hash
    assert [w.spec.name for w in loaded.select(["gpt@large"])] == ["gpt@large"], "as reports name it"
    assert loaded.select(["gpt@large"]) == (large,)
    assert [w.spec.name for w in loaded.select(["gpt@small", "g*@large", "gpt"])] == ["gpt", "gpt@large"]
    assert not loaded.knows("resnet@large")
    with pytest.raises(UsageError, match="no workload matches 'gpt@huge'"):
        loaded.select(["gpt@huge"])
    with pytest.raises(UsageError, match="no workload matches"):
        loaded.select(["bert"])
    with pytest.raises(UsageError, match="no preset 'huge'"):
        loaded.select(["gpt"], preset="huge")


def test_budgets_and_prose_do_not_change_the_definition_hash(tmp_path: Path) -> None:
    workload_folder(tmp_path, "a")
    first = project(tmp_path, "workloads: [workloads/a]\n").select()[0].spec.definition_hash
    (tmp_path / "workloads/a/workload.yaml").write_text(
        "name: a\ntitle: other\ncommand: [python, train.py]\ngates: [{metric: wall_ns, budget: 9%}]\n"
    )
    assert project(tmp_path, "workloads: [workloads/a]\n").select()[0].spec.definition_hash == first
    changed = project(tmp_path, "workloads: [workloads/a]\nmeasure: {capture_steps: 3}\n")
    assert changed.select()[0].spec.definition_hash != first


def test_relative_database_starts_at_the_file_and_an_override_at_the_caller(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir("/")
    assert project(tmp_path, MINIMAL).database_url == f"sqlite:///{tmp_path}/.perfci/perfci.db"
    assert project(tmp_path, MINIMAL, database_url="sqlite:///x.db").database_url == "sqlite:////x.db"


def test_no_workloads_is_said_when_one_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no workloads"):
        project(tmp_path, "version: 1\n").select()
    assert default_project(tmp_path).judge.gates == DEFAULT_GATES


def test_config_is_found_above(tmp_path: Path) -> None:
    (tmp_path / "perfci.yaml").write_text(yaml.safe_dump({}))
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert find_config(below) == tmp_path / "perfci.yaml"


def test_a_folder_called_perfci_yaml_is_told(tmp_path: Path) -> None:
    (tmp_path / "perfci.yaml").mkdir()
    found = find_config(tmp_path)
    assert found == tmp_path / "perfci.yaml"
    with pytest.raises(UsageError, match="cannot be read"):
        load_project(found)


def test_missing_unreadable_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        load_project(tmp_path / "perfci.yaml")
    (tmp_path / "perfci.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        load_project(tmp_path / "perfci.yaml")
