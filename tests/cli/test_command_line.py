"""The command line as users meet it: exit codes, streams, help. Each test is a real process."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from perfci.cli import _COMMANDS
from perfci.cli.lazy import _HELP

H200 = Path(__file__).parents[1] / "traces"


def perfci(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PERFCI_DATABASE", "COLUMNS"))}
    return subprocess.run(
        [sys.executable, "-m", "perfci", *arguments],
        cwd=cwd,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def trace(name: str) -> str:
    (found,) = H200.glob(f"{name}*.sqlite.gz")
    return str(found)


@pytest.mark.parametrize("name", _COMMANDS)
def test_help_text_is_the_commands_own(name: str) -> None:
    module, _, attribute = _COMMANDS[name].partition(":")
    command = getattr(importlib.import_module(module), attribute)
    assert isinstance(command, click.Command)
    assert command.short_help == _HELP[name]


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom perfci.cli import main\nmain(['--help'])\n"
        "heavy = {'numpy', 'pandas', 'scipy', 'sqlalchemy', 'pydantic', 'yaml', 'rich', 'jinja2', 'torch', 'github3'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.strip().endswith("[]")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nonsense"], 2, "No such command"),
        (["compare"], 2, "Missing argument"),
        (["compare", "main..x", "-f", "pdf"], 2, "Invalid value"),
        (["extract", "missing.sqlite"], 2, "no such file"),
        (["compare", "main..x"], 2, "not in a git repository"),
        (["run"], 2, "not inside a git repository"),
        (["compare", "a..b", "--db", "nonsense"], 2, "not a URL"),
        (["list"], 2, "no workloads"),
        (["baseline", "accept", "x", "-w", "a", "--preset", "p", "--reason", "r"], 2, "perfci.yaml lists none"),
        (["compare", "main", "x"], 2, "do: perfci compare main..x"),
        (["compare", "main..x", "y"], 2, "wanted: one range"),
        (["compare", ""], 2, "the revisions are empty"),
    ],
)
def test_wrong_use_exits_2_and_says_what_to_do(tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    done = perfci(*arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_an_error_that_quotes_is_no_command_of_the_runner(tmp_path: Path) -> None:
    done = perfci("extract", "no\n::error::y.sqlite", cwd=tmp_path)
    assert done.returncode != 0
    assert not [line for line in done.stderr.splitlines() if line.lstrip().startswith("::")]
    assert "\n: :error::y" in done.stderr


def test_init_then_check_then_refuse_to_overwrite(tmp_path: Path) -> None:
    assert perfci("init", cwd=tmp_path).returncode == 0
    assert perfci("config", "check", cwd=tmp_path).returncode == 0
    again = perfci("init", cwd=tmp_path)
    assert again.returncode == 2
    assert "exists" in again.stderr


def test_config_check_warns_of_what_will_never_be_used(tmp_path: Path) -> None:
    path = tmp_path / "perfci.yaml"
    path.write_text("")
    done = perfci("config", "check", cwd=tmp_path)
    assert done.returncode == 0
    assert "warning: no workloads are listed" in done.stderr
    named = ("gtp", "'g*'", "gpt@small")
    gates = ", ".join(f"{{metric: sync_count, workload: {name}}}" for name in named)
    path.write_text(f"workloads: [{{name: gpt, command: x, presets: {{small: {{}}}}}}]\njudge: {{gates: [{gates}]}}\n")
    done = perfci("config", "check", cwd=tmp_path)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert "gated for 'gtp', which is none of the workloads gpt" in line


def test_doctor_tells_gates_that_this_machine_cannot_measure(tmp_path: Path) -> None:
    (tmp_path / "perfci.yaml").write_text(
        "workloads:\n  - name: a\n    command: x\n    gates: [{metric: sync_count, phase: forward}]\n"
        "  - {name: b, command: x, wall_steps: 0}\n"
        "judge:\n  gates:\n    - {metric: unprofiled_wall_ns, workload: b}\n    - {metric: gpu_busy_ns, workload: c}\n"
    )
    done = perfci("doctor", "-f", "json", cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    told = [check["seen"] for check in json.loads(done.stdout)["checks"] if check["name"] == "gates"]
    assert [text.partition(": cannot")[0] for text in told] == [
        "unprofiled_wall_ns (step) of b",  # no unprofiled steps
        "sync_count (forward) of a",  # no GPU; the gate of workload c covers nothing here
    ]
    (tmp_path / "perfci.yaml").write_text("workloads:\n  - {name: a, command: x}\n")  # built-in gates: where they can
    done = perfci("doctor", "-f", "json", cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    assert "gates" not in {check["name"] for check in json.loads(done.stdout)["checks"]}


def test_doctor_opens_the_database(tmp_path: Path) -> None:
    (tmp_path / "junk.db").write_text("hello")
    for url, said in (
        (f"sqlite:///{tmp_path}/junk.db", "is not a SQLite database"),
        ("postgresql://someone:hunter2@127.0.0.1:1/none", "cannot be reached"),
    ):
        done = perfci("doctor", "-f", "json", "--db", url, cwd=tmp_path)
        (check,) = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "database"]
        assert (done.returncode, check["status"]) == (5, "fail")
        assert said in check["seen"]
        assert check["todo"]
        assert "hunter2" not in done.stdout
    assert (tmp_path / "junk.db").read_text() == "hello"


def test_broken_configuration_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "perfci.yaml").write_text("workloads: []\nmeasure:\n  warmup: 3\n")
    done = perfci("list", cwd=tmp_path)
    assert done.returncode == 2
    assert "perfci.yaml:3: measure.warmup: unknown key" in done.stderr


def test_schema_is_json_schema(tmp_path: Path) -> None:
    for arguments in (["config", "schema"], ["config", "schema", "--workload"]):
        schema = json.loads(perfci(*arguments, cwd=tmp_path).stdout)
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False


def test_extract_text_and_json_of_a_real_trace(tmp_path: Path) -> None:
    text = perfci("extract", trace("h200_transformer"), cwd=tmp_path)
    assert text.returncode == 0, text.stderr
    assert re.search(r"backward", text.stdout)
    done = perfci("extract", trace("h200_transformer"), "-f", "json", cwd=tmp_path)
    document = json.loads(done.stdout)
    assert document["schema_version"] == 1
    assert document["steps"] == 32
    busy = document["phases"]["backward"]["metrics"]["gpu_busy_ns"]
    assert busy["unit"] == "ns"
    assert len(busy["per_step"]) == 32
    assert sum(busy["per_step"]) == 31_409_989


def test_bad_trace_exits_5(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite").write_bytes(b"")
    done = perfci("extract", "x.sqlite", cwd=tmp_path)
    assert done.returncode == 5
    assert "x.sqlite" in done.stderr
    assert "Traceback" not in done.stderr


def test_imported_labels_are_compared_by_counts_and_one_launch_decides_no_time(tmp_path: Path) -> None:
    """Two recordings of the same training, one with `loss.item()` in each step: counts tell, noisy times do not."""
    for label, name in (("clean", "h200_gpt_cuda_graph_granularity_node"), ("item", "h200_gpt_item_each_step")):
        done = perfci("import", trace(name), "-w", "gpt", "-r", label, "--db", "sqlite:///x.db", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    again = perfci("import", trace("h200_gpt_item"), "-w", "gpt", "-r", "item", "--db", "sqlite:///x.db", cwd=tmp_path)
    assert "imported 0 runs" in again.stdout
    done = perfci("compare", "clean..item", "--db", "sqlite:///x.db", "-f", "json", cwd=tmp_path)
    document = json.loads(done.stdout)
    assert done.returncode == 3, done.stderr
    rows = {(r["phase"], r["metric"]): r for w in document["workloads"] for r in w["rows"]}
    assert rows["step", "kernel_count"]["verdict"] == "REGRESSION"
    assert rows["step", "gpu_busy_ns"]["verdict"] == "INCONCLUSIVE"


def test_a_side_compared_with_itself_is_not_measured(tmp_path: Path) -> None:
    perfci("import", trace("h200_transformer"), "-w", "t", "-r", "a", "--db", "sqlite:///x.db", cwd=tmp_path)
    done = perfci("compare", "a..a", "--db", "sqlite:///x.db", "-f", "json", cwd=tmp_path)
    document = json.loads(done.stdout)
    verdicts = {r["verdict"] for w in document["workloads"] for r in w["rows"] if r["verdict"]}
    assert verdicts == {"NOT_MEASURED"}
    assert "not compared with themselves" in done.stdout
    assert "NaN" not in done.stdout
    assert done.returncode == 5


def test_unreachable_database_exits_6_without_its_password(tmp_path: Path) -> None:
    url = "postgresql+psycopg://someone:hunter2@127.0.0.1:1/none"
    done = perfci("compare", "a..b", "--db", url, cwd=tmp_path)
    assert done.returncode == 6
    assert "hunter2" not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_ctrl_c_exits_130(tmp_path: Path) -> None:
    script = (
        "import signal, time, perfci.cli as c, perfci.cli.lazy\n"
        "import click\n"
        "@c.cli.command('sleep')\n"
        "def sleep():\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "perfci.cli.lazy._HELP['sleep'] = 'x'\n"
        "raise SystemExit(c.main(['sleep']))"
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            time.sleep(0.1)
            child.send_signal(number)
            assert child.wait(timeout=20) == 130


def test_ctrl_c_is_not_lost_where_python_drops_exceptions() -> None:
    """As in the callbacks of dying objects, of which a database session has many: the measuring would go on."""
    script = (
        "import signal, sys, time, click, perfci.cli as c\n"
        "class Dying:\n"
        "    def __del__(self):\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "        time.sleep(0)\n"
        "@c.cli.command('sleep')\n"
        "def sleep():\n    Dying()\n    print('goes on', flush=True)\n    time.sleep(20)\n"
        "c.lazy._HELP['sleep'] = 'x'\n"
        "raise SystemExit(c.main(['sleep']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=15)
    assert done.returncode == 130
    assert done.stdout == "goes on\n"
    assert "Traceback" not in done.stderr


def shell(words: str, after: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """perfci in a shell that does something to its streams; the exit code is that of perfci."""
    command = f"{sys.executable} -m perfci {words} {after}; exit ${{PIPESTATUS[0]}}"
    return subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("words", "code"), [("config schema", 0), ("import nosuch.sqlite -w x -r y", 2)])
@pytest.mark.parametrize("after", ["| true", "| head -c 1 >/dev/null", ">&-", "2>&-", ">&- 2>&- <&-"])
def test_what_becomes_of_the_streams_is_not_the_verdict(tmp_path: Path, words: str, code: int, after: str) -> None:
    done = shell(words, after, tmp_path)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_the_code_of_a_verdict_outlives_its_reader(tmp_path: Path) -> None:
    """The reader is gone before anything is written; the other files of the comparison are written all the same."""
    for name, label in (("h200_gpt_item", "after"), ("h200_gpt_ddp", "before")):
        assert perfci("import", trace(name), "-w", "gpt", "-r", label, cwd=tmp_path).returncode == 0
    words = "compare before..after -w gpt"
    plain = shell(words, "", tmp_path)
    assert plain.returncode in (3, 4)
    left = shell(f"{words} -f text -o - -f json -o later.json", "> >(exec true)", tmp_path)
    assert left.returncode == plain.returncode, left.stderr
    assert json.loads((tmp_path / "later.json").read_text())["exit_code"] == plain.returncode
    closed = shell(words, ">&-", tmp_path)
    assert closed.returncode == plain.returncode, closed.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_behind_stdout_is_told(tmp_path: Path) -> None:
    done = shell("config schema", ">/dev/full", tmp_path)
    assert done.returncode == 2
    assert "stdout cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_revisions_that_are_empty_and_minutes_that_are_none(tmp_path: Path) -> None:
    for words in (["compare", ""], ["compare", "a..b", "--max-minutes", "nan"]):
        done = perfci(*words, cwd=tmp_path)
        assert done.returncode == 2
        assert "wanted" in done.stderr


@pytest.mark.parametrize("command", ["run", "calibrate"])
def test_a_number_of_launches_that_no_one_means_is_refused(tmp_path: Path, command: str) -> None:
    done = perfci(command, "-n", "1001", cwd=tmp_path)
    assert done.returncode == 2
    assert "1000" in done.stderr


def test_a_folder_with_any_letters_in_any_locale(tmp_path: Path) -> None:
    folder = tmp_path / "Größe-測定"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "perfci", "import", trace("h200_gpt_item"), "-w", "gpt", "-r", "a"],
        cwd=folder,
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", [["-w", "x", "-r", ""], ["-w", "x", "-r", "a\nb"], ["-w", " ", "-r", "x"]])
def test_impossible_names_of_imports_are_refused(tmp_path: Path, arguments: list[str]) -> None:
    done = perfci("import", trace("h200_gpt_item"), *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_wrong_nsys_is_an_error_and_no_other_collector(tmp_path: Path) -> None:
    for arguments in (
        ["init", "--quiet"],
        ["-c", "user.name=a", "-c", "user.email=a@b.invalid", "commit", "-qm", "x", "--allow-empty"],
    ):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    done = perfci("run", "--", "python", "train.py", cwd=tmp_path, PERFCI_NSYS="/nope")
    assert done.returncode == 5, done.stderr
    assert "/nope" in done.stderr


def test_accepting_without_a_workload_is_said(tmp_path: Path) -> None:
    done = perfci("baseline", "accept", "x", "--reason", "y", "--db", "sqlite:///x.db", cwd=tmp_path)
    assert done.returncode == 2
    assert "-w" in done.stderr


READING = (
    ("compare", "a..b"),
    ("history", "-w", "gpt"),
    ("baseline", "accept", "a", "-w", "gpt", "--reason", "r"),
)


def in_git(folder: Path) -> Path:
    for words in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "x", "--allow-empty"],
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("words", READING)
def test_a_reading_command_makes_no_database_and_refuses_a_wrong_name_of_one(tmp_path: Path, words: tuple[str]) -> None:
    in_git(tmp_path)
    done = perfci(*words, "--db", "sqlite:///no/x.db", cwd=tmp_path)
    assert done.returncode == 6, done.stderr
    assert f"there is no database {tmp_path}/no/x.db" in done.stderr
    assert "do: mend --db" in done.stderr
    assert not (tmp_path / "no").exists()
    by_variable = perfci(*words, cwd=tmp_path, PERFCI_DATABASE_URL="sqlite:///no/x.db")
    assert by_variable.returncode == 6, by_variable.stderr


def test_where_nothing_was_stored_yet_a_reading_command_says_how_and_makes_nothing(tmp_path: Path) -> None:
    in_git(tmp_path)
    for words, code, said in (
        (("compare", "HEAD..HEAD"), 2, "nothing to compare"),
        (("history", "-w", "gpt"), 5, "perfci run measures one"),
        (("baseline", "accept", "HEAD", "-w", "gpt", "--reason", "r"), 5, "do: perfci run HEAD -w gpt"),
    ):
        done = perfci(*words, cwd=tmp_path)
        assert done.returncode == code
        assert said in done.stderr
    assert not (tmp_path / ".perfci").exists()


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder, outside of git, with one imported launch of the workload gpt, labelled a."""
    folder = tmp_path_factory.mktemp("stored")
    done = perfci("import", trace("h200_gpt_item"), "-w", "gpt", "-r", "a", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_compare_shows_the_links_it_was_given(stored: Path, tmp_path: Path) -> None:
    files = [tmp_path / f"report.{suffix}" for suffix in ("txt", "md", "json", "html")]
    links = ("--link", "job=https://ci.example/7?a=b", "--link", " nightly =http://x.example/")
    perfci("compare", "a..a", *links, *(word for file in files for word in ("-o", str(file))), cwd=stored)
    for file in files:
        text = file.read_text()
        assert "https://ci.example/7?a=b" in text
        assert "http://x.example/" in text
    assert json.loads(files[2].read_text())["links"][0] == {"title": "job", "url": "https://ci.example/7?a=b"}
    perfci("compare", "a..a", *links, cwd=stored)
    (page,) = (stored / ".perfci" / "reports").iterdir()
    assert "https://ci.example/7?a=b" in page.read_text()


def test_a_page_that_was_asked_for_is_the_only_one(stored: Path, tmp_path: Path) -> None:
    database = ("--db", f"sqlite:///{stored}/.perfci/perfci.db")
    done = perfci("compare", "a..a", *database, "-o", "page.html", cwd=tmp_path)
    assert [line for line in done.stderr.splitlines() if "page" in line] == [f"report page: {tmp_path}/page.html"]
    assert not (tmp_path / ".perfci").exists()
    done = perfci("compare", "a..a", *database, cwd=tmp_path)
    (page,) = (tmp_path / ".perfci" / "reports").iterdir()
    assert f"report page: {page}" in done.stderr


def test_a_wrong_link_is_refused_before_anything_is_measured(stored: Path) -> None:
    done = perfci("compare", "a..a", "--link", "job=javascript:alert(1)", cwd=stored)
    assert done.returncode == 2
    assert "TITLE=URL" in done.stderr
    assert done.stdout == ""


def test_a_report_page_that_cannot_be_written_does_not_change_the_exit_code(stored: Path, tmp_path: Path) -> None:
    database = ("--db", f"sqlite:///{stored}/.perfci/perfci.db", "-f", "json")
    (tmp_path / ".perfci").mkdir()
    (tmp_path / ".perfci" / "reports").write_text("a file where the folder should be: no user may write below it")
    done = perfci("compare", "a..a", *database, cwd=tmp_path)
    assert done.returncode == json.loads(done.stdout)["exit_code"] == 5
    (line,) = [line for line in done.stderr.splitlines() if "report" in line]
    assert line.startswith(f"perfci: no report page: {tmp_path}/.perfci/reports/")
    assert "cannot be written" in line
    asked = perfci("compare", "a..a", *database[:2], "-o", ".perfci/reports/x.html", cwd=tmp_path)
    assert asked.returncode == 2
    assert "give another -o FILE" in asked.stderr


def test_a_mistyped_workload_is_told_with_the_names_there_are(stored: Path, tmp_path: Path) -> None:
    done = perfci("compare", "a..a", "-w", "gtp", cwd=stored)
    assert done.returncode == 2
    assert "no workload matches 'gtp'" in done.stderr
    assert "wanted: one of: gpt" in done.stderr
    in_git(tmp_path)
    done = perfci("run", "--", "./träin", cwd=tmp_path)
    assert done.returncode == 2
    assert "'träin' cannot be the name of a workload" in done.stderr
    assert "do: give one with -w NAME" in done.stderr


def test_many_traces_are_read_in_several_processes_and_a_bad_one_stores_nothing(tmp_path: Path) -> None:
    names = ("h200_transformer", "h200_gpt_item", "h200_gpt_ddp", "h200_gpt_cuda_graph_granularity_node")
    good = [trace(name) for name in names]
    (tmp_path / "bad.sqlite").write_bytes(b"no database")
    failed = perfci("import", *good, "bad.sqlite", "-w", "x", "-r", "r", "--db", "sqlite:///x.db", cwd=tmp_path)
    assert failed.returncode == 5, failed.stderr
    assert "bad.sqlite" in failed.stderr
    assert "Traceback" not in failed.stderr
    done = perfci("import", *good, "-w", "x", "-r", "r", "--db", "sqlite:///x.db", cwd=tmp_path)
    assert done.stdout.startswith("imported 4 runs"), done.stderr
