"""Run the tests that need a GPU, and keep the outcome with the machine and the code that it holds for.

    python -m research.gpu_tests --out research/results/gpu_tests.json

The native core need not be built. Beside the usual provenance, the file has a digest of the tests, the outcome of each
and the seconds that it took. The exit status is pytest's; where there is no GPU nothing is written, because all would
be skipped.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from hamtarget.evaluation.provenance import provenance, source_digest, write_json

ROOT = Path(__file__).resolve().parent.parent
TESTS = "tests/gpu"
# Of the three phases of a test, only an error of the first or last counts beside the call.
_CALL = "call"


class Outcomes:
    """A plugin of pytest that notes the outcome of each test."""

    def __init__(self) -> None:
        self.by_test: dict[str, str] = {}
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a phase of a test: a skip or an error before or after the call replaces its outcome."""
        if report.when == _CALL or report.outcome != "passed":
            error = report.when != _CALL and report.outcome == "failed"
            self.by_test[report.nodeid] = "error" if error else report.outcome
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration


def main() -> int:
    """Run the tests, write the outcome, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "research/results/gpu_tests.json", help="file to write")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("there is no GPU on this machine: every test would be skipped", file=sys.stderr)
        return 2
    outcomes = Outcomes()
    started = time.perf_counter()
    status = int(pytest.main([str(ROOT / TESTS), "-q"], plugins=[outcomes]))
    files = {path.name: path for path in sorted((ROOT / TESTS).glob("*.py"))}
    write_json(
        given.out,
        {
            "counts": dict(Counter(outcomes.by_test.values())),
            "exit_status": status,
            "outcomes": {
                name: {"outcome": outcome, "seconds": round(outcomes.seconds[name], 3)}
                for name, outcome in outcomes.by_test.items()
            },
            "provenance": provenance(seed=0),
            "pytest": pytest.__version__,
            "seconds": round(time.perf_counter() - started, 1),
            "tests": {"command": f"python -m pytest {TESTS} -q", **source_digest(files)},
        },
    )
    return status


if __name__ == "__main__":
    raise SystemExit(main())
