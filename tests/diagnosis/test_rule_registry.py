"""Rules are found by entry points; a broken one is an error that names its package, never a silent skip."""

import importlib
import sys
import tomllib
from pathlib import Path

import pytest
from timeline_builder import healthy

from perfci.diagnosis import rules
from perfci.diagnosis.pair_rules import PAIR_RULES
from perfci.errors import PerfciError, UsageError
from perfci.model.finding import Confidence, Finding, Quantity

ROOT = Path(__file__).parents[2]
HEADINGS = ("What it means", "How it is recognised", "False positives and limits", "How to mend it")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installs a real distribution with one module and one rule, as pip would lay it out."""

    def install(source: str, *, name: str = "acme-rules", rule: str = "acme", module: str = "acme_rules") -> None:
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{name.replace('-', '_')}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text(f"[perfci.rules]\n{rule} = {module}\n")
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield install
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


GOOD = """
from perfci.model.finding import Confidence, Finding, Quantity

def find(view):
    seen = (Quantity(name="steps", value=view.step_count, unit="steps"),)
    yield Finding(rule="acme", phase="step", title="acme saw it", evidence=seen, confidence=Confidence.LOW, advice="")
"""


def test_every_built_in_rule_is_registered_and_documented():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["perfci.rules"]
    installed = rules.installed()
    assert installed.keys() >= declared.keys()
    modules = {p.stem for p in (ROOT / "perfci/diagnosis/patterns").glob("*.py")} - {"__init__", "slow_steps"}
    assert {name.replace("-", "_") for name in declared} == modules
    for name in declared:
        rule = installed[name]
        assert name == rule.NAME
        page = (ROOT / rule.DOCS).read_text()
        assert f"docs/rules/{name}.md" == rule.DOCS
        assert page.startswith(f"# {name}\n")
        for heading in HEADINGS:
            assert f"\n## {heading}\n" in page, f"{name}: {heading}"


def test_every_pair_rule_is_listed_and_documented():
    modules = {p.stem for p in (ROOT / "perfci/diagnosis/pair_patterns").glob("*.py")} - {"__init__"}
    assert {rule.__name__.rpartition(".")[2] for rule in PAIR_RULES} == modules
    for rule in PAIR_RULES:
        page = (ROOT / rule.DOCS).read_text()
        assert f"docs/rules/{rule.NAME}.md" == rule.DOCS
        for heading in HEADINGS:
            assert f"\n## {heading}\n" in page, f"{rule.NAME}: {heading}"


def test_documented_thresholds_are_those_of_the_code():
    for name, rule in (*rules.installed().items(), *((rule.NAME, rule) for rule in PAIR_RULES)):
        page = (ROOT / rule.DOCS).read_text()
        constants = [c for c in vars(rule) if c.endswith(("_RATIO", "_NS", "_BYTES")) and c[0] != "_"]
        for constant in constants:
            value = getattr(rule, constant)
            assert f"`{constant}` = {value:,}".replace(",", " ") in page, f"{name}: {constant} = {value}"


def test_a_plug_in_rule_is_found_and_run(package):
    package(GOOD)
    assert [finding.title for finding in rules.find(healthy().build())] == ["acme saw it"]


def test_the_documented_plug_in_works(package):
    index = (ROOT / "docs/rules/README.md").read_text()
    package(index.split("```python\n")[1].split("```")[0])
    made = healthy()
    assert rules.find(made.build()) == ()
    for number in range(10):
        for turn in range(11):
            made.call("cudaMemsetAsync_v3020", number * 1000 + 30 + turn * 10, number * 1000 + 32 + turn * 10)
    (finding,) = rules.find(made.build())
    assert finding.rule == "acme"
    assert [quantity.value for quantity in finding.evidence] == [11 * 2000, 110]


def test_the_index_lists_every_rule():
    index = (ROOT / "docs/rules/README.md").read_text()
    pages = {page.name for page in (ROOT / "docs/rules").glob("*.md")} - {"README.md"}
    assert pages == {f"{name}.md" for name in {*rules.installed(), *(rule.NAME for rule in PAIR_RULES)}}
    assert all(f"]({page})" in index for page in pages)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import a_module_that_is_not_there", "cannot be loaded"),
        ("def find(view:", "cannot be loaded"),
        ("1 / 0", "cannot be loaded"),
        ("FIND = 1", "has no find function"),
    ],
)
def test_a_rule_that_cannot_be_loaded_names_its_package(package, source, says):
    package(source)
    with pytest.raises(UsageError, match=r"'acme' of acme-rules 1\.5") as error:
        rules.find(healthy().build())
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def find(view):\n    return [view.nothing]", "AttributeError"),
        ("def find(view):\n    raise RuntimeError('boom')\n    yield", "boom"),
        ("def find(view):\n    return None", "TypeError"),
        ("def find(view):\n    return ['x']", "str instead of Finding"),
        (GOOD.replace('rule="acme"', 'rule="other"'), "a finding of a rule 'other'"),
        (GOOD.replace("evidence=seen", "evidence=()"), "without evidence"),
        (GOOD.replace("value=view.step_count", "value=float('nan')"), "not a finite number"),
    ],
)
def test_a_rule_that_fails_or_talks_nonsense_names_its_package(package, source, says):
    package(source)
    with pytest.raises(PerfciError, match=r"'acme' of acme-rules 1\.5") as error:
        rules.find(healthy().build())
    assert says in str(error.value)


def test_two_packages_with_one_rule_name(package):
    package(GOOD, rule="outlier-step")
    with pytest.raises(UsageError, match=r"two installed packages offer a rule 'outlier-step'.*acme-rules 1\.5"):
        rules.installed()


def test_interruption_and_own_errors_pass_through():
    class Interrupted:
        def find(self, view):
            raise KeyboardInterrupt

    class Says:
        def find(self, view):
            raise UsageError("mine")

    with pytest.raises(KeyboardInterrupt):
        rules.find(healthy().build(), rules={"a": Interrupted()})
    with pytest.raises(UsageError, match="mine"):
        rules.find(healthy().build(), rules={"a": Says()})


def test_surest_findings_come_first():
    class Rule:
        def __init__(self, name, confidence):
            self.name, self.confidence = name, confidence

        def find(self, view):
            evidence = (Quantity(name="n", value=1, unit="count"),)
            return [
                Finding(
                    rule=self.name, phase="step", title="", evidence=evidence, confidence=self.confidence, advice=""
                )
            ]

    chosen = {"a": Rule("a", Confidence.LOW), "b": Rule("b", Confidence.HIGH), "c": Rule("c", Confidence.HIGH)}
    assert [finding.rule for finding in rules.find(healthy().build(), rules=chosen)] == ["b", "c", "a"]
