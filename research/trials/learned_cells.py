"""Compare cells that rows are kept in: k-means of the vectors, learned codes, and k-means of learned soft bits.

    python -m research.trials.learned_cells sift.npz --out research/results/learned_cells.json

The file has the arrays `base`, `learn` and `query` (`--make sift1m` writes it: 200,000, 60,000 and 2,000 rows).
A query reads whole cells, the most promising first. A figure is the share of its true 10 nearest rows that were read
by the time that so many rows were read. Nothing here needs the native core; a GPU takes about two minutes.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn.losses.probing import _mean_cost
from hamtarget.learn.networks.builder import DenseNet
from research.datasets.vector_sets import open_vector_set

READS = (250, 500, 1000, 2000, 4000)
K = 10
N_BITS = 12
N_CELLS = 2**N_BITS
# Networks as (layers, width).
NETWORKS = ((1, 64), (2, 256), (3, 1024))
LEARNED_BITS = 64
MARKERS, PARTNERS = 512, 3


def nearest(rows: Tensor, queries: Tensor, k: int) -> Tensor:
    """Return the numbers of the k nearest rows of each query by Euclidean distance, nearest first."""
    half = rows.square().sum(1) / 2
    return torch.cat([(half - some @ rows.T).topk(k, largest=False).indices for some in queries.split(1000)])


def kmeans(rows: Tensor, n: int, *, seed: int, iterations: int = 20) -> Tensor:
    """Return n centres by Lloyd's algorithm; a centre without rows starts again at a random row."""
    generator = torch.Generator().manual_seed(seed)
    centres = rows[torch.randperm(len(rows), generator=generator)[:n].to(rows.device)].clone()
    for _ in range(iterations):
        cell = nearest(centres, rows, 1)[:, 0]
        centres, count = cell_means(rows, cell, n)
        empty = count == 0
        if empty.any():
            again = torch.randint(len(rows), (int(empty.sum()),), generator=generator).to(rows.device)
            centres[empty] = rows[again]
    return centres


