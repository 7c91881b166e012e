"""The native core. Private: arguments are checked by hamtarget.search, not here."""

import numpy as np
from numpy.typing import NDArray

def kernels() -> list[str]:
    """Names of the kernels that this CPU can run; the first is the one in use."""

def distances(query: NDArray[np.uint8], codes: NDArray[np.uint8], kernel: str | None = None) -> NDArray[np.uint16]:
    """Hamming distance of one query, (bytes,), to every code, (rows, bytes)."""

def scan(
    queries: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    ids: NDArray[np.int64],
    radius: int,
    limit: int,
    kernel: str | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint16]]:
    """Offsets, ids and distances of each query's first `limit` codes within `radius`, by (distance, id)."""
