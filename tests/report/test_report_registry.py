"""Reporters are found by entry points; mistakes are usage errors that name the choices."""

from importlib.metadata import EntryPoint

import pytest
import situations

from perfci.errors import UsageError
from perfci.report import registry


@pytest.mark.parametrize("name", ["text", "md", "json", "junit", "html"])
def test_built_ins_are_registered_and_render_every_situation_the_same_twice(name):
    chosen = registry.reporter(name)
    for build in situations.SITUATIONS.values():
        first = chosen.render(build(), situations.CONTEXT)
        assert isinstance(first, str)
        assert first.encode("utf-8")
        assert first == chosen.render(build(), situations.CONTEXT)


def test_unknown_format_lists_the_known_ones():
    with pytest.raises(UsageError, match="pdf") as caught:
        registry.reporter("pdf")
    assert "html, json, junit, md, text" in str(caught.value)


@pytest.mark.parametrize("value", ["no_such_module", "perfci.report.text:no_such_thing", "perfci.report.names"])
def test_broken_plug_in_is_a_usage_error(monkeypatch, value):
    point = EntryPoint(name="broken", value=value, group=registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda **_: [point])
    with pytest.raises(UsageError, match="broken"):
        registry.reporter("broken")


def test_two_packages_with_one_name_are_refused(monkeypatch):
    points = [EntryPoint(name="x", value=value, group=registry.GROUP) for value in ("one", "two")]
    monkeypatch.setattr(registry, "entry_points", lambda **_: points)
    with pytest.raises(UsageError, match="one, two"):
        registry.reporter("x")