def cell_means(rows: Tensor, cell: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the mean row of each of n cells, and how many rows each has."""
    count = torch.bincount(cell, minlength=n)
    sums = torch.zeros(n, rows.shape[1], device=rows.device).index_add_(0, cell, rows)
    return sums / count.clamp(min=1)[:, None], count


def share_read(cells: Tensor, cost: Tensor, truth: Tensor) -> dict[str, float]:
    """Return the share of true neighbours that are read, by the number of rows read.

    Args:
        cells: the cells of each row, (rows, cells a row).
        cost: the order in which each query reads cells, smallest first, (queries, cells).
        truth: row numbers of each query's nearest rows.
    """
    size = torch.bincount(cells.flatten(), minlength=cost.shape[1])
    order = cost.argsort(1)
    rows_read = torch.zeros_like(order).scatter_(1, order, size[order].cumsum(1))
    first = rows_read.gather(1, cells[truth].flatten(1)).view(*truth.shape, -1).amin(2)
    return {str(reads): float((first <= reads).float().mean()) for reads in READS}


def train(learn: Tensor, near: Tensor, *, n_bits: int, layers: int, width: int, steps: int, seed: int) -> nn.Module:
    """Train a network for probing one table of n_bits, in the way of `ProbingLoss`, which takes whole bytes only."""
    torch.manual_seed(seed)
    dense = DenseNet(learn.shape[1], width=width, layers=layers).to(learn.device)
    dense.standardize.fit(learn)
    model = nn.Sequential(dense, nn.Linear(dense.out_features, n_bits), nn.BatchNorm1d(n_bits)).to(learn.device)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for _ in range(steps):
        markers = torch.randint(len(learn), (MARKERS,), device=learn.device)
        partners = torch.randint(near.shape[1], (MARKERS, PARTNERS), device=learn.device)
        items = torch.cat([markers, near[markers[:, None], partners].flatten()])
        similar = (near[items][:, :, None] == items).any(1)
        similar = similar | similar.T
        logits = model(learn[items])
        cost = (logits.abs().sum(1, keepdim=True) - logits @ torch.tanh(4 * logits).T) / 2
        itself = torch.eye(len(items), dtype=torch.bool, device=learn.device)
        optimizer.zero_grad(set_to_none=True)
        _mean_cost(cost / -0.3, similar & ~itself, similar | itself).backward()
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def logits_of(model: nn.Module, rows: Tensor) -> Tensor:
    """Return the network's logits in blocks of rows."""
    return torch.cat([model(some) for some in rows.split(50_000)])


class Trial:
    """Measure every kind of cells on one set of vectors."""

    def __init__(self, base: Tensor, learn: Tensor, query: Tensor, *, seed: int, steps: int) -> None:
        self.base, self.learn, self.query, self.seed, self.steps = base, learn, query, seed, steps
        self.truth = nearest(base, query, K)
        # The first one is the row itself.
        self.near = nearest(learn, learn, K + 1)[:, 1:]
        self.rows: list[dict[str, Any]] = []

    def note(self, cells: str, order: str, shares: dict[str, float], start: float) -> None:
        """Keep and print a result."""
        self.rows.append({"cells": cells, "order": order, "seed": self.seed, "found": shares})
        print(f"{cells}, {order}: {shares} ({time.perf_counter() - start:.0f} s)", flush=True)

    def distance(self, points: Tensor) -> Tensor:
        """Return what orders points by distance for each query."""
        return points.square().sum(1) / 2 - self.query @ points.T

    def distance_to_means(self, cell: Tensor) -> Tensor:
        """Return the same for the mean rows of cells; cells without rows come last."""
        means, count = cell_means(self.base, cell, N_CELLS)
        return self.distance(means).masked_fill_(count == 0, float("inf"))

    def plain(self) -> None:
        """Measure k-means of the vectors, with a row in its nearest cell, and in its two nearest."""
        for n in (N_CELLS // 4, N_CELLS, N_CELLS * 4):
            start = time.perf_counter()
            centres = kmeans(self.learn, n, seed=self.seed)
            for each in (1, 2):
                shares = share_read(nearest(centres, self.base, each), self.distance(centres), self.truth)
                self.note(f"k-means, {n} cells, {each} a row", "distance to the centre", shares, start)

    def learned_codes(self, layers: int, width: int) -> None:
        """Measure cells that are the values of a short learned code."""
        start = time.perf_counter()
        network = {"layers": layers, "width": width, "steps": self.steps, "seed": self.seed}
        model = train(self.learn, self.near, n_bits=N_BITS, **network)
        powers = 2 ** torch.arange(N_BITS, device=self.base.device)
        cell = ((logits_of(model, self.base) > 0) * powers).sum(1)
        signs = ((torch.arange(N_CELLS, device=powers.device)[:, None] & powers) > 0) * 2.0 - 1
        query = logits_of(model, self.query)
        name = f"learned code of {N_BITS} bits, {layers} x {width}"
        cost = query.abs().sum(1, keepdim=True) - query @ signs.T
        self.note(name, "query's logits", share_read(cell[:, None], cost, self.truth), start)
        shares = share_read(cell[:, None], self.distance_to_means(cell), self.truth)
        self.note(name, "distance to the mean row", shares, start)

    def learned_space(self, layers: int, width: int) -> None:
        """Measure k-means cells of learned soft bits."""
        start = time.perf_counter()
        network = {"layers": layers, "width": width, "steps": self.steps, "seed": self.seed}
        model = train(self.learn, self.near, n_bits=LEARNED_BITS, **network)
        learn, base, query = (torch.tanh(logits_of(model, rows)) for rows in (self.learn, self.base, self.query))
        centres = kmeans(learn, N_CELLS, seed=self.seed)
        cell = nearest(centres, base, 1)
        name = f"k-means of {LEARNED_BITS} learned soft bits, {N_CELLS} cells, {layers} x {width}"
        cost = centres.square().sum(1) / 2 - query @ centres.T
        self.note(name, "distance in that space", share_read(cell, cost, self.truth), start)
        shares = share_read(cell, self.distance_to_means(cell[:, 0]), self.truth)
        self.note(name, "distance to the mean row", shares, start)

    def run(self) -> None:
        """Measure all."""
        self.plain()
        for layers, width in NETWORKS:
            self.learned_codes(layers, width)
        self.learned_space(*NETWORKS[1])


def make(folder: Path, path: Path) -> None:
    """Write a part of a set of vectors that travels easily."""
    vectors = open_vector_set(folder)
    draw = np.random.default_rng(0)
    base = np.asarray(vectors.base)[draw.permutation(len(vectors.base) // 2)[:200_000]]
    learn = np.asarray(vectors.learn)[draw.permutation(len(vectors.learn))[:60_000]]
    np.savez_compressed(path, base=base, learn=learn, query=np.asarray(vectors.queries)[:2000])


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="npz file with base, learn and query")
    parser.add_argument("--make", type=Path, metavar="FOLDER", help="write that file from this set, and stop")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file for the results")
    parser.add_argument("--steps", type=int, default=3000, help="steps of training (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.make is not None:
        make(arguments.make, arguments.data)
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with np.load(arguments.data, allow_pickle=False) as file:
        base, learn, query = (torch.from_numpy(file[name]).to(device).float() for name in ("base", "learn", "query"))
    rows: list[dict[str, Any]] = []
    for seed in range(arguments.seeds):
        trial = Trial(base, learn, query, seed=seed, steps=arguments.steps)
        trial.run()
        rows += trial.rows
        if arguments.out is not None:
            sizes = {"base": len(base), "learn": len(learn), "queries": len(query)}
            setting = {**sizes, "steps": arguments.steps, "file": arguments.data.name}
            write_json(arguments.out, {"provenance": provenance(seed=0), "setting": setting, "rows": rows})


if __name__ == "__main__":
    main()
