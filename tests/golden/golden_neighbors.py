"""What the golden files of NeighborIndex hold, by formulas that never change; run it to write those that are missing.

A golden file is written once, when its format is new, and NEVER again: see golden_files.py.
"""

from pathlib import Path

import numpy as np
import pytest

from hamtarget.search import NeighborIndex
from hamtarget.search import neighbor_index as module
from hamtarget.search.neighbors import cells

FOLDER = Path(__file__).parent
N_ROWS = 400
N_DIMS = 8
DELETED = slice(7, 400, 11)

# Name of the file: metric, and the way in which rows are found.
FILES = {
    "neighbors_cells_l2_1.npz": ("l2", "cells"),
    "neighbors_cells_cosine_1.npz": ("cosine", "cells"),
    "neighbors_scan_dot_1.npz": ("dot", "scan"),
}


def ids():
    """(rows,): neither ascending nor dense, some above 32 bits."""
    numbers = (np.arange(N_ROWS, dtype=np.int64) * 1_000_003) % 1_000_033
    numbers[5] = 2**40
    return numbers


def vectors():
    """(rows, dims) of uint8: the high bytes of a linear congruence."""
    numbers = np.arange(N_ROWS * N_DIMS, dtype=np.uint64) * np.uint64(6364136223846793005) + np.uint64(1442695)
    mixed = (numbers ^ (numbers >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(56)).astype(np.uint8).reshape(N_ROWS, N_DIMS)


def kept():
    """(rows,) of bool: rows that were not deleted."""
    mask = np.ones(N_ROWS, dtype=bool)
    mask[DELETED] = False
    return mask


def index_for(name):
    """The index of that name, made anew."""
    metric, way = FILES[name]
    with pytest.MonkeyPatch.context() as patch:
        if way == "cells":
            patch.setattr(module, "FEWEST_ROWS_OF_CELLS", 100)
            patch.setattr(module, "_why_slower", lambda *_: None)
            patch.setattr(cells, "N_QUERIES", 50)
        index = NeighborIndex(metric, k=3).fit(vectors(), ids())
    index.delete(ids()[DELETED])
    return index


if __name__ == "__main__":
    for name in FILES:
        if not (FOLDER / name).exists():
            index_for(name).save(FOLDER / name)
