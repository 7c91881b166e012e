"""The laboratory's command, `python -m research`."""

import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hamtarget.cli.terminal import bars
from research import __main__ as command
from research.paper import figure2

ROOT = Path(__file__).parents[2]


def run(*arguments):
    return CliRunner().invoke(command.app, list(arguments))


def test_every_verb_has_help_with_an_example():
    verbs = typer.main.get_command(command.app).commands
    assert {"table1", "table2", "figure2", "figure3", "figure4"} <= set(verbs)
    for name in verbs:
        result = run(name, "--help")
        assert result.exit_code == 0
        assert f"Example: python -m research {name} " in result.output


@pytest.fixture
def talkative(monkeypatch):
    """Report the progress of the shortest work, too."""
    monkeypatch.setattr(bars, "_QUIET_SECONDS", 0.0)


@pytest.mark.usefixtures("talkative")
def test_figure2(tmp_path):
    result = run("figure2", "--out", str(tmp_path / "new"), "--trials", "1000", "--seed", "3")
    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "new" / "figure2.json").read_text())
    assert [each["seed"] for each in written["distributions"]] == [3, 3]
    assert (tmp_path / "new" / "figure2.png").read_bytes().startswith(b"\x89PNG")
    wanted = [figure2.distance_distribution(n_bits, trials=1000, seed=3) for n_bits in figure2.N_BITS]
    assert result.stdout == figure2.table(wanted)
    assert re.search(r"^Drawing vectors: 2,000 of 2,000(, [\d,.]+/s)?$", result.stderr, re.MULTILINE)


def test_figure2_has_the_defaults_of_the_module():
    assert inspect.signature(command.figure2).parameters["trials"].default == figure2.TRIALS


@pytest.mark.slow
def test_a_folder_that_cannot_be_made_is_one_line():
    done = subprocess.run(
        [sys.executable, "-m", "research", "figure2", "--trials", "10", "--out", "/dev/null/x"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "hamtarget: /dev/null/x: Not a directory"
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the time that a process has used is not in /proc")
def test_ctrl_c(tmp_path):
    # Tests that run in the background of a shell ignore the signal, and so would the command.
    listen = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    started = [sys.executable, "-c", listen, sys.executable, "-m", "research", "figure2"]
    arguments = ["--out", tmp_path / "out", "--trials", "1000000000"]
    process = subprocess.Popen([*started, *arguments], stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        while _seconds_used(process.pid) < 2:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "hamtarget: interrupted"
    assert "Traceback" not in errors
    assert not (tmp_path / "out").exists()


def _seconds_used(pid):
    """Return the time of a core that a process has used; after two seconds the command is long past its imports."""
    user = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11]
    return int(user) / os.sysconf("SC_CLK_TCK")
