"""The comparison of libraries in processes of their own, on a few rows."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("faiss")

from research.benchmarks.engine_peers import code_sets, measure, table  # noqa: E402
from research.benchmarks.search_methods import Found  # noqa: E402
from research.peers.code_peers import PythonTree, found_of, threatexchange_methods  # noqa: E402


def naive(codes: np.ndarray, queries: np.ndarray, radius: int) -> list[list[tuple[int, int]]]:
    distances = np.bitwise_count(queries[:, None] ^ codes[None]).sum(axis=2)
    return [[(int(row), int(far[row])) for row in np.flatnonzero(far <= radius)] for far in distances]


def hits(found: Found) -> list[list[tuple[int, int]]]:
    offsets, rows, distances = found
    pairs = list(zip(rows.tolist(), distances.tolist(), strict=True))
    return [sorted(pairs[a:b]) for a, b in zip(offsets[:-1], offsets[1:], strict=True)]


def test_arrays_of_hits() -> None:
    offsets, rows, distances = found_of([[(3, 1)], [], [(1, 0), (2, 2)]])
    assert offsets.tolist() == [0, 1, 1, 3]
    assert rows.tolist() == [3, 1, 2]
    assert distances.tolist() == [1, 0, 2]


def test_peers_find_what_a_naive_scan_finds() -> None:
    (drawn,) = code_sets(["uniform 256"], 300, 20, None)
    expected = naive(drawn.codes, drawn.queries, 31)
    assert sum(map(len, expected)) >= 15
    methods = []
    if _installed("pybktree"):
        methods.append(PythonTree(256))
    if _installed("threatexchange"):
        methods += threatexchange_methods(256)
    if not methods:
        pytest.skip("neither pybktree nor threatexchange is installed: pip install 'hamtarget[research]'")
    for method in methods:
        method.build(drawn.codes, np.arange(300))
        assert hits(method.search(drawn.queries, 31)) == expected, method.name


def test_libraries_are_measured_in_their_own_processes() -> None:
    (drawn,) = code_sets(["L"], 3000, 900, None)
    names = ["hamtarget MultiIndex", "faiss IndexBinaryFlat", "threatexchange PDQIndex"]
    found = measure(drawn, names, turns=2)
    assert list(found["peers"]) == names[:2]
    assert "threatexchange PDQIndex" in found["skipped"]
    for row in found["peers"].values():
        assert row["recall"] == 1
        assert len(row["turns"]) == 2
        assert row["queries_per_second"] > 0
    assert "| faiss IndexBinaryFlat" in table({"sets": {"L": found}})


def _installed(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None
