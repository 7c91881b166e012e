"""Compute all measures of a set of codes at once, and draw them."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._files import write_atomically
from hamtarget.codes import check_codes, distances
from hamtarget.errors import InputError, MissingExtraError
from hamtarget.evaluation import metrics
from hamtarget.evaluation.metrics import Relevance
from hamtarget.progress import Progress
from hamtarget.search import planning

# Cells (query, row) computed at a time.
_CELLS_AT_A_TIME = 4_000_000
# Endings that name a picture's format.
_FORMATS = ("png", "svg", "pdf")


class Measure(Protocol):
    """A measure of codes: a function of queries, database and relevance, such as `mean_average_precision`."""

    def __call__(
        self, query_codes: ArrayLike, database_codes: ArrayLike, relevant: Relevance, /, *, n_bits: int
    ) -> float:
        """Return the figure, for packed codes of `n_bits` bits."""
        ...


@dataclass(frozen=True, eq=False)
class NearestRows:
    """The relevance "among the nearest": the rows `nearest[q]` of the database are relevant to query q.

    Attributes:
        nearest: row numbers, (queries, n), as `hamtarget.evaluation.exact_neighbors` gives them.
        n_rows: rows of the database.
    """

    nearest: NDArray[np.int64]
    n_rows: int

    @property
    def shape(self) -> tuple[int, int]:
        """Number of queries and of database rows."""
        return len(self.nearest), self.n_rows

    def rows(self, start: int, stop: int, /) -> NDArray[np.bool_]:
        """Return the relevance to queries `start` to `stop - 1`."""
        relevant = np.zeros((stop - start, self.n_rows), dtype=np.bool_)
        np.put_along_axis(relevant, self.nearest[start:stop], True, axis=1)
        return relevant


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How well codes find what is relevant.

    Attributes:
        n_queries: number of queries.
        n_rows: rows of the database.
        n_bits: bits of a code.
        radius: the radius at which `candidates` was measured.
        k: ranks that count for `mean_average_precision` and `recall_at_k`.
        mean_average_precision: tie-aware MAP@k.
        recall_at_k: expected share of the relevant rows among the first k, rows at equal distance in random order.
        precision: of the hits within each radius, (n_bits + 1,).
        recall: of the relevant rows within each radius, (n_bits + 1,).
        hits: mean number of hits within each radius, (n_bits + 1,).
        candidates: mean number of distinct rows that exact search within `radius` reads.
        measures: figures of the caller's own measures, by name.
    """

    n_queries: int
    n_rows: int
    n_bits: int
    radius: int
    k: int
    mean_average_precision: float
    recall_at_k: float
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    hits: NDArray[np.float64]
    candidates: float
    measures: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return all figures, those of the caller's own measures among them, as a dictionary that JSON can hold."""
        found = {name: value for name, value in vars(self).items() if name != "measures"} | dict(self.measures)
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in found.items()}

    def draw(self, path: str | Path) -> None:
        """Draw precision and recall, by radius and against each other, to a file.

        Args:
            path: the file to write; its ending is .png, .svg or .pdf.

        Raises:
            MissingExtraError: matplotlib is not installed.
            InputError: the file has another ending.
        """
        draw_evaluation(path, self)

    def __repr__(self) -> str:
        return (
            f"Evaluation(MAP@{self.k} {self.mean_average_precision:.3f}, recall@{self.k} {self.recall_at_k:.3f}) "
            f"[{self.n_queries:,} queries, {self.n_rows:,} rows, {self.n_bits} bits, radius {self.radius}: "
            f"precision {self.precision[self.radius]:.3f}, recall {self.recall[self.radius]:.3f}]"
        )


