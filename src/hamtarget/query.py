"""Questions: what is asked with, what is wanted, and what the answer may cost, as plain data.

`Asked` is what is asked with, `Query` says what is wanted, `Work` says what the answer may cost. Every search is these
three, whatever it runs on; the verbs of `hamtarget.searchable` make them from plain arguments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from hamtarget._checks import check_integer, shown
from hamtarget.errors import DtypeError, InputError
from hamtarget.progress import Progress

if TYPE_CHECKING:
    from hamtarget._core import _native

__all__ = ["Asked", "Bounds", "Query", "Work"]

# More than is ever counted: as good as no bound, and within the range of the core's numbers.
_HUGE = 2**62


# Tuples, because a search of some microseconds makes both of these: dataclasses would take as long as a bucket.
class Asked(NamedTuple):
    """The codes that a search is asked with, and where they are known the logits and embeddings of the same queries.

    Arrays have one dimension for one query, and a row for each query of a batch. Without codes, those of the logits
    count: a bit is 1 where its logit is above 0.

    Example:
        >>> import numpy as np
        >>> from hamtarget import FlatIndex
        >>> index = FlatIndex(64)
        >>> index.add([7, 8], np.array([[0] * 8, [255] * 8], dtype=np.uint8))
        >>> index.search(Asked(logits=np.full(64, -1.0)), radius=2, budget=100)
        Hits(1 hit: Hit(id=7, distance=0))

    Attributes:
        codes: packed uint8, (n_bits / 8,) or (queries, n_bits / 8).
        offsets: int64, (queries + 1,), where the codes of several queries are matched: those of query q lie from
            `offsets[q]` to `offsets[q + 1]`.
        logits: (n_bits,) or (queries, n_bits), for a search with a budget.
        embeddings: (n_dims,) or (queries, n_dims), for `rerank`.
    """

    codes: ArrayLike | None = None
    offsets: ArrayLike | None = None
    logits: ArrayLike | None = None
    embeddings: ArrayLike | None = None

    def row(self, number: int) -> Asked:
        """Return one query of a batch."""
        codes, logits, embeddings = (
            None if rows is None else np.asarray(rows)[number] for rows in (self.codes, self.logits, self.embeddings)
        )
        return Asked(codes, None, logits, embeddings)


class Query(NamedTuple):
    """Wanted hits: all within a radius, or without a radius the nearest.

    Attributes:
        radius: largest distance of a hit, from 0 to n_bits - 1; None for the nearest at any distance.
        limit: most hits of each query; all of them by default.
        recall: share of the true nearest vectors to find, above 0 and up to 1, in a store that keeps vectors.
        budget: most rows read for each query, the most likely first; all that can be hits by default.
        comparisons: most rows whose embeddings are compared, of those that a budget finds.
        filter: which rows or items may be hits: for an index ids or a mask, for a store a `Filter`.
        rerank: number of hits to keep, the closest by embedding.
        at_least: fewest codes of a query that an item must match.
    """

    radius: int | None = None
    limit: int | None = None
    recall: float | None = None
    budget: int | None = None
    comparisons: int | None = None
    filter: Any = None
    rerank: int | None = None
    at_least: int = 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds on the work of one call. What is not given is not bounded.

    Work that reaches one of them raises `LimitError` and changes nothing.

    Example:
        >>> import numpy as np
        >>> from hamtarget import FlatIndex
        >>> index = FlatIndex(64)
        >>> index.add(np.arange(1000), np.zeros((1000, 8), dtype=np.uint8))
        >>> index.search(np.zeros(8, dtype=np.uint8), radius=2, work=Work(Bounds(hits=100)))
        Traceback (most recent call last):
        ...
        hamtarget.errors.LimitError: the work needs more than 100 hits; ask for less, or allow more hits

    Attributes:
        seconds: time from the beginning of the call.
        rows: candidates read: rows of an index, one in several buckets counted in each, and rows of a store whose
            payloads a filter looks at.
        hits: hits found; where hits are re-ranked, those that are compared.
        bytes: of payloads and embeddings that are read from a store.

    Raises:
        InputError: a bound is negative, or `seconds` is NaN.
        DtypeError: a bound is not a number.
    """

    seconds: float | None = None
    rows: int | None = None
    hits: int | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None:
            _check_seconds(self.seconds)
        for name in ("rows", "hits", "bytes"):
            bound = getattr(self, name)
            if bound is not None:
                check_integer(bound, name=name, least=0)

    def start(self) -> RunningBounds:
        """Start the clock: return bounds that several calls and threads share, and that can be cancelled."""
        return RunningBounds(self)


