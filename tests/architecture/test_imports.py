"""The import graph is a fan (docs/architecture.md), held by walking the syntax trees: a lazy import counts too."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "perfci"

FOUNDATION = {"errors", "model"}
MAY_IMPORT = {
    "errors": set(),
    "model": {"errors"},
    "phases": set(),
    "autophase": {"phases"},
    "callbacks": {"phases"},
    "probe": FOUNDATION | {"phases"},
    "trace": FOUNDATION,
    "store": FOUNDATION,
    "stats": FOUNDATION,
    "capture": FOUNDATION,
    "diagnosis": FOUNDATION,
    "config": FOUNDATION,
    "report": FOUNDATION,
    "bundle": FOUNDATION,
    "github": FOUNDATION | {"report"},
}
"""Layer → layers it may import besides itself. `pipeline` and `cli` may import all; nobody else imports those two."""
TOP = {"pipeline", "cli", "__main__"}

HOMES = {
    "sqlalchemy": {"store"},
    "alembic": {"store"},
    "github3": {"github"},
    "scipy": {"stats"},
    "subprocess": {"capture"},
    "sqlite3": {"trace", "capture", "store"},
    "yaml": {"config"},
    "pydantic": {"config", "model"},
    "click": {"cli"},
    "rich": {"cli", "report"},
    "jinja2": {"report"},
    "pynvml": {"capture", "phases"},
    "torch": {"phases", "autophase", "callbacks", "probe"},
    "nvtx": {"phases"},
}
"""Third party (or delicate standard library) module → the layers that may import it."""


def layer_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            module = node.module or ""
            if module == "perfci":
                found += [(node.lineno, f"perfci.{alias.name}") for alias in node.names]
            else:
                found.append((node.lineno, module))
    return found


def violations(path: Path, layer: str) -> list[str]:
    faults = []
    for line, name in imports(path):
        parts = name.split(".")
        where = f"{path.relative_to(ROOT)}:{line}"
        if parts[0] == "perfci" and len(parts) > 1:
            target = parts[1]
            if target in {"__version__", layer} or layer in TOP:
                continue
            if target not in MAY_IMPORT.get(layer, set()):
                faults.append(f"{where}: {layer} imports {target}")
        elif parts[0] in HOMES and layer not in HOMES[parts[0]]:
            faults.append(f"{where}: {parts[0]} belongs to {sorted(HOMES[parts[0]])}, not to {layer}")
    return faults


MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_module_keeps_to_its_layer(path: Path) -> None:
    layer = layer_of(path)
    assert layer in MAY_IMPORT or layer in TOP, f"new layer {layer!r}: say here what it may import"
    assert violations(path, layer) == []


def test_the_rule_sees_a_violation(tmp_path: Path) -> None:
    bad = PACKAGE / "model" / "_bad.py"
    source = "def f():\n    import sqlalchemy\n    from perfci.store import x\n    from perfci import cli\n"
    tree = tmp_path / "bad.py"
    tree.write_text(source)
    found = [name for _, name in imports(tree)]
    assert found == ["sqlalchemy", "perfci.store", "perfci.cli"]
    assert layer_of(bad) == "model"
    assert "store" not in MAY_IMPORT["model"]


@pytest.mark.parametrize("path", sorted((ROOT / "workloads").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_workload_imports_only_torch_and_phases(path: Path) -> None:
    allowed = {"torch", "perfci.phases", "faults"}
    standard = {
        "argparse",
        "runpy",
        "os",
        "math",
        "random",
        "time",
        "sys",
        "collections",
        "dataclasses",
        "typing",
        "pathlib",
        "contextlib",
        "functools",
        "itertools",
    }
    for line, name in imports(path):
        root = name.split(".")[0]
        assert root in allowed | standard or name in allowed, (
            f"{path}:{line}: workloads import only torch and perfci.phases, not {name}"
        )


def test_no_module_is_a_junk_drawer() -> None:
    names = {p.stem for p in PACKAGE.rglob("*.py")}
    assert not names & {"util", "utils", "helper", "helpers", "common", "misc", "manager"}


def test_benchmark_modules_have_names_of_their_own() -> None:
    """Tests put benchmark folders on one import path: of two modules of one name the second is never found."""
    stems = [p.stem for p in (ROOT / "benchmarks").rglob("*.py")]
    assert len(stems) > 15
    assert sorted(s for s in set(stems) if stems.count(s) > 1) == []
