"""How far long work is: a bar on a terminal, a few plain lines in a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from hamtarget.protocol import Progress

# Where there is no terminal, a line is written each time another tenth is done.
_LINES = 10


@contextmanager
def progress_on_stderr(what: str) -> Iterator[Progress]:
    """A function to pass as `progress=`; it tells on the standard error how much of `what` is done."""
    if not sys.stderr.isatty():
        yield _Lines(what)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        # The total comes with the first report.
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


@contextmanager
def named_progress_on_stderr() -> Iterator[Callable[[str, int, int], None]]:
    """A function of (what, done, total) that tells on the standard error how far each of several works is."""
    with ExitStack() as stack:
        works: dict[str, Progress] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in works:
                # One bar at a time: the one before is finished, or given up.
                stack.close()
                works[what] = stack.enter_context(progress_on_stderr(what))
            works[what](done, total)

        yield tell


class _Lines:
    """Writes a line for each tenth."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._told = 0

    def __call__(self, done: int, total: int) -> None:
        tenth = _LINES * done // max(1, total)
        if tenth > self._told:
            self._told = tenth
            sys.stderr.write(f"{self.what}: {done:,} of {total:,}\n")
            sys.stderr.flush()
