"""Compare estimates of P and other settings of the loss: the evidence for the defaults.

    python -m research.trials.probability_choice --data ../shared/data --out research/results/probability_choice.json

There are two tasks with several seeds; each row of the results is one model. The tasks are images with labels (the
bundled Fashion-MNIST sample) and SIFT vectors with their 10 nearest neighbours as similar. SIFT is skipped, with a
message, if `sift1m` is not in the folder of data. Its figures are:

- `rows_read`: distinct rows that exact look-up in r+1 substring tables reads for a query;
- `within`: rows within the radius, and `nearest_within`: share of queries whose true neighbour is one of them;
- `nearest_at_K`: share of queries whose true neighbour is among the first K rows in query-directed order, where a row
  comes at the smallest sum of |logit| over the bits in which one of its substrings differs.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hamtarget import codes
from hamtarget.datasets import fashion_sample
from hamtarget.evaluation import metrics
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import Neighbors
from hamtarget.learn.similarity.nearest_neighbors import nearest_neighbors
from research.paper.encoder_settings import encoder_of

READ = (1000, 2000, 4000, 8000)

IMAGE_SETTINGS: list[dict[str, Any]] = [
    {
        "n_bits": n_bits,
        "radius": radius,
        "probability": probability,
        "sharpness": sharpness,
        "dissimilar_weight": weight,
    }
    for n_bits, several in ((16, (2, 4)), (32, (2, 4, 8)), (64, (2, 6, 12, 18)))
    for probability, sharpness in (("angle", 1.0), ("soft_bits", 1.0), ("soft_bits", 2.0), ("soft_bits", 4.0))
    for radius, weight in ((2, 30.0), (2, 300.0), (several, 30.0))
]
SIFT_SETTINGS: list[dict[str, Any]] = [
    *({"probability": "angle", "dissimilar_weight": weight} for weight in (100.0, 300.0, 1000.0)),
    *({"probability": "soft_bits", "sharpness": sharpness} for sharpness in (1.0, 2.0, 4.0, 8.0)),
    *({"probability": "soft_bits", "sharpness": 4.0, "dissimilar_weight": weight} for weight in (100.0, 1000.0)),
    *(
        {"probability": "soft_bits", "sharpness": 4.0, "substring_weight": weight, "substring_cost": cost}
        for weight in (300.0, 3000.0, 10000.0)
        for cost in ("expected_rows", "log_likelihood")
    ),
    {"probability": "soft_bits", "sharpness": 2.0, "substring_weight": 3000.0},
    {"probability": "angle", "substring_weight": 3000.0},
    {"probability": "soft_bits", "sharpness": 4.0, "substring_weight": 3000.0, "center": "median"},
]


def images(setting: dict[str, Any], steps: int, seed: int, device: str) -> dict[str, Any]:
    """Measure retrieval by label on the bundled images."""
    sample = fashion_sample()
    start = time.perf_counter()
    encoder = encoder_of({**setting, "steps": steps, "batch_size": 256, "seed": seed}, device=device)
    encoder.fit(sample.images, sample.labels)
    seconds = time.perf_counter() - start
    n_bits = setting["n_bits"]
    database, queries = encoder.encode(sample.images), encoder.encode(sample.query_images)
    relevant = metrics.by_label(sample.query_labels, sample.labels)
    curve = metrics.precision_recall_by_radius(queries, database, relevant, n_bits=n_bits, max_radius=2)
    return {
        "map": metrics.mean_average_precision(queries, database, relevant, n_bits=n_bits, k=1000),
        "precision_within_2": float(curve.precision[2]),
        "recall_within_2": float(curve.recall[2]),
        "bit_correlation": metrics.bit_correlation(database, n_bits),
        "seconds": seconds,
    }


class Sift:
    """Vectors to learn from, to search in and to search with, and the true neighbour of each query."""

    def __init__(self, folder: Path, device: str, n_queries: int) -> None:
        self.device = device
        self.learn = torch.from_numpy(np.load(folder / "learn.npz")["vectors"]).to(device)
        parts = sorted(folder.glob("base-*.npz"))
        self.base = torch.cat([torch.from_numpy(np.load(part)["vectors"]) for part in parts]).to(device)
        self.queries = torch.from_numpy(np.load(folder / "query.npz")["vectors"][:n_queries]).to(device)
        self.similar = Neighbors(nearest_neighbors(self.learn, 10))
        base = self.base.float()
        squares = base.pow(2).sum(1)
        self.truth = torch.cat(
            [torch.addmm(squares[None], q.float(), base.T, alpha=-2).argmin(1) for q in self.queries.split(100)]
        )

    def evaluate(self, setting: dict[str, Any], steps: int, seed: int, batch_size: int) -> dict[str, Any]:
        """Train one model and look the queries up in the codes of the base."""
        n_bits, radius = 64, 2
        start = time.perf_counter()
        training = {"steps": steps, "batch_size": batch_size, "seed": seed}
        encoder = encoder_of({"n_bits": n_bits, "radius": radius, **training, **setting}, device=self.device)
        encoder.fit(self.learn, self.similar)
        seconds = time.perf_counter() - start
        base, query = encoder.logits(self.base), encoder.logits(self.queries)
        signs = torch.from_numpy(np.where(base > 0, np.float32(1), np.float32(-1))).to(self.device)
        logits = torch.from_numpy(query).to(self.device)
        bounds = codes.substring_bounds(n_bits, radius + 1)
        read = within = found = 0.0
        ranks: list[Tensor] = []
        for some, truth in zip(logits.split(100), self.truth.split(100), strict=True):
            # sum of |logit| over differing bits = (sum |logit| - logit . sign) / 2
            costs = torch.stack(
                [(some[:, a:b].abs().sum(1)[:, None] - some[:, a:b] @ signs[:, a:b].T) / 2 for a, b in bounds]
            )
            cost = costs.amin(0)
            of_truth = cost.gather(1, truth[:, None])
            # Rows at one cost are read in no particular order: on average half of them come first.
            ranks.append((cost < of_truth).sum(1) + (cost == of_truth).sum(1) / 2)
            sign = torch.where(some > 0, 1.0, -1.0)
            same = torch.stack([sign[:, a:b] @ signs[:, a:b].T == b - a for a, b in bounds]).any(0)
            near = sign @ signs.T >= n_bits - 2 * radius
            read += float(same.sum())
            within += float(near.sum())
            found += float(near.gather(1, truth[:, None]).sum())
        rank = torch.cat(ranks)
        n_queries = len(self.queries)
        packed = codes.from_logits(base)
        return {
            "rows_read": read / n_queries,
            "within": within / n_queries,
            "nearest_within": found / n_queries,
            **{f"nearest_at_{k}": float((rank < k).float().mean()) for k in READ},
            "bit_correlation": metrics.bit_correlation(packed, n_bits),
            "seconds": seconds,
        }


def main() -> None:
    """Train, evaluate, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("HAMTARGET_DATA", "../shared/data")), help="folder of the data"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("research/results/probability_choice.json"), help="JSON file for the results"
    )
    parser.add_argument(
        "--image-steps", type=int, default=500, help="batches to train on, for images (default: %(default)s)"
    )
    parser.add_argument(
        "--sift-steps", type=int, default=4000, help="batches to train on, for SIFT (default: %(default)s)"
    )
    parser.add_argument("--sift-batch", type=int, default=1024, help="rows of a batch, for SIFT (default: %(default)s)")
    parser.add_argument("--queries", type=int, default=2000, help="number of queries (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: %(default)s)")
    parser.add_argument("--only", choices=["images", "sift"], default=None, help="only this task")
    parser.add_argument(
        "--minutes", type=float, default=9.0, help="begin no new model after this many minutes (default: %(default)s)"
    )
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    began = time.perf_counter()
    result: dict[str, Any] = {
        "provenance": provenance(seed=0),
        "setting": {key: str(value) for key, value in vars(arguments).items() if key not in ("data", "out")},
        "images": [],
        "sift": [],
    }
    sift = None
    if arguments.only != "images":
        folder = arguments.data / "sift1m"
        if (folder / "learn.npz").exists():
            sift = Sift(folder, device, arguments.queries)
            result["setting"]["sift_base_rows"] = len(sift.base)
        else:
            print(f"SKIPPED: sift, because {folder / 'learn.npz'} does not exist (set HAMTARGET_DATA)")
    jobs: list[tuple[str, dict[str, Any], int]] = []
    for seed in range(arguments.seeds):
        if sift is not None:
            jobs += [("sift", setting, seed) for setting in SIFT_SETTINGS]
        if arguments.only != "sift":
            jobs += [("images", setting, seed) for setting in IMAGE_SETTINGS]
    for task, setting, seed in jobs:
        if time.perf_counter() - began > 60 * arguments.minutes:
            print("time is up; the rest is left out")
            break
        if task == "sift" and sift is not None:
            row = sift.evaluate(setting, arguments.sift_steps, seed, arguments.sift_batch)
        else:
            row = images(setting, arguments.image_steps, seed, device)
        result[task].append({"setting": setting, "seed": seed, **row})
        shown = " ".join(f"{key}={value:.4g}" for key, value in row.items())
        print(f"{task} seed {seed} {setting}: {shown}", flush=True)
        write_json(arguments.out, result)


if __name__ == "__main__":
    main()
