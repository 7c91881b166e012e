"""The adapter for ann-benchmarks does what that program asks of it; a stand-in takes the program's place."""

import importlib.util
import itertools
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import yaml

FOLDER = Path(__file__).parents[3] / "src" / "hamtarget" / "integrations" / "ann_benchmarks"


class BaseANN:
    """What ann-benchmarks has its algorithms inherit from."""

    def done(self):
        pass

    def get_additional(self):
        return {}


@pytest.fixture(scope="module")
def adapter():
    """The adapter's module, as ann-benchmarks would import it."""
    names = ["ann_benchmarks", "ann_benchmarks.algorithms", "ann_benchmarks.algorithms.base"]
    stand_in = types.ModuleType("ann_benchmarks.algorithms.base.module")
    stand_in.BaseANN = BaseANN
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setitem(sys.modules, name, types.ModuleType(name))
        patch.setitem(sys.modules, stand_in.__name__, stand_in)
        spec = importlib.util.spec_from_file_location(
            "ann_benchmarks.algorithms.hamtarget.module", FOLDER / "module.py"
        )
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


def nearest(rows, query, n, metric):
    """The naive twin: all distances, sorted."""
    if metric == "angular":
        far = 1 - rows @ query / np.linalg.norm(rows, axis=1) / np.linalg.norm(query)
    elif metric == "hamming":
        far = (rows != query).sum(axis=1)
    else:
        far = ((rows - query) ** 2).sum(axis=1)
    return np.argsort(far, kind="stable")[:n]


ROWS = {
    "euclidean floats": lambda rng, n: rng.normal(size=(n, 16)).astype(np.float32),
    "euclidean bytes": lambda rng, n: rng.integers(0, 256, (n, 16)).astype(np.float32),
    "angular floats": lambda rng, n: (rng.normal(size=(n, 16)) + 0.5).astype(np.float32),
}


@pytest.mark.parametrize("kind", ROWS)
def test_vectors(adapter, kind):
    metric = kind.split()[0]
    rng = np.random.default_rng(0)
    rows, queries = ROWS[kind](rng, 500), ROWS[kind](rng, 20)
    algorithm = adapter.HamtargetVectors(metric)
    algorithm.fit(rows)
    # So few rows are scanned, which is exact.
    for arguments in ([0.9], [None, 100, 20]):
        algorithm.set_query_arguments(*arguments)
        algorithm.batch_query(queries, 10)
        for query, found in zip(queries, algorithm.get_batch_results(), strict=True):
            np.testing.assert_array_equal(found, nearest(rows, query, 10, metric))
            np.testing.assert_array_equal(algorithm.query(query, 10), found)
    assert str(algorithm) == "hamtarget(budget=100, comparisons=20)"
    algorithm.freeIndex()
    algorithm.done()


def test_bytes_that_come_as_floats_are_kept_as_bytes(adapter):
    kept = []

    class Index:
        def __init__(self, metric):
            assert metric == "l2"

        def fit(self, rows):
            kept.append(rows.dtype)
            return self

    rng = np.random.default_rng(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapter, "NeighborIndex", Index)
        for kind in ("euclidean floats", "euclidean bytes"):
            adapter.HamtargetVectors("euclidean").fit(ROWS[kind](rng, 20))
    assert kept == [np.float32, np.uint8]


def test_a_row_of_zeros_is_no_obstacle(adapter):
    rows = ROWS["angular floats"](np.random.default_rng(0), 50)
    rows[7] = 0
    algorithm = adapter.HamtargetVectors("angular")
    algorithm.fit(rows)
    assert algorithm.query(rows[3], 5)[0] == 3
    assert len(algorithm.query(rows[7], 5)) == 5


def test_of_fewer_neighbours_only_those_found_are_returned(adapter):
    class Index:
        def nearest_batch(self, rows, n, **setting):
            assert setting == {"recall": 0.5}
            return types.SimpleNamespace(ids=np.array([[4, 2, -1]]))

    algorithm = adapter.HamtargetVectors("euclidean")
    algorithm.index = Index()
    algorithm.set_query_arguments(0.5)
    assert algorithm.query(np.zeros(3), 3).tolist() == [4, 2]


@pytest.mark.parametrize("n_columns", [64, 29])
def test_bits(adapter, n_columns):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (400, n_columns)).astype(bool)
    queries = rng.integers(0, 2, (20, n_columns)).astype(bool)
    algorithm = adapter.HamtargetBits("hamming")
    algorithm.fit(rows)
    algorithm.batch_query(queries, 10)
    for query, found in zip(queries, algorithm.get_batch_results(), strict=True):
        np.testing.assert_array_equal(found, nearest(rows, query, 10, "hamming"))
        np.testing.assert_array_equal(algorithm.query(query, 10), found)
    assert str(algorithm) == "hamtarget(exact)"
    algorithm.freeIndex()


def test_other_metrics_are_refused(adapter):
    with pytest.raises(NotImplementedError):
        adapter.HamtargetVectors("jaccard")
    with pytest.raises(NotImplementedError):
        adapter.HamtargetBits("euclidean")


def test_every_run_of_the_configuration_can_be_made(adapter):
    configuration = yaml.safe_load((FOLDER / "config.yml").read_text())
    metrics = {("float", "any"): ["euclidean", "angular"], ("bit", "hamming"): ["hamming"]}
    runs = [
        (metric, algorithm)
        for kind, distances in configuration.items()
        for distance, algorithms in distances.items()
        for algorithm in algorithms
        for metric in metrics[kind, distance]
    ]
    names = set()
    for metric, algorithm in runs:
        constructor = getattr(adapter, algorithm["constructor"])
        assert algorithm["module"] == "ann_benchmarks.algorithms.hamtarget"
        for group in algorithm["run_groups"].values():
            # ann-benchmarks makes all combinations of the listed arguments.
            for arguments in itertools.product(*group["args"]):
                made = constructor(metric, *arguments)
                for query_arguments in itertools.product(*group.get("query_args", [])):
                    if query_arguments:
                        made.set_query_arguments(*query_arguments)
                    names.add(str(made))
    # Every setting has a name of its own: otherwise one result file would overwrite another.
    assert len(names) == 1 + 7 + 8 * 5
