"""Progress of long work: a bar on a terminal, a few plain lines in a log."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

# Where there is no terminal, a line is written each time another tenth is done ...
_LINES = 10
# ... or, where the total is not known, each time so many seconds have passed ...
_SECONDS = 5.0
# ... and at the latest after so many, also while no work reports.
_SILENT_SECONDS = 30.0
# Work that takes no longer than this is not worth a line.
_QUIET_SECONDS = 1.0


class Telling(Protocol):
    """A function to pass as `progress=`; the total is None where it is not known."""

    def __call__(self, done: int, total: int | None, /, note: str = "") -> None:
        """Show how much is done, of how much, with a note."""


class TellingOf(Protocol):
    """A function of several works; `partial(tell, "Reading")` can be passed as `progress=`."""

    def __call__(self, what: str, done: int, total: int | None, /, note: str = "") -> None:
        """Show how much of a work is done, of how much, with a note."""


@contextmanager
def progress_on_stderr(what: str) -> Iterator[Telling]:
    """Yield a function to pass as `progress=`; it shows on the standard error how much of `what` is done.

    It is never silent for long: where the work reports nothing, it says how long the work has taken so far.
    """
    if not sys.stderr.isatty():
        lines = _Lines(what)
        with _repeated(lines.still_working):
            yield lines
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    bars = Bars(*columns, console=Console(stderr=True), transient=True)
    try:
        # A bar counts the seconds by itself, once it is shown.
        with _repeated(bars.start):
            yield _Bar(bars, what)
    finally:
        bars.stop()


@contextmanager
def named_progress_on_stderr() -> Iterator[TellingOf]:
    """Yield a function of (what, done, total) that shows on the standard error how far each of several works is."""
    with ExitStack() as stack:
        works: dict[str, Telling] = {}

        def tell(what: str, done: int, total: int | None, /, note: str = "") -> None:
            if what not in works:
                # One bar at a time: the one before is finished, or given up.
                stack.close()
                works[what] = stack.enter_context(progress_on_stderr(what))
            works[what](done, total, note=note)

        yield tell


@contextmanager
def _repeated(call: Callable[[], object]) -> Iterator[None]:
    """Call a function every few seconds, from another thread, until the block ends."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(_SILENT_SECONDS / 3):
            call()

    thread = threading.Thread(target=repeat, name="hamtarget-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class _Rate:
    """Rate per second since the first report, so that resumed work does not count as done now."""

    def __init__(self) -> None:
        self._began: tuple[float, int] | None = None
        self._per_second = 0.0

    def __call__(self, done: int) -> str:
        """Note how much is done, and return the rate as text."""
        now = time.monotonic()
        if self._began is None:
            self._began = now, done
        seconds, count = now - self._began[0], done - self._began[1]
        if seconds <= 0 or count <= 0:
            return ""
        self._per_second = count / seconds
        return f"{self._per_second:,.0f}/s" if count >= 10 * seconds else f"{self._per_second:.2g}/s"

    def time_left(self, to_do: int) -> str:
        """Return how long the rest will take at this rate, as text; nothing where that is not known."""
        if to_do <= 0 or not self._per_second:
            return ""
        seconds = to_do / self._per_second
        for unit, length in (("h", 3600), ("min", 60)):
            if seconds >= 2 * length:
                return f"{seconds / length:,.0f} {unit} left"
        return f"{seconds:.0f} s left"


class _Bar:
    """A bar of rich that appears with the first report: work that was not needed shows none."""

    def __init__(self, bars: Bars, what: str) -> None:
        self._bars = bars
        self._rate = _Rate()
        # The total comes with the first report.
        self._task = bars.add_task(what, total=None, rate="", note="")

    def __call__(self, done: int, total: int | None, /, note: str = "") -> None:
        self._bars.start()
        self._bars.update(self._task, completed=done, total=total, rate=self._rate(done), note=note)


class _Lines:
    """Lines in a log: one for each tenth, or one every few seconds."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._rate = _Rate()
        self._told = 0
        self._last = ""
        self._began = self._told_at = time.monotonic()

    def __call__(self, done: int, total: int | None, /, note: str = "") -> None:
        rate, now = self._rate(done), time.monotonic()
        text = f"{done:,}" if total is None else f"{done:,} of {total:,}"
        left = "" if total is None else self._rate.time_left(total - done)
        self._last = ", ".join(filter(None, (text, rate, left, note)))
        if now < self._began + _QUIET_SECONDS:
            return
        silent = now - self._told_at
        tenth = 0 if total is None else _LINES * done // max(1, total)
        if tenth > self._told or silent >= (_SECONDS if total is None else _SILENT_SECONDS):
            self._told = max(tenth, self._told)
            self._write(self._last)

    def still_working(self) -> None:
        """Write a line if none was written for long."""
        now = time.monotonic()
        if now >= self._told_at + _SILENT_SECONDS:
            self._write(", ".join(filter(None, (self._last, f"{now - self._began:.0f} s so far"))))

    def _write(self, text: str) -> None:
        self._told_at = time.monotonic()
        sys.stderr.write(f"{self.what}: {text}\n")
        sys.stderr.flush()
