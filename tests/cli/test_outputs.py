"""Which format goes where: ``-f`` and ``-o``."""

from pathlib import Path

import pytest

from perfci.cli.options import Output, plan_outputs, write_output
from perfci.errors import UsageError


def out(format_name: str, path: str | None) -> Output:
    return Output(format=format_name, path=None if path is None else Path(path))


STDOUT_TEXT = Output(format="text", path=None)


@pytest.mark.parametrize(
    ("formats", "files", "wanted"),
    [
        ([], [], [STDOUT_TEXT]),
        (["json"], [], [out("json", None)]),
        ([], ["a.md"], [out("md", "a.md"), STDOUT_TEXT]),
        (["md", "json"], ["x", "y"], [out("md", "x"), out("json", "y"), STDOUT_TEXT]),
        (["md", "json"], ["-", "y"], [out("md", None), out("json", "y")]),
        ([], ["a.XML", "b.html"], [out("junit", "a.XML"), out("html", "b.html"), STDOUT_TEXT]),
    ],
)
def test_formats_and_files_pair_up(formats: list[str], files: list[str], wanted: list[Output]) -> None:
    assert list(plan_outputs(formats, files)) == wanted


@pytest.mark.parametrize(
    ("formats", "files", "told"),
    [
        (["md", "json"], [], "2 formats but no file"),
        (["md"], ["a", "b"], "1 -f for 2 -o"),
        ([], ["report"], "format of 'report' is not clear"),
        ([], ["report.pdf"], "format of 'report.pdf' is not clear"),
        (["md", "json"], ["-", "-"], "more than one rendering"),
    ],
)
def test_ambiguity_is_refused(formats: list[str], files: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        plan_outputs(formats, files)


def test_output_folder_is_made_and_failure_is_said(tmp_path: Path) -> None:
    write_output("x", tmp_path / "a" / "b.md")
    assert (tmp_path / "a" / "b.md").read_text() == "x"
    with pytest.raises(UsageError, match="cannot be written"):
        write_output("x", tmp_path / "a")
