"""Scripts run on a small disk of their own, to fill it."""

import shutil
import subprocess
import sys

import pytest


def run_on_small_disk(tmp_path, size, script):
    """What a Python script prints on a real file system of `size`, mounted where only it can see it.

    Args:
        tmp_path: for the script and the mount.
        size: as of `mount`: "8m".
        script: its text, of the folder that the disk is mounted on.
    """
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size={size} tmpfs '{disk}'"
    inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if not shutil.which("unshare") or subprocess.run([*inside, mount], capture_output=True, check=False).returncode:
        pytest.skip("this system lets nobody mount a file system for a test")
    path = tmp_path / "script.py"
    path.write_text(script(str(disk)))
    command = [*inside, f"{mount} && '{sys.executable}' '{path}'"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