def evaluate_codes(
    query_codes: ArrayLike,
    database_codes: ArrayLike,
    relevant: Relevance,
    *,
    n_bits: int,
    radius: int,
    k: int,
    measures: Mapping[str, Measure] | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Compute every measure of codes against what is relevant.

    Args:
        query_codes: packed codes, (queries, n_bits / 8).
        database_codes: packed codes, (database, n_bits / 8).
        relevant: the rows that are relevant to each query, such as `by_label` returns.
        n_bits: bits of a code.
        radius: the radius at which the cost of a search is measured.
        k: ranks that count for MAP and recall.
        measures: measures of your own, by name: functions of (query_codes, database_codes, relevant, *, n_bits).
        progress: called with the number of measures done and the number of all measures.

    Raises:
        ShapeError: codes or `relevant` have the wrong shape.
        DtypeError: codes are not uint8, or an integer is not one.
        InputError: `radius` or `k` is out of range, or a measure has the name of a figure that there is.

    Example:
        >>> import numpy as np
        >>> from hamtarget.evaluation import by_label
        >>> database = np.arange(64, dtype=np.uint8).reshape(-1, 1)
        >>> labels = np.arange(64) // 16
        >>> evaluate_codes(database, database, by_label(labels, labels), n_bits=8, radius=1, k=10)
        Evaluation(MAP@10 0.824, recall@10 0.388) [64 queries, 64 rows, 8 bits, radius 1: precision 0.714, recall 0.312]
    """
    queries, database = np.asarray(query_codes), np.asarray(database_codes)
    own = dict(measures or {})
    taken = own.keys() & {each.name for each in fields(Evaluation)}
    if taken:
        raise InputError(f"a measure is called {min(taken)!r}, as a figure that there is; choose another name")
    steps: dict[str, Callable[[], Any]] = {
        "curve": lambda: metrics.precision_recall_by_radius(queries, database, relevant, n_bits=n_bits),
        "cost": lambda: planning.measured_candidates(queries, database, n_bits=n_bits, radius=radius),
        "precision": lambda: metrics.mean_average_precision(queries, database, relevant, n_bits=n_bits, k=k),
        "recall": lambda: expected_recall(queries, database, relevant, n_bits=n_bits, k=k),
    }
    for name, measure in own.items():
        steps[f"own {name}"] = partial(measure, queries, database, relevant, n_bits=n_bits)
    found = {}
    for name, step in steps.items():
        found[name] = step()
        if progress is not None:
            progress(len(found), len(steps))
    return Evaluation(
        n_queries=len(queries),
        n_rows=len(database),
        n_bits=n_bits,
        radius=radius,
        k=k,
        mean_average_precision=found["precision"],
        recall_at_k=found["recall"],
        precision=found["curve"].precision,
        recall=found["curve"].recall,
        hits=found["curve"].hits,
        candidates=float(found["cost"].candidates.mean()),
        measures={name: float(found[f"own {name}"]) for name in own},
    )


def expected_recall(
    query_codes: ArrayLike, database_codes: ArrayLike, relevant: Relevance, *, n_bits: int, k: int
) -> float:
    """Return the expected share of a query's relevant rows among its first k, rows at equal distance in random order.

    This is the mean over queries that have relevant rows; 0 if none has.

    Raises:
        ShapeError: a code does not hold `n_bits` bits.
        DtypeError: codes are not uint8.
    """
    queries = check_codes(query_codes, n_bits, name="query_codes")
    database = check_codes(database_codes, n_bits, name="database_codes")
    block = max(1, _CELLS_AT_A_TIME // max(1, len(database)))
    recalls = []
    for start in range(0, len(queries), block):
        far = distances(queries[start : start + block], database, n_bits)
        wanted = relevant.rows(start, start + len(far))
        for one, good in zip(far, wanted, strict=True):
            if good.any():
                items = np.bincount(one, minlength=n_bits + 1)
                found = np.bincount(one[good], minlength=n_bits + 1)
                # Rows of each distance that are among the first k: all, some or none.
                taken = np.clip(k - (items.cumsum() - items), 0, items)
                recalls.append(float((found * taken / np.maximum(items, 1)).sum() / good.sum()))
    return float(np.mean(recalls)) if recalls else 0.0


def draw_evaluation(path: str | Path, found: Evaluation) -> None:
    """Draw an evaluation to a file; see `Evaluation.draw`."""
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in _FORMATS:
        raise InputError(f"{path} ends in {path.suffix!r}; expected {', '.join('.' + each for each in _FORMATS)}")
    try:
        # A Figure of its own needs no display, whatever backend the user's settings name.
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib is not installed; to draw: pip install 'hamtarget[plot]'") from error
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    by_radius, against = figure.subplots(1, 2)
    shown = found.hits > 0
    radii = np.arange(found.n_bits + 1)
    by_radius.plot(radii[shown], found.precision[shown], label="precision")
    by_radius.plot(radii, found.recall, label="recall")
    by_radius.axvline(found.radius, color="grey", linewidth=0.8, linestyle=":")
    by_radius.set(xlabel="radius (bits)", ylim=(0, 1.02), title="Rows within a radius")
    by_radius.legend(loc="center right")
    against.plot(found.recall[shown], found.precision[shown])
    against.plot(found.recall[found.radius], found.precision[found.radius], "o", label=f"radius {found.radius}")
    against.set(xlabel="recall", ylabel="precision", xlim=(0, 1.02), ylim=(0, 1.02))
    against.set_title(f"{found.n_bits} bits, MAP@{found.k:,} {found.mean_average_precision:.3f}")
    against.legend(loc="lower left")
    picture = io.BytesIO()
    figure.savefig(picture, format=kind, dpi=120)
    write_atomically(path, picture.getvalue())
