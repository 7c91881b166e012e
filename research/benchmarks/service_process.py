"""A service in processes of its own, of this checkout or of another one."""

from __future__ import annotations

import http.client
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

_START = "from hamtarget.cli import start; start()"
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ServedStore:
    """A store that is served while the block runs.

    Args:
        root: checkout with an installed environment in `.venv`.
        path: folder of the store.
        options: further options of `hamtarget serve`.
        writable: True if changes are allowed; only one process at a time can serve a folder so.
    """

    token = "a-token-for-the-benchmark"

    def __init__(self, root: Path, path: Path, options: Sequence[str] = (), *, writable: bool = True) -> None:
        python = root.resolve() / ".venv" / "bin" / "python"
        options = [*(["--writable"] if writable else []), *options]
        command = [str(python), "-c", _START, "serve", str(path), "--port", "0", *options]
        environment = {**os.environ, "HAMTARGET_TOKEN": self.token}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root, env=environment)
        self.exit_code: int | None = None
        self.address = ""

    def __enter__(self) -> ServedStore:
        if self._process.stdout is None:
            raise RuntimeError("the service has no output")
        self.address = self._process.stdout.readline().split()[2]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self.exit_code = self._process.wait(60)
        finally:
            self._process.kill()

    def connect(self) -> http.client.HTTPConnection:
        """Open a connection to the service."""
        parts = urlsplit(self.address)
        return http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=60)

    def processes(self) -> list[int]:
        """Return the numbers of all processes of the service."""
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *(int(child) for child in children)]

    def cpu_seconds(self) -> float:
        """Return the time that the processors have spent on all processes of the service."""
        spent = 0
        for pid in self.processes():
            numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            spent += int(numbers[11]) + int(numbers[12])
        return spent / _TICKS

    def resident_bytes(self) -> int:
        """Return the memory of all processes of the service, what they share counted in each."""
        return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.processes()) * _PAGE

    def private_bytes(self) -> int:
        """Return the memory that the processes of the service have each for itself."""
        total = 0
        for pid in self.processes():
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
        return total * 1024
