"""What the golden files hold, by formulas that never change; `python golden_files.py` writes those that are missing.

A golden file is written once, when its format is new, and not again: it stands for the files that people have. If a
test of it fails, the code is wrong, not the file.
"""

from pathlib import Path

import numpy as np

from hamtarget.search import Embeddings, FlatIndex, MultiIndex

FOLDER = Path(__file__).parent
N_ROWS = 2400
N_FIRST = 2300
DELETED = slice(100, 2390, 13)


def ids():
    """(rows,): neither ascending nor dense, both ends of int64 included."""
    numbers = (np.arange(N_ROWS, dtype=np.int64) * 1_000_003) % 1_000_033 - 500_000
    numbers[[5, 2350]] = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    return numbers


def codes(name):
    """(rows, n_bytes) of a file: the high bytes of a linear congruence, the first half in a quarter of the space."""
    n_bytes = FILES[name][1] // 8
    numbers = np.arange(N_ROWS * n_bytes, dtype=np.uint64) * np.uint64(6364136223846793005) + np.uint64(1442695)
    mixed = (numbers ^ (numbers >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
    found = (mixed >> np.uint64(56)).astype(np.uint8).reshape(N_ROWS, n_bytes)
    found[: N_ROWS // 2, 0] &= 0x3F
    return found[np.arange(N_ROWS) // 4] if name == "shared_index.ham" else found


def embeddings(n_dims, dtype):
    """(rows, n_dims) of whole numbers from -100 to 100, which every type holds exactly."""
    return ((np.arange(N_ROWS * n_dims) * 7919) % 201 - 100).astype(dtype).reshape(N_ROWS, n_dims)


def kept():
    """(rows,) of bool: rows that were not deleted."""
    mask = np.ones(N_ROWS, dtype=bool)
    mask[DELETED] = False
    return mask


# Name of the file: class, n_bits, keywords, and the embeddings.
FILES = {
    "multi_index.ham": (MultiIndex, 16, {"radius": 1, "substrings": 2}, Embeddings(3, "int8", "l2")),
    # The index chooses its tables, which hold excerpts of codes.
    "wide_index.ham": (MultiIndex, 256, {"radius": 31}, Embeddings(3, "int8", "l2")),
    # Rows share codes, as they do only without embeddings.
    "shared_index.ham": (MultiIndex, 64, {"radius": 2}, None),
    "flat_index.ham": (FlatIndex, 24, {}, Embeddings(2, "float16", "cosine")),
    "empty_index.ham": (MultiIndex, 64, {"radius": 2}, None),
}


def index_for(name):
    """The index of that name, made anew."""
    kind, n_bits, keywords, embedding = FILES[name]
    index = kind(n_bits, embeddings=embedding, **keywords)
    if name.startswith("empty"):
        return index
    rows = codes(name)
    vectors = None if embedding is None else embeddings(embedding.n_dims, embedding.dtype)
    for part in (slice(0, N_FIRST), slice(N_FIRST, None)):
        index.add(ids()[part], rows[part], None if vectors is None else vectors[part])
    index.delete(ids()[DELETED])
    return index


if __name__ == "__main__":
    for name in FILES:
        if not (FOLDER / name).exists():
            index_for(name).save(FOLDER / name)
