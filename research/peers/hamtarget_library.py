"""hamtarget's own NeighborIndex in the benchmark of nearest neighbours."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hamtarget
from hamtarget.errors import InputError
from research.peers.library import Library, Plan, Searcher, Setting, Shape

_FILE = "index"
_RECALLS = (0.8, 0.9, 0.95, 0.99)
_HIGH_RECALL = 0.99
_BUDGETS = (500, 1_000, 2_000, 3_000, 4_000, 6_000, 8_000, 12_000, 16_000, 24_000, 32_000, 48_000, 64_000, 96_000)
_COMPARISONS = {10: (20, 40, 80, 160, 320, 640), 100: (100, 150, 200, 400, 800)}


class Hamtarget(Library):
    """NeighborIndex as it chooses for itself, and with settings chosen by hand."""

    name = "hamtarget"
    package = "hamtarget"

    def version(self) -> str | None:
        """Return the version and a checksum of what it searches with: a change makes indexes and figures anew."""
        package = Path(hamtarget.__file__).parent
        if not (package / "search" / "neighbor_index.py").exists():
            return None
        from hamtarget import _native

        digest = hashlib.sha256(Path(str(_native.__file__)).read_bytes())
        for file in sorted((package / "search").rglob("*.py")):
            digest.update(file.read_bytes())
        return f"{hamtarget.__version__} {digest.hexdigest()[:8]}"

    def plans(self, shape: Shape) -> list[Plan]:
        """Return the index of the defaults, and one fitted for a high recall, which may keep more bytes a number.

        Each has recalls to ask for, and budgets by hand.
        """
        most = max(shape.n_rows // 4, 1_000)
        settings: dict[int, list[Setting]] = {}
        for k, counts in _COMPARISONS.items():
            settings[k] = [{"recall": recall} for recall in _RECALLS]
            settings[k] += [
                {"budget": budget, "comparisons": comparisons}
                for comparisons in counts
                for budget in _BUDGETS
                if comparisons <= budget <= most
            ]
        plans = [Plan("NeighborIndex", {}, settings)]
        if not shape.whole_bytes:
            plans.append(Plan(f"NeighborIndex for {_HIGH_RECALL:.2f}", {"recall": _HIGH_RECALL}, settings))
        return plans

    def build(self, plan: Plan, base: NDArray[Any], shape: Shape, folder: Path, threads: int) -> float:
        """Fit, tuning included, and save."""
        from hamtarget import NeighborIndex, Work

        start = time.perf_counter()
        index = NeighborIndex(metric=shape.metric, **plan.arguments).fit(base, work=Work(threads=threads))
        seconds = time.perf_counter() - start
        index.save(folder / _FILE)
        return seconds

    def open(self, plan: Plan, shape: Shape, folder: Path) -> Searcher:
        """Open the index."""
        from hamtarget.search import NeighborIndex

        return _Index(NeighborIndex.open(folder / _FILE))


class _Index(Searcher):
    def __init__(self, index: Any) -> None:
        self._index = index

    def search(self, queries: NDArray[Any], k: int, setting: Setting) -> NDArray[Any]:
        try:
            found: NDArray[Any] = self._index.nearest_batch(queries, k, **setting).ids
        except InputError:
            # Vectors are kept too coarsely for this recall, which counts as nothing found.
            return np.full((len(queries), k), -1)
        return found
