"""The command: verbs do what they say; errors are one line and an exit code."""

import io
import subprocess
import sys
from pathlib import Path
from time import sleep

import pytest
import typer
from typer.testing import CliRunner

import hamtarget
from hamtarget import cli
from hamtarget.cli.main import app
from hamtarget.cli.terminal import bars
from hamtarget.cli.terminal.bars import progress_on_stderr
from hamtarget.cli.terminal.failures import CommandGroup
from hamtarget.errors import FileError, InputError, MissingExtraError


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_version():
    assert run("--version").output == f"hamtarget {hamtarget.__version__}\n"


def verbs(group, path=()):
    """Every command with what one types to reach it."""
    for name, command in getattr(group, "commands", {}).items():
        yield (*path, name), command
        yield from verbs(command, (*path, name))


def test_every_verb_has_help_with_an_example():
    found = dict(verbs(typer.main.get_command(app)))
    assert ("search",) in found
    for path, command in found.items():
        result = run(*path, "--help")
        assert result.exit_code == 0
        if not hasattr(command, "commands"):
            assert f"Example: hamtarget {' '.join(path)} " in result.output


def test_the_help_fits_on_one_screen():
    lines = run("--help").output.splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    assert not any(line.endswith("...") for line in lines[1:])
    verbs_by_group = {}
    heading = None
    for line in lines[2:]:
        if not line.startswith("Begin") and line:
            heading = line[:5].strip() or heading
            verbs_by_group.setdefault(heading, []).append(line[5:].split()[0])
    assert verbs_by_group == {
        "Learn": ["train", "encode", "evaluate"],
        "Store": ["add", "sync", "search", "match", "dups", "groups", "get", "delete", "backup", "restore", "repair"],
        "Look": ["info", "verify", "plan", "calibrate"],
        "Serve": ["serve", "demo", "token"],
    }


def test_nothing_typed_shows_the_help():
    assert "Usage: " in run().output


@pytest.mark.parametrize("arguments", [["search"], ["nothing"], ["--nothing"]])
def test_wrong_usage(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InputError("k is 0; expected 1"), 2, "hamtarget: k is 0; expected 1\n"),
        (FileError("some\nfile"), 2, "hamtarget: some file\n"),
        (MissingExtraError("h5py is not installed"), 2, "hamtarget: h5py is not installed\n"),
        (PermissionError(13, "Permission denied", "/some/file"), 2, "hamtarget: /some/file: Permission denied\n"),
        (OSError("no space"), 2, "hamtarget: no space\n"),
        (KeyboardInterrupt(), 130, "hamtarget: interrupted\n"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(error, code, line):
    failing = typer.Typer(cls=CommandGroup)

    @failing.command()
    def fail():
        raise error

    @failing.command()
    def other():
        pass

    result = CliRunner().invoke(failing, ["fail"])
    assert (result.exit_code, result.stderr, result.stdout) == (code, line, "")


def test_mistakes_of_the_program_keep_their_traceback():
    failing = typer.Typer(cls=CommandGroup)
    failing.command()(lambda: 1 / 0)
    failing.command("other")(lambda: None)
    assert isinstance(CliRunner().invoke(failing, ["<lambda>"]).exception, ZeroDivisionError)


@pytest.mark.slow
def test_the_installed_command(tmp_path):
    command = Path(sys.executable).parent / "hamtarget"
    done = subprocess.run([command, "info", "/dev/null/x"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("hamtarget: /dev/null/x is not there; expected ")
    assert "Traceback" not in done.stderr


def test_without_typer(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "hamtarget.cli.main")
    with pytest.raises(SystemExit) as end:
        cli.start()
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("hamtarget: typer is not installed; for the command: pip install 'hamtarget[cli]'")
    # Somebody who has installed the bare package and wants copies of pictures needs no second hint.
    assert "'hamtarget[cli,vision,onnx]'" in said
    assert said.count("\n") == 1


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_a_bar_on_a_terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress_on_stderr("Working") as tell:
        for done in range(4):
            tell(done, 3, note="and well")
    assert "Working" in terminal.getvalue()
    assert "and well" in terminal.getvalue()
    assert "\r" in terminal.getvalue() or "\x1b" in terminal.getvalue()


def test_work_that_is_not_needed_shows_no_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress_on_stderr("Working"):
        pass
    assert terminal.getvalue() == ""


class Clock:
    """A clock that stands still unless it is moved."""

    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(bars, "time", clock)
    return clock


def test_progress_is_at_most_ten_lines_in_a_log(capsys, clock):
    with progress_on_stderr("Working") as tell:
        for done in range(1001):
            tell(done, 1000)
            clock.now += 0.1
    lines = capsys.readouterr().err.splitlines()
    left = [f", {seconds} s left" for seconds in range(90, 0, -10)] + [""]
    assert lines == [
        f"Working: {done:,} of 1,000, 10/s{rest}" for done, rest in zip(range(100, 1001, 100), left, strict=True)
    ]


def test_progress_of_nobody_knows_how_much(capsys, clock):
    with progress_on_stderr("Working") as tell:
        for done in range(24):
            tell(done, None, note="half asleep")
            clock.now += 0.5
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["Working: 10, 2/s, half asleep", "Working: 20, 2/s, half asleep"]


def test_short_work_is_not_talked_about(capsys, clock):
    with progress_on_stderr("Working") as tell:
        for done in range(1, 10):
            tell(done, 9)
            clock.now += 0.1
    assert capsys.readouterr().err == ""


def test_the_time_that_is_left_is_told(capsys, clock):
    with progress_on_stderr("Working") as tell:
        for done in (0, 1000, 9000, 99_000):
            tell(done, 100_000)
            clock.now += 100
    lines = capsys.readouterr().err.splitlines()
    # Each tenth, and whenever half a minute has passed.
    assert lines == [
        "Working: 1,000 of 100,000, 10/s, 3 h left",
        "Working: 9,000 of 100,000, 45/s, 34 min left",
        "Working: 99,000 of 100,000, 330/s, 3 s left",
    ]
    with progress_on_stderr("Slow") as tell:
        for done in (0, 20, 40):
            tell(done, 100)
            clock.now += 900
    assert [line.split(", ")[-1] for line in capsys.readouterr().err.splitlines()] == ["60 min left", "45 min left"]


def test_work_that_reports_nothing_is_not_silent(capsys, clock, monkeypatch):
    monkeypatch.setattr(bars, "_SILENT_SECONDS", 0.03)
    with progress_on_stderr("Working") as tell:
        tell(5, 10)
        clock.now += 70
        told = ""
        for _ in range(500):
            told += capsys.readouterr().err
            if told:
                break
            sleep(0.01)
    assert told == "Working: 5 of 10, 70 s so far\n"


def test_resumed_work_is_not_counted_as_fast(capsys, clock):
    with progress_on_stderr("Working") as tell:
        for done in (900, 950, 1000):
            clock.now += 10
            tell(done, 1000)
    assert capsys.readouterr().err.splitlines() == ["Working: 900 of 1,000", "Working: 1,000 of 1,000, 5/s"]
