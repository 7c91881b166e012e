"""Measure how long learning from vectors takes, and what the codes find: the default against long training.

    python -m research.benchmarks.training_time --out research/results/training_time.json
    python -m research.benchmarks.training_time --device cuda --models models --train-only
    python -m research.benchmarks.training_time --models models --out research/results/training_time_gpu.json

Each way learns from the set's `learn` alone, from nothing: its seconds hold the search for neighbours, too. The base is
then probed by one budget and one number of comparisons, by vectors. Recall@100 is the share of queries whose nearest
row is among the first 100; recall 10@10 is the share of the 10 nearest among the first 10.

The last two lines are for a machine with a GPU that has no native core: models are trained there, with their times, and
judged elsewhere. A model that is in the folder is not trained again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.datasets import open_vectors
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import HashEncoder, TrainingOptions
from hamtarget.learn.training.checkpoint import TrainingProgress
from research.benchmarks.search_sets import data_folder
from research.datasets.vector_sets import VectorSet, open_vector_set

N_BITS = 64
BUDGET = 7000
COMPARISONS = 583
LONG_STEPS = 4000
_BATCH = 1024
_NEAREST = 100
_ROWS_AT_ONCE = 100_000


@dataclass(frozen=True)
class Way:
    """A way to learn.

    Attributes:
        name: of the way.
        training: None for the default.
        all_markers: True if the neighbours of all vectors are sought, and not of a sample.
    """

    name: str
    training: TrainingOptions | None
    all_markers: bool


def train(way: Way, learn: NDArray[Any], *, device: str, seed: int) -> tuple[HashEncoder, dict[str, Any]]:
    """Learn in one way, and return the model and the times."""
    reached: list[TrainingProgress] = []
    encoder = HashEncoder(N_BITS, training=way.training, device=device, seed=seed)
    start, cpu = time.perf_counter(), time.process_time()
    encoder.fit(learn, markers=np.arange(len(learn)) if way.all_markers else None, progress=reached.append)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    steps = reached[-1].steps
    return encoder, {"way": way.name, "steps": steps, "seconds": seconds, "cpu_seconds": cpu_seconds, "device": device}


def trained(
    way: Way, learn: NDArray[Any], models: Path | None, *, device: str, seed: int
) -> tuple[HashEncoder, dict[str, Any]]:
    """Return the model of a way from the folder `models`, or train it and put it there."""
    if models is None:
        return train(way, learn, device=device, seed=seed)
    times = models / f"{way.name}.json"
    if times.exists():
        return HashEncoder.load(models / way.name, device=device), json.loads(times.read_text())
    encoder, row = train(way, learn, device=device, seed=seed)
    encoder.save(models / way.name)
    times.write_text(json.dumps(row))
    return encoder, row


def found(encoder: HashEncoder, vectors: VectorSet) -> dict[str, float]:
    """Return the recall of probing the base of a set with the codes of an encoder."""
    # The native core need not be there where models are only trained.
    from hamtarget.query import Asked, Query
    from hamtarget.search import Embeddings, MultiIndex

    kind = Embeddings(vectors.base.shape[1], "float16", "l2")
    substrings = encoder.substrings or 1
    index = MultiIndex(N_BITS, substrings - 1, substrings=substrings, embeddings=kind)
    for first in range(0, len(vectors.base), _ROWS_AT_ONCE):
        rows = np.asarray(vectors.base[first : first + _ROWS_AT_ONCE])
        index.add(np.arange(first, first + len(rows)), encoder.encode(rows), rows.astype(np.float16))
    queries = np.asarray(vectors.queries)
    hits = index.answer(
        Asked(logits=encoder.logits(queries), embeddings=queries.astype(np.float32)),
        Query(N_BITS - 1, budget=BUDGET, comparisons=COMPARISONS, rerank=_NEAREST),
    )
    first_found, ten_found = 0, 0
    for number, true in enumerate(np.asarray(vectors.neighbors)):
        mine: NDArray[np.int64] = hits.rows[hits.offsets[number] : hits.offsets[number + 1]]
        first_found += int(true[0] in mine)
        ten_found += len(np.intersect1d(mine[:10], true[:10]))
    return {"recall_at_100": first_found / len(queries), "recall_10_at_10": ten_found / 10 / len(queries)}


def main() -> None:
    """Measure each way, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data_folder() / "sift1m", help="folder of a set of vectors")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="folder of trained models")
    parser.add_argument("--train-only", action="store_true", help="stop when the models are trained")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random choices (default: %(default)s)")
    options = parser.parse_args()
    ways = (
        Way("default", None, all_markers=False),
        Way("long", TrainingOptions(steps=LONG_STEPS, batch_size=_BATCH), all_markers=True),
    )
    learn = np.asarray(open_vectors(options.data / "learn.npz"))
    if options.models is not None:
        options.models.mkdir(parents=True, exist_ok=True)
    if options.device != "cpu":
        # The first call on a GPU loads libraries, which is no part of training.
        some = np.random.default_rng(0).normal(size=(2000, learn.shape[1])).astype(np.float32)
        HashEncoder(N_BITS, training=TrainingOptions(steps=10), device=options.device).fit(some)
    models = [trained(way, learn, options.models, device=options.device, seed=options.seed) for way in ways]
    if options.train_only:
        print(json.dumps([times for _, times in models], indent=1))
        return
    vectors = open_vector_set(options.data)
    rows = []
    for encoder, times in models:
        row = {**times, **found(encoder, vectors)}
        rows.append(row)
        print(
            f"{row['way']:8} {row['steps']:5,} steps {row['seconds']:7.1f} s ({row['cpu_seconds']:.1f} s of CPU)  "
            f"recall@100 {row['recall_at_100']:.4f}  10@10 {row['recall_10_at_10']:.4f}",
            flush=True,
        )
    if options.out is not None:
        setting = {
            "set": vectors.name,
            "n_learn": len(learn),
            "n_rows": len(vectors.base),
            "n_queries": len(vectors.queries),
            "budget": BUDGET,
            "comparisons": COMPARISONS,
            "load": os.getloadavg()[0],
        }
        write_json(options.out, {"provenance": provenance(seed=options.seed), "setting": setting, "rows": rows})


if __name__ == "__main__":
    main()