class RunningBounds:
    """Bounds whose clock runs, and what is left of them: `Bounds.start` makes them.

    Every call that they are given to takes from them, in any number of threads.

    Example:
        >>> running = Bounds(seconds=60.0, hits=10).start()
        >>> running.take(hits=10)
        >>> running.take(hits=1)
        Traceback (most recent call last):
        ...
        hamtarget.errors.LimitError: the work needs more than 10 hits; ask for less, or allow more hits

    Attributes:
        bounds: what was allowed at the start.
        core: what the native core counts with.
    """

    __slots__ = ("__weakref__", "bounds", "core")

    def __init__(self, bounds: Bounds, kind: type[_native.Limits] | None = None) -> None:
        """Use `Bounds.start`; `kind` is a class that counts more than the core does."""
        from hamtarget._core import _native

        self.bounds = bounds
        self.core = (kind or _native.Limits)(
            math.inf if bounds.seconds is None else float(bounds.seconds),
            *(_HUGE if most is None else min(int(most), _HUGE) for most in (bounds.rows, bounds.hits, bounds.bytes)),
        )

    def __repr__(self) -> str:
        """Return what was allowed, and the seconds that are left."""
        return f"RunningBounds({self.bounds}, seconds_left={self.seconds_left:.3g})"

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline, negative after it; infinite without one."""
        return self.core.seconds_left

    @property
    def is_cancelled(self) -> bool:
        """True if `cancel` was called."""
        return self.core.is_cancelled

    def check(self) -> None:
        """Check that there is time left.

        Raises:
            LimitError: the deadline is past, or `cancel` was called.
        """
        self.core.check()

    def cancel(self) -> None:
        """End what runs within these bounds, in any thread, within 50 ms; it raises `LimitError`."""
        self.core.cancel()

    def take(self, *, rows: int = 0, hits: int = 0, bytes: int = 0) -> None:
        """Count work.

        Raises:
            LimitError: more has been taken than allowed.
        """
        self.core.take(rows=rows, hits=hits, bytes=bytes)


@dataclass(frozen=True, slots=True)
class Work:
    """Bounds, threads and progress of a call, and whether its costs are counted.

    Example:
        >>> Work(Bounds(seconds=1.0), threads=2)
        Work(bounds=Bounds(seconds=1.0, rows=None, hits=None, bytes=None), threads=2, progress=None, costs=False)

    Attributes:
        bounds: bounds on the work; their clock starts with the call. Running bounds (`Bounds.start`) are shared by all
            calls that they are given to.
        threads: threads that share the work. By default one for a search, and one for each core where an index is
            fitted.
        progress: called with (done, total) now and then, and once at the end, by work that takes long.
        costs: if True, the answer says how much work each query took.

    Raises:
        DtypeError: an attribute has the wrong type.
        InputError: `threads` is below 1.
    """

    bounds: Bounds | RunningBounds | None = None
    threads: int | None = None
    progress: Progress | None = None
    costs: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.bounds, Bounds | RunningBounds | None):
            raise DtypeError(
                f"bounds are {shown(self.bounds)}; expected Bounds(seconds=..., rows=..., hits=..., bytes=...)"
            )
        if self.threads is not None:
            check_integer(self.threads, name="threads")
        if self.progress is not None and not callable(self.progress):
            raise DtypeError(f"progress is {self.progress!r}; expected a function of (done, total)")

    def started(self) -> Self:
        """Return the same work with bounds that run, if there are any: all calls of one request share them."""
        return replace(self, bounds=self.bounds.start()) if isinstance(self.bounds, Bounds) else self

    @property
    def limits(self) -> _native.Limits | None:
        """The counters of the native core; None if nothing is bounded. Plain bounds start with each look."""
        running = self.bounds.start() if isinstance(self.bounds, Bounds) else self.bounds
        return None if running is None else running.core

    def n_threads(self, default: int) -> int:
        """Return the number of threads, or a default where none was asked for."""
        return default if self.threads is None else int(self.threads)


PLAIN_WORK = Work()
"""Work without bounds, on one thread, that nobody watches."""


def check_question(asked: object, query: object) -> None:
    """Check that a question is one.

    Raises:
        DtypeError: it is something else.
    """
    if not isinstance(asked, Asked):
        raise DtypeError(f"asked is {shown(asked)}; expected Asked(codes, logits=..., embeddings=...)")
    if asked.codes is None and asked.logits is None:
        raise InputError("neither codes nor logits are given; expected one of them, or both")
    if not isinstance(query, Query):
        raise DtypeError(f"query is {shown(query)}; expected Query(radius=..., limit=..., ...)")


def check_work(work: object) -> Work:
    """Return the work, or plain work for None.

    Raises:
        DtypeError: it is something else.
    """
    if work is None:
        return PLAIN_WORK
    if not isinstance(work, Work):
        raise DtypeError(f"work is {shown(work)}; expected Work(bounds=..., threads=..., progress=..., costs=...)")
    return work


def _check_seconds(seconds: float) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float | np.integer | np.floating):
        raise DtypeError(f"seconds is {shown(seconds)}; expected a number")
    if math.isnan(seconds) or seconds < 0:
        raise InputError(f"seconds is {seconds}; expected 0 or more")


def __dir__() -> list[str]:
    return __all__
