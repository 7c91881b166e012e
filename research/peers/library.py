"""The interface by which the benchmark of nearest neighbours builds, opens and searches the index of any library."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from research.datasets.neighbor_sets import Metric

Setting = Mapping[str, Any]
"""Parameters of a search by the names that the library gives them."""

DTYPES = {"float32": np.float32, "uint8": np.uint8}


@dataclass(frozen=True)
class Shape:
    """The facts about a set that settings depend on."""

    n_rows: int
    n_dims: int
    metric: Metric
    dtype: Literal["float32", "uint8"]

    @property
    def whole_bytes(self) -> bool:
        """True if rows are bytes, which can be stored in a byte a number without loss."""
        return self.dtype == "uint8"

    def cells(self) -> tuple[int, int]:
        """Return two numbers of k-means cells that suit the number of rows: powers of 2 around 3 sqrt(rows)."""
        power = max(4, round(np.log2(3 * np.sqrt(self.n_rows))))
        return int(2 ** (power - 1)), int(2**power)

    def cells_around(self) -> tuple[int, int]:
        """Return two further numbers of cells: half of the fewer, and four times the more."""
        few, many = self.cells()
        return few // 2, 4 * many


@dataclass(frozen=True)
class Plan:
    """An index to build, and the settings of searches in it that are worth measuring.

    Attributes:
        label: name of the index in tables, unique within its library.
        arguments: what it is built with; ready for JSON.
        settings: settings of a search by k, the number of neighbours it returns.
    """

    label: str
    arguments: Mapping[str, Any]
    settings: Mapping[int, Sequence[Setting]] = field(hash=False)

    def key(self) -> str:
        """Return the arguments as text: the same for the same index."""
        return json.dumps(dict(self.arguments), sort_keys=True)

    def grid_key(self) -> str:
        """Return a short text: the same for the same settings."""
        settings = {str(k): [dict(setting) for setting in choices] for k, choices in self.settings.items()}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


class Searcher(ABC):
    """An open index."""

    @abstractmethod
    def search(self, queries: NDArray[Any], k: int, setting: Setting) -> NDArray[Any]:
        """Return the ids of the k nearest that are found, (queries, k), on one thread.

        Args:
            queries: as the set has them; what the library wants done to them first is done here.
            k: number of neighbours.
            setting: parameters of the search.
        """

    def bytes_per_row(self, setting: Setting) -> float | None:
        """Return the size of what this setting needs, if it is less than the whole index on the disk."""
        return None


class Library(ABC):
    """A library that finds nearest neighbours.

    Attributes:
        name: its name in tables.
        package: the package that it comes in, as pip names it.
    """

    name: str
    package: str

    def version(self) -> str | None:
        """Return the installed version, or None if it is not installed."""
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return None

    @abstractmethod
    def plans(self, shape: Shape) -> list[Plan]:
        """Return the indexes worth building for such a set, each with a wide grid of settings."""

    @abstractmethod
    def build(self, plan: Plan, base: NDArray[Any], shape: Shape, folder: Path, threads: int) -> float:
        """Build the index, write it into a folder, and return the seconds that building took, writing apart."""

    @abstractmethod
    def open(self, plan: Plan, shape: Shape, folder: Path) -> Searcher:
        """Open an index that `build` wrote."""


def ready_queries(queries: NDArray[Any], shape: Shape) -> NDArray[np.float32]:
    """Return queries as most libraries take them: float32; for cosine, of length 1."""
    ready = np.ascontiguousarray(queries, dtype=np.float32)
    if shape.metric == "cosine":
        ready = ready / np.linalg.norm(ready, axis=1, keepdims=True)
    return ready


def float_rows(base: NDArray[Any]) -> NDArray[np.float32]:
    """Return rows as float32 in memory."""
    return np.ascontiguousarray(base, dtype=np.float32)


def saved_bytes(folder: Path) -> int:
    """Return the size of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
