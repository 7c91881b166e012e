"""Time the nearest vectors in a store, and next to it a bare `NeighborIndex` and probes of learned codes.

    python -m research.benchmarks.store_vectors --out research/results/store_vectors.json

A folder is filled with rows of sift1m, and tuned. Its `nearest_batch` is timed, and its `nearest`, one query at a time.
A `NeighborIndex` that was fitted to the same rows is timed in the same way. So is the store with a budget, by settings
that were tuned for the same recall: a store without cells finds vectors like this. The encoder is an ONNX file, as
`hamtarget train` writes it. All use one thread. Times are process time, in turns; a figure is the median. Recall is the
share of the true 10 nearest among the 10 found.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.encoders import Encoder, open_encoder
from hamtarget.evaluation import exact_neighbors
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import HashEncoder, TrainingOptions
from hamtarget.query import Asked, Query, Work
from hamtarget.search import Answer, MultiIndex, NeighborIndex
from hamtarget.store import Store
from hamtarget.store.vectors.tuning import Tuning, n_tuning_queries, tune_index
from research.benchmarks.search_sets import data_folder
from research.datasets.vector_sets import open_vector_set

K = 10
RECALLS = (0.90, 0.95)
N_QUERIES = 1000
N_SINGLE = 200
REPEATS = 5
# Rows that are put at a time, and single puts that are timed.
BATCH = 50_000
N_PUTS = 200

Rows = NDArray[Any]


def median_cpu(calls: dict[str, Callable[[], object]], counts: dict[str, int], repeats: int) -> dict[str, float]:
    """Return the microseconds of process time for a query of each call, called in turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            times[name].append(1e6 * (time.process_time() - begin) / counts[name])
    return {name: statistics.median(each) for name, each in times.items()}


def share_found(ids: NDArray[np.int64], true: NDArray[np.int64]) -> float:
    """Return the share of the true neighbours that were found."""
    return float(
        np.mean([len(set(mine) & set(near)) / K for mine, near in zip(ids.tolist(), true.tolist(), strict=True)])
    )


def probe_tuning(base: Rows, encoder: Encoder, store: Store) -> Tuning:
    """Return settings of probes, tuned as stores tuned them before they had cells."""
    kind = store.embeddings
    index = MultiIndex(store.n_bits, store.radius, substrings=store.substrings, embeddings=kind)
    vectors = base.astype(np.float16)
    for start in range(0, len(base), BATCH):
        here = slice(start, start + BATCH)
        index.add(np.arange(len(base))[here], encoder.encode(base[here]), vectors[here])
    rows = np.sort(np.random.default_rng(0).choice(len(base), n_tuning_queries(len(base)), replace=False))
    asked = Asked(logits=encoder.logits(base[rows]), embeddings=vectors[rows].astype(np.float32))
    return tune_index(index, rows, asked, K)


def ids_of(hits: Any, n_queries: int) -> NDArray[np.int64]:
    """Return the ids of hits, (queries, K)."""
    return np.asarray(hits.ids).reshape(n_queries, K)


def compared(
    recall: float,
    store: Store,
    bare: NeighborIndex,
    tuning: Tuning,
    asked: NDArray[np.float32],
    true: NDArray[np.int64],
) -> dict[str, Any]:
    """Return what each way finds at a recall, and how fast."""
    singles = asked[:N_SINGLE]
    point = next((point for point in tuning.points if point.recall >= recall), tuning.points[-1])
    wanted = Query(store.n_bits - 1, budget=point.budget, comparisons=point.comparisons, rerank=K)

    def probe(queries: NDArray[np.float32]) -> Answer:
        return store.answer(Asked(logits=store.encoder.logits(queries), embeddings=queries), wanted)

    batches: dict[str, Callable[[], Any]] = {
        "store": lambda: store.nearest_batch(asked, K, recall=recall),
        "index": lambda: bare.nearest_batch(asked, K, recall=recall, work=Work(threads=1)),
        "probes": lambda: probe(asked),
    }
    found = {
        "store": ids_of(batches["store"](), len(asked)),
        "index": batches["index"]().ids,
        "probes": ids_of(batches["probes"](), len(asked)),
    }
    calls = {f"{name}, batch": call for name, call in batches.items()} | {
        "store, one": lambda: [store.nearest(query, K, recall=recall) for query in singles],
        "index, one": lambda: [bare.nearest(query, K, recall=recall, work=Work(threads=1)) for query in singles],
        "probes, one": lambda: [probe(query[None])[0] for query in singles],
    }
    counts = {name: len(singles) if name.endswith("one") else len(asked) for name in calls}
    microseconds = median_cpu(calls, counts, REPEATS)
    return {
        "recall": recall,
        "found": {name: share_found(ids, true) for name, ids in found.items()},
        "microseconds": microseconds,
        "queries_per_second": {name: 1e6 / each for name, each in microseconds.items()},
    }


def measured(folder: Path, base: Rows, queries: Rows, encoder: Encoder) -> dict[str, Any]:
    """Return the figures of a store of some rows."""
    true = exact_neighbors(queries, base, K)
    asked = queries.astype(np.float32)
    with Store.create(folder, encoder=encoder) as store:
        for start in range(0, len(base), BATCH):
            rows = np.arange(start, min(start + BATCH, len(base)))
            store.put_rows(rows, inputs=base[rows].astype(np.float32))
        begin = time.perf_counter()
        store.tune()
        seconds = {"tune": time.perf_counter() - begin}
        begin = time.perf_counter()
    seconds["close"] = time.perf_counter() - begin
    bare = NeighborIndex("l2").fit(base)
    result: dict[str, Any] = {"rows": len(base), "seconds": seconds}
    begin = time.perf_counter()
    with Store.open(folder) as store:
        opened = time.perf_counter()
        store.nearest(asked[0])
        seconds["open"], seconds["first_search"] = opened - begin, time.perf_counter() - opened
        result["bytes_per_row"] = store.memory / len(base)
        result["cells_bytes_per_row"] = bare.memory / len(base)
        tuning = probe_tuning(base, encoder, store)
        result["recalls"] = [compared(recall, store, bare, tuning, asked, true) for recall in RECALLS]
        puts = []
        for number in range(N_PUTS):
            begin = time.process_time()
            store.put_rows([len(base) + number], inputs=asked[number : number + 1])
            puts.append(time.process_time() - begin)
        result["put_microseconds"] = 1e6 * statistics.median(puts)
    return result


def main() -> None:
    """Run the benchmark and write its result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--steps", type=int, help="of training; by default as many as HashEncoder takes")
    parser.add_argument("--model", type=Path, help="a folder: the trained model is kept there, and used again")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    vectors = open_vector_set(data_folder() / "sift1m")
    queries = np.asarray(vectors.queries[:N_QUERIES])
    result: dict[str, Any] = {"provenance": provenance(seed=0), "stores": []}
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or Path(folder) / "model"
        if not model.exists():
            training = None if options.steps is None else TrainingOptions(steps=options.steps)
            trained = HashEncoder(64, training=training, device="cpu", seed=0).fit(np.asarray(vectors.learn))
            trained.export_onnx(model)
        encoder = open_encoder(model)
        for n_rows in options.rows:
            place = Path(folder) / f"store of {n_rows}"
            figures = measured(place, np.asarray(vectors.base[:n_rows]), queries, encoder)
            print(figures, flush=True)
            result["stores"].append(figures)
    if options.out is not None:
        write_json(options.out, result)


if __name__ == "__main__":
    main()
