"""The command as a shell sees it: pipes, signals, exit codes; never a traceback."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from hamtarget import Store
from hamtarget.encoders import open_encoder

HAMTARGET = str(Path(sys.executable).parent / "hamtarget")
pytestmark = pytest.mark.slow


def shell(script, **variables):
    """What a shell says to a script in which $H is the command."""
    environment = {**os.environ, "H": HAMTARGET, **{name: str(value) for name, value in variables.items()}}
    # The exit code of a pipe is then that of the first part that fails.
    return subprocess.run(["bash", "-c", f"set -o pipefail; {script}"], capture_output=True, text=True, env=environment)


# Tests that run in the background of a shell ignore the signal, and so would the command.
LISTEN = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"


def start(*arguments, **options):
    """The command, running, and ready to be interrupted."""
    return subprocess.Popen([sys.executable, "-c", LISTEN, HAMTARGET, *map(str, arguments)], text=True, **options)


def wait_for(condition, process):
    """Returns once `condition` holds, or fails where the process ends or a minute passes before."""
    for _ in range(6000):
        if condition():
            return
        assert process.poll() is None, "the command has ended"
        time.sleep(0.01)
    raise AssertionError("a minute passed")


def interrupt(process):
    """The last line on the standard error of a process that is told to stop."""
    process.send_signal(signal.SIGINT)
    try:
        errors = process.communicate(timeout=60)[1]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    return errors.splitlines()[-1]


def test_encode_into_add_into_search(trained, photos, tmp_path):
    done = shell(
        '"$H" encode "$MODEL" "$PHOTOS" --json | "$H" add "$STORE" - && '
        '"$H" encode "$MODEL" "$PHOTOS" --json | head -n 3 | "$H" search "$STORE" - --nearest 1 --json',
        MODEL=trained.model,
        PHOTOS=photos,
        STORE=tmp_path / "store",
    )
    # `head` ends before `encode` does: that alone may count as failure in the pipe.
    assert "Traceback" not in done.stderr
    first, *found = done.stdout.splitlines()
    assert first == f"{tmp_path / 'store'}: 36 stored, 0 skipped; 36 in all"
    assert [json.loads(line)["query"] for line in found] == [f"bars/0{k}.png" for k in range(3)]
    assert all(json.loads(line)["hits"][0]["distance"] == 0 for line in found)


def test_paths_on_the_standard_input(trained, photos):
    done = shell(
        'find "$PHOTOS" -name "*.png" | sort | "$H" encode "$MODEL" | sort | uniq -c',
        MODEL=trained.model,
        PHOTOS=photos,
    )
    assert done.returncode == 0, done.stderr
    assert sum(int(line.split()[0]) for line in done.stdout.splitlines()) == 36


def test_a_reader_that_leaves_early(tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((3000, 1), dtype=np.uint8))
    done = shell(
        '"$H" add "$STORE" "$ROWS" && "$H" dups "$STORE" --radius 0 | head -n 2',
        STORE=tmp_path / "store",
        ROWS=tmp_path / "rows.npy",
    )
    assert "Traceback" not in done.stderr
    assert len(done.stdout.splitlines()) == 3


def test_help_is_quick_to_come():
    script = (
        "import sys; from hamtarget import cli\n"
        "try: cli.start()\n"
        "except SystemExit: pass\n"
        "print([name for name in ('torch', 'numpy', 'onnxruntime', 'sqlite3', 'PIL') if name in sys.modules])"
    )
    for arguments in (["--help"], ["train", "--help"], ["--version"]):
        done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]", arguments


def test_torch_is_not_imported_where_an_export_is_enough(trained, photos):
    done = shell(
        '"$PYTHON" -X importtime "$H" encode "$MODEL" "$PHOTO"',
        PYTHON=sys.executable,
        MODEL=trained.model,
        PHOTO=photos / "disc" / "00.png",
    )
    assert done.returncode == 0, done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "onnxruntime" in imported
    assert "torch" not in imported


def test_completion_of_the_shell():
    done = shell('"$H" --show-completion bash')
    assert done.returncode == 0
    assert "_HAMTARGET_COMPLETE" in done.stdout
    environment = {"_HAMTARGET_COMPLETE": "complete_bash", "COMP_WORDS": "hamtarget ver", "COMP_CWORD": "1"}
    assert shell('"$H"', **environment).stdout.split() == ["verify"]


def test_ctrl_c_while_adding(tmp_path):
    """What was put before stays, is whole, and is skipped when the same command is run again."""
    store = tmp_path / "store"
    rows = np.random.default_rng(0).integers(0, 256, (300, 8), dtype=np.uint8)
    lines = [json.dumps({"id": k, "code": row.tobytes().hex()}) + "\n" for k, row in enumerate(rows)]
    arguments = ("add", store, "-", "--batch", "100")
    process = start(*arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.writelines(lines[:250])
    process.stdin.flush()

    def stored():
        if not (store / "store.db").exists():
            return False
        with Store.open(store, read_only=True) as opened:
            return len(opened) == 200

    wait_for(stored, process)
    assert interrupt(process) == "hamtarget: interrupted; 200 are stored, 200 in all: the same command goes on"
    assert shell('"$H" verify "$STORE"', STORE=store).stdout == f"{store}: whole (store, 200 rows)\n"
    done = subprocess.run([HAMTARGET, *map(str, arguments)], input="".join(lines), capture_output=True, text=True)
    assert done.stdout == f"{store}: 100 stored, 200 skipped; 300 in all\n"
    with Store.open(store, read_only=True) as opened:
        assert {item.id: np.asarray(item.code).tolist() for item in opened.scan()} == dict(enumerate(rows.tolist()))


def test_ctrl_c_while_training(tmp_path):
    """No half model is left, and the same command goes on and ends."""
    rows = np.random.default_rng(0).normal(size=(400, 16)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", vectors=rows, labels=np.arange(400) % 5)
    model = tmp_path / "model"
    settings = ["--width", "16", "--batch-size", "64", "--bits", "32", "--device", "cpu", "--steps", "300"]
    arguments = ("train", tmp_path / "rows.npz", "--model", model, *settings)
    process = start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for((model / "checkpoint.safetensors").exists, process)
    assert interrupt(process) == f"hamtarget: interrupted; the same command goes on from {model}/checkpoint.safetensors"
    # A file that was being written is not left behind, nor taken for a model.
    assert [path.name for path in model.iterdir()] == ["checkpoint.safetensors"]
    done = subprocess.run([HAMTARGET, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"in 300 steps; loss \d", done.stdout)
    assert open_encoder(model).n_bits == 32


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["info"], 0),
        (["info", "/nowhere"], 2),
        (["verify", "/nowhere"], 2),
        (["train", "/nowhere", "--model", "/dev/null/model"], 2),
        (["encode", "/nowhere", "/nowhere"], 2),
        (["add", "/dev/null/store", "/nowhere"], 2),
        (["search", "/nowhere", "00"], 2),
        (["plan", "many"], 2),
        (["search"], 2),
    ],
)
def test_exit_codes(arguments, code):
    done = subprocess.run([HAMTARGET, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert bool(done.stderr) == bool(code)


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc/self").exists(), reason="no folder that cannot be written")
def test_a_place_that_cannot_be_written(trained, photos):
    done = shell('"$H" encode "$MODEL" "$PHOTOS" --out /proc/self/codes.npy', MODEL=trained.model, PHOTOS=photos)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("hamtarget: /proc/self")
