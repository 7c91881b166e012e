"""A store whose writer is killed at any moment holds all that was acknowledged, and nothing else.

HAMTARGET_KILLS sets how often; `make soak` kills 1,000 times.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KILLS = int(os.environ.get("HAMTARGET_KILLS", "50"))


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_and_nothing_else_appears(tmp_path):
    command = [sys.executable, str(HERE / "killed_stores.py"), str(tmp_path), str(KILLS), "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300 + 3 * KILLS, check=False)
    assert done.returncode == 0, done.stderr
    under_way, found_done, while_opening, n_changes = map(int, done.stdout.split())
    # Else nothing was interrupted, and the test shows nothing.
    assert under_way > KILLS / 4
    assert n_changes > KILLS
    assert found_done + while_opening <= KILLS
