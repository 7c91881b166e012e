"""Retrieval tasks made from one set of labelled images: rows to learn from, to search in, and to search with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.errors import InputError
from hamtarget.progress import Progress
from research.datasets import ImageData

Rows = NDArray[np.int64]

# Rows to learn from that are kept aside when settings are chosen (the last ones), and how many of them are queries.
HELD_OUT = 2000
HELD_OUT_QUERIES = 500
# Every fifth class is not learned from in the task of unseen classes.
_UNSEEN_EVERY = 5
# Tiles of a picture of several labels, (down, across), and how many such pictures there are.
_TILES = (2, 2)
MOSAICS = {"train": 10_000, "database": 10_000, "query": 2_500}


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images in memory: the database first, then the queries.

    Attributes:
        images: (rows, [channels,] height, width) uint8.
        labels: (rows,) class numbers, or (rows, classes) of 0 and 1.
        n_database: rows of the database; the others are queries.
        trained: rows of the database to learn from.
    """

    images: NDArray[np.uint8]
    labels: NDArray[Any]
    n_database: int
    trained: Rows

    @property
    def queries(self) -> Rows:
        """Rows of the queries."""
        return np.arange(self.n_database, len(self.images))


@dataclass(frozen=True, eq=False)
class Task:
    """Rows to learn from and rows to search: row numbers of the images that `source` returns.

    Attributes:
        name: name of the task.
        train, database, queries: row numbers.
        trained: True for each row of `database` that is learned from.
        source: returns the images and labels that the row numbers refer to.
    """

    name: str
    train: Rows
    database: Rows
    queries: Rows
    trained: NDArray[np.bool_]
    source: LabelledImages

    @property
    def is_closed(self) -> bool:
        """True if every row that is searched is of a class that is learned from, with one class for each row."""
        labels = self.source.labels
        return labels.ndim == 1 and bool(np.isin(labels[self.database], labels[self.train]).all())

    @property
    def n_labels(self) -> int:
        """Number of labels of the rows to learn from."""
        labels = self.source.labels
        return int(labels.shape[1]) if labels.ndim == 2 else len(np.unique(labels[self.train]))


def load_images(data: ImageData, side: int, *, workers: int = 0, progress: Progress | None = None) -> LabelledImages:
    """Decode the database and the queries of a set to `side` x `side` pixels; broken images are left out.

    Raises:
        InputError: a part has no labels.
    """
    parts = []
    for part in (data.database, data.queries):
        if part.labels is None:
            raise InputError(f"{data.name} has images without labels; expected a class for each")
        decoded = part.decode((3, side, side), workers=workers, progress=progress)
        parts.append((decoded.images, part.labels[decoded.rows], decoded.rows))
    (database, database_labels, rows), (queries, query_labels, _) = parts
    trained = np.flatnonzero(np.isin(rows, _train_rows(data)))
    return LabelledImages(
        np.concatenate([database, queries]), np.concatenate([database_labels, query_labels]), len(database), trained
    )


def _train_rows(data: ImageData) -> Rows:
    """Return the rows of the database to learn from."""
    if all(isinstance(source, bytes) for source in (data.train.sources[0], data.database.sources[0])):
        # In packed images, those to learn from come first.
        return np.arange(len(data.train))
    wanted = {str(source) for source in data.train.sources}
    return np.array([row for row, source in enumerate(data.database.sources) if str(source) in wanted])


def whole_task(source: LabelledImages) -> Task:
    """Return the task of all classes: the paper's protocol."""
    database = np.arange(source.n_database)
    return Task("whole", source.trained, database, source.queries, np.isin(database, source.trained), source)


def held_out_task(source: LabelledImages, *, n_rows: int = HELD_OUT, n_queries: int = HELD_OUT_QUERIES) -> Task:
    """Return a task for choosing settings, which uses the rows to learn from only.

    The last of them are kept aside as queries and as half of the database. The other half of the database is learned
    from, as half of the table's database is.
    """
    if not 0 < n_queries < n_rows < len(source.trained):
        raise InputError(
            f"{n_rows} rows kept aside, {n_queries} of them queries, of {len(source.trained)} to learn from; "
            "expected some of each"
        )
    kept, aside = source.trained[:-n_rows], source.trained[-n_rows:]
    database = np.concatenate([aside[n_queries:], kept[: n_rows - n_queries]])
    return Task("held_out", kept, database, aside[:n_queries], np.isin(database, kept), source)


def unseen_task(source: LabelledImages) -> Task:
    """Return a task in which every fifth class is not learned from, and only those classes are searched.

    Raises:
        InputError: images have several labels each.
    """
    if source.labels.ndim != 1:
        raise InputError("images have several labels each; expected one, to keep classes apart")
    unseen = source.labels % _UNSEEN_EVERY == 0
    database = np.flatnonzero(unseen[: source.n_database])
    queries = source.queries[unseen[source.queries]]
    return Task(
        "unseen", source.trained[~unseen[source.trained]], database, queries, np.zeros(len(database), bool), source
    )


def mosaic_task(source: LabelledImages, *, seed: int = 0, sizes: dict[str, int] | None = None) -> Task:
    """Return a task of pictures that are composed of four images each and have the labels of all four.

    The tiles to learn from, of the database and of the queries are three sets that share no image.

    Raises:
        InputError: images have several labels each already.
    """
    if source.labels.ndim != 1:
        raise InputError("images have several labels each already; expected one")
    sizes = MOSAICS if sizes is None else sizes
    random = np.random.default_rng(seed)
    never_trained = np.setdiff1d(np.arange(source.n_database), source.trained)
    pools = {"database": never_trained, "query": source.queries, "train": source.trained}
    pictures = [random.choice(pool, (sizes[part], *_TILES)) for part, pool in pools.items()]
    tiles = np.concatenate(pictures)
    labels = np.zeros((len(tiles), int(source.labels.max()) + 1), dtype=np.uint8)
    flat = tiles.reshape(len(tiles), -1)
    labels[np.arange(len(tiles))[:, None], source.labels[flat]] = 1
    n_database, n_queries = sizes["database"], sizes["query"]
    composed = LabelledImages(_compose(source.images, tiles), labels, n_database, np.empty(0, dtype=np.int64))
    return Task(
        "mosaic",
        np.arange(n_database + n_queries, len(tiles)),
        np.arange(n_database),
        np.arange(n_database, n_database + n_queries),
        np.zeros(n_database, dtype=bool),
        composed,
    )


def _compose(images: NDArray[np.uint8], tiles: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Join images side by side into pictures, (pictures, ..., down x height, across x width)."""
    *_, down, across = tiles.shape
    height, width = images.shape[-2:]
    pictures = np.empty((len(tiles), *images.shape[1:-2], down * height, across * width), dtype=np.uint8)
    for i in range(down):
        for j in range(across):
            place = (..., slice(i * height, (i + 1) * height), slice(j * width, (j + 1) * width))
            pictures[place] = images[tiles[:, i, j]]
    return pictures


TASKS: dict[str, Callable[[LabelledImages], Task]] = {
    "whole": whole_task,
    "unseen": unseen_task,
    "mosaic": mosaic_task,
    "held_out": held_out_task,
}
