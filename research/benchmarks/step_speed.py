"""Time one whole training step of the paper's SIFT network, through `hamtarget.learn.train`.

    python -m research.benchmarks.step_speed --batch 1024 --out research/results/step_speed.json

A step is everything: drawing the batch and its matrix of similar pairs, forward, loss, backward, clipping, AdamW. Times
are taken between two calls of `progress`, which wait for the device.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import HammingTargetLoss, HashModel, Neighbors, TrainingOptions, train
from hamtarget.learn.networks.builder import DenseNet
from hamtarget.learn.similarity.nearest_neighbors import nearest_neighbors
from hamtarget.learn.training.checkpoint import TrainingProgress

N_ITEMS = 100_000


def measure(
    batch_size: int, steps: int, device: str, seed: int, *, cuda_graph: bool, substring: bool
) -> dict[str, Any]:
    """Return the milliseconds of a step, by the median over stretches of steps."""
    torch.manual_seed(seed)
    inputs = torch.randint(0, 256, (N_ITEMS if device == "cuda" else 10_000, 128), dtype=torch.uint8, device=device)
    similarity = Neighbors(nearest_neighbors(inputs, 10))
    model = HashModel(DenseNet(128), 64).to(device)
    loss = HammingTargetLoss(64, 2, substring_weight=300.0 if substring else 0.0)
    stretch = max(1, steps // 10)
    options = TrainingOptions(
        steps=steps, batch_size=batch_size, group_size=4, seed=seed, log_every=stretch, cuda_graph=cuda_graph
    )
    stamps: list[float] = []

    def note(_: TrainingProgress) -> None:
        stamps.append(time.perf_counter())

    train(model, loss, inputs, similarity, options, progress=note)
    # The first stretch includes compilation and capture.
    times = [1e3 * (after - before) / stretch for before, after in zip(stamps, stamps[1:], strict=False)]
    return {
        "batch_size": batch_size,
        "cuda_graph": cuda_graph and device == "cuda",
        "substring_term": substring,
        "step_ms": statistics.median(times),
        "slowest_stretch_ms": max(times),
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1024, help="rows of a batch (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=None, help="batches to train on")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random choices (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=None, help="JSON file for the results")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    steps = arguments.steps or (2000 if device == "cuda" else 20)
    out = arguments.out or Path("research/results") / f"step_speed_{device}.json"
    rows = []
    for cuda_graph in [True, False] if device == "cuda" else [False]:
        for substring in (False, True):
            row = measure(arguments.batch, steps, device, arguments.seed, cuda_graph=cuda_graph, substring=substring)
            rows.append(row)
            print(row, flush=True)
    write_json(
        out,
        {
            "provenance": provenance(seed=arguments.seed),
            "setting": {
                "network": "DenseNet 128-256x3",
                "n_bits": 64,
                "radius": 2,
                "steps": steps,
                "data": "generated",
            },
            "rows": rows,
        },
    )


if __name__ == "__main__":
    main()
