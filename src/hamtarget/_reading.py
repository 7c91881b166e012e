"""Reading files that may be forged: how much memory they may take, how long a line may be, why one cannot be opened."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from hamtarget.errors import CorruptFileError, InputError

MAX_BYTES_VARIABLE = "HAMTARGET_MAX_BYTES"
"""Environment variable: bytes that an array of a file may take in memory, where a call does not say it."""

MAX_LINE = 1 << 26
"""Characters of a line: a vector of a million numbers has fewer."""

# Without a system that tells how much memory it has.
_ASSUMED_MEMORY = 4 << 30
_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def max_bytes_of(chosen: int | None) -> int:
    """Return how many bytes an array of a file may take in memory: those chosen, or half of the memory there is.

    The environment variable HAMTARGET_MAX_BYTES takes the place of the half.

    Raises:
        InputError: the number is not a positive integer.
    """
    given: Any = os.environ.get(MAX_BYTES_VARIABLE) if chosen is None else chosen
    if given is None:
        return _memory() // 2
    name = "max_bytes" if chosen is not None else MAX_BYTES_VARIABLE
    try:
        n_bytes = int(given)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is {given!r}; expected a number of bytes") from error
    if n_bytes < 1:
        raise InputError(f"{name} is {n_bytes}; expected 1 or more")
    return n_bytes


def check_bytes(n_bytes: int, max_bytes: int, *, where: str) -> None:
    """Check that something of a file may be read into memory.

    Raises:
        CorruptFileError: it takes more bytes than it may.
    """
    if n_bytes > max_bytes:
        raise CorruptFileError(
            f"{where} takes {n_bytes:,} bytes in memory; at most {max_bytes:,} are allowed: if the file is what you "
            f"expect, and memory suffices, pass max_bytes= or set {MAX_BYTES_VARIABLE}"
        )


def reason_of(error: OSError) -> str:
    """Return in words why the system refused; of too many open files, with the limit that can be raised."""
    if error.errno == errno.EMFILE:
        return f"this process has too many open files{_open_files()}; close some, or raise the limit (ulimit -n)"
    if error.errno == errno.ENFILE:
        return "the system has too many open files; close some, or raise its limit (sysctl fs.file-max)"
    return error.strerror or str(error)


def lines_of(stream: TextIO, *, where: str, max_line: int = MAX_LINE) -> Iterator[str]:
    """Yield the lines of a file, with their ends; one that does not end is not read to the memory's end.

    Raises:
        CorruptFileError: a line is longer than `max_line` characters.
    """
    number = 0
    while line := stream.readline(max_line + 1):
        number += 1
        if len(line) > max_line:
            raise CorruptFileError(
                f"{where}, line {number:,}: longer than {max_line:,} characters; expected lines of text"
            )
        yield line


def parse_json(text: str | bytes, *, where: str) -> Any:
    """Return what a text of JSON says.

    Raises:
        CorruptFileError: it is no JSON, nested too deeply, or holds a number of thousands of digits.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise CorruptFileError(f"{where}: the JSON is nested too deeply; expected a few levels") from None
    except ValueError as error:
        raise CorruptFileError(f"{where}: not JSON ({error})") from error


def _memory() -> int:
    """Return the bytes of memory that this process may have."""
    found = [_ASSUMED_MEMORY]
    with suppress(AttributeError, OSError, ValueError):
        found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in _CGROUPS:
        # A group without a limit says "max".
        with suppress(OSError, ValueError):
            found.append(int(Path(path).read_text(encoding="ascii")))
    return min(found)


def _open_files() -> str:
    with suppress(ImportError, OSError, ValueError):
        import resource

        return f": {resource.getrlimit(resource.RLIMIT_NOFILE)[0]:,} are allowed"
    return ""
