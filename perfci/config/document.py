"""A YAML file checked against a pydantic model, with errors that name file and line."""

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from perfci.errors import UsageError

ModelT = TypeVar("ModelT", bound=BaseModel)
Location = tuple[str | int, ...]

_DEEPEST = 50
SCHEMA_TODO = "`perfci config schema` prints all keys with their types"


def read_document(
    path: Path, model: type[ModelT], *, todo: str = SCHEMA_TODO, missing: str = "run `perfci init` to write one"
) -> ModelT:
    """Read one YAML file into ``model``. ``todo`` tells where the keys are described, ``missing`` how such a file is
    made.

    Raises UsageError listing every fault as ``file:line: key: what is wrong``: unreadable file, broken YAML,
    duplicate keys, unknown keys, wrong types, values out of range.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file", todo=missing) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}", wanted="a readable UTF-8 file") from error
    return parse_document(text, model, name=str(path), todo=todo)


def parse_document(text: str, model: type[ModelT], *, name: str, todo: str = SCHEMA_TODO) -> ModelT:
    """Check YAML text against ``model``; ``name`` is the file name for messages. Raises as read_document does."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        lines: dict[Location, int] = {}
        faults: list[str] = []
        if root is not None:
            _walk(root, (), lines, faults, name)
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{name}:{line}: not valid YAML: {error.problem}", wanted="a YAML document") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{name}:1: not valid YAML: {error}", wanted="a YAML document") from error
    if faults:
        raise UsageError("\n  ".join(faults), todo="keep one of the two")
    try:
        return model.model_validate({} if data is None else data)
    except ValidationError as error:
        raise UsageError(
            "\n  ".join(text for _, text in sorted(_explain(fault, lines, name) for fault in error.errors())),
            todo=todo,
        ) from error


def _walk(node: yaml.Node, at: Location, lines: dict[Location, int], faults: list[str], name: str) -> None:
    """Record the line of every key and item, and find duplicate keys (PyYAML keeps the last one silently)."""
    lines.setdefault(at, node.start_mark.line + 1)
    if len(at) > _DEEPEST:
        raise UsageError(f"{name}:{node.start_mark.line + 1}: nested too deep, or an alias of itself")
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            line = key_node.start_mark.line + 1
            if key in seen:
                faults.append(f"{name}:{line}: {key}: given twice (first in line {seen[key]})")
            seen[key] = line
            lines[(*at, key)] = line
            _walk(value_node, (*at, key), lines, faults, name)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*at, index)] = item.start_mark.line + 1
            _walk(item, (*at, index), lines, faults, name)


def _in_document(parts: Location, lines: dict[Location, int]) -> Location:
    """A fault's place without the names of alternatives that the model puts between (``<workload>``): no key of the
    file."""
    location: Location = ()
    for part in parts:
        alternative = isinstance(part, str) and part.startswith("<") and (*location, part) not in lines
        location = location if alternative else (*location, part)
    return location


def _explain(fault: Any, lines: dict[Location, int], name: str) -> tuple[int, str]:
    """The line of a fault, and what to say of it."""
    location = _in_document(fault["loc"], lines)
    known = location
    while known and known not in lines:
        known = known[:-1]
    line = lines.get(known, 1)
    dotted = ".".join(str(part) for part in location) or "document"
    if fault["type"] == "extra_forbidden":
        return line, f"{name}:{line}: {dotted}: unknown key"
    message = str(fault["msg"]).removeprefix("Value error, ")
    shown = "" if fault["type"] == "missing" else f" (got {fault['input']!r})"
    return line, f"{name}:{line}: {dotted}: {message}{shown if len(shown) < 120 else ''}"
