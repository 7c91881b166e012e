"""The provenance of a result (command, commit, machine, versions), and result files written atomically."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import hamtarget
from hamtarget._files import write_atomically
from hamtarget.errors import InputError

_GIT_SECONDS = 20
# A run writes results but does not depend on them: a new result does not make the tree dirty for the next run.
_RESULTS = "research/results"
# Whose modules make results.
_PACKAGES = ("hamtarget", "research")
_DIGEST_DIGITS = 16


def provenance(*, seed: int, command: str | None = None) -> dict[str, Any]:
    """Return what someone needs to repeat a run and to judge its timings, ready for JSON.

    The keys are:

    - `command`.
    - `commit` and `dirty`: of the git repository; both None if the package is in none. If the environment variable
      HAMTARGET_COMMIT is set, it is the commit, and `dirty` is None.
    - `date` in UTC, `machine`, `platform` and `seed`.
    - `source`: a digest of the modules of hamtarget and research that the process has loaded, and of the native core's
      source where it lies beside them; `files` is their number. So the code is known also without a repository.
    - `versions`: None for packages that are not installed.

    No host, user or folder is named.

    Args:
        seed: the seed of the run.
        command: what was typed, as `command_line` gives it; by default this process's own arguments.
    """
    # A copy of the tree on a machine that only computes may lack the history; the variable names its commit.
    commit, dirty = os.environ.get("HAMTARGET_COMMIT"), None
    if not commit:
        commit, dirty = git_state(Path(__file__).parent)
    return {
        "command": command_line(_program(), sys.argv[1:]) if command is None else command,
        "commit": commit,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "dirty": dirty,
        "machine": {"cores": _cores(), "cpu": _cpu(), "gpu": _gpu(), "memory_gib": _memory_gib()},
        "platform": platform.platform(),
        "seed": seed,
        "source": source_digest(_loaded_files()),
        "versions": {
            "hamtarget": hamtarget.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "torch": _installed_version("torch"),
        },
    }


def source_digest(files: Mapping[str, Path]) -> dict[str, Any]:
    """Return a digest of the names and contents of files, whatever their order, and their number."""
    digest = hashlib.sha256()
    for name in sorted(files):
        content = files[name].read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return {"digest": digest.hexdigest()[:_DIGEST_DIGITS], "files": len(files)}


def command_line(program: str, arguments: Sequence[str]) -> str:
    """Return the command as a shell would take it. An absolute path keeps only its last part, to hide home folders."""
    return " ".join([program, *(shlex.quote(_without_folder(argument)) for argument in arguments)])


def git_state(folder: Path) -> tuple[str | None, bool | None]:
    """Return the short commit of the repository that tracks `folder`, and True if its tree differs from that commit.

    Both are None if git is not installed, or tracks nothing in `folder` (an installed package).
    """
    if not _git(folder, "ls-files", "--", "."):
        return None, None
    commit = _git(folder, "rev-parse", "--short", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--", ":(top)", f":(top,exclude){_RESULTS}")
    if commit is None or changes is None:
        return None, None
    return commit, bool(changes)


def write_json(path: str | os.PathLike[str], result: Mapping[str, Any]) -> None:
    """Write `result` to `path` as JSON. If anything fails, the file stays exactly as it was.

    Numpy arrays and numbers become lists and numbers. Missing folders are created.

    Raises:
        InputError: `result` holds something that JSON cannot hold, such as NaN.
    """
    path = Path(path)
    try:
        text = json.dumps(result, allow_nan=False, default=_plain, indent=2, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise InputError(f"the result for {path.name} cannot be written as JSON: {error}") from error
    write_atomically(path, f"{text}\n".encode())


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not a number, text, list or dict")


def _loaded_files() -> dict[str, Path]:
    """Return the files of this project that the process has loaded, and those of the native core, by name."""
    files: dict[str, Path] = {}
    for module in list(sys.modules.values()):
        # `python -m` calls the module that it runs __main__; its own name is in its spec.
        name = getattr(getattr(module, "__spec__", None), "name", None)
        file = getattr(module, "__file__", None)
        if name and file and name.partition(".")[0] in _PACKAGES and file.endswith(".py"):
            files[name] = Path(file)
    native = Path(__file__).parents[3] / "native"
    for pattern in ("*.hpp", "*.cpp"):
        files |= {f"native/{path.relative_to(native).as_posix()}": path for path in native.rglob(pattern)}
    return {name: path for name, path in files.items() if path.is_file()}


def _program() -> str:
    # With `python -m`, argv[0] is the module's full path; its name is in the spec.
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None:
        return f"python -m {spec.name.removesuffix('.__main__')}"
    return Path(sys.argv[0]).name or "python"


def _without_folder(argument: str) -> str:
    option, equals, value = argument.partition("=") if argument.startswith("-") else ("", "", argument)
    if Path(value).is_absolute():
        value = Path(value).name
    return option + equals + value


def _git(folder: Path, *arguments: str) -> str | None:
    """Return the output of git, or None if it fails."""
    try:
        # Without optional locks, asking for the status cannot disturb another git command.
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(folder), *arguments],
            capture_output=True,
            check=True,
            encoding="utf-8",
            timeout=_GIT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cores() -> int | None:
    """Return the number of cores this process may use, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _gpu() -> str | None:
    """Return the name of the first CUDA device if this process uses torch already: importing it takes seconds."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return str(torch.cuda.get_device_name(0))


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        return None


def _installed_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
