"""Compare losses and their settings by how soon probing finds the true neighbours.

    python -m research.trials.sift_losses --data ../shared/data/sift1m --out research/results/sift1m/losses.json

Each row of the results is one model of 64 bits, trained on 95% of the learning set. Settings are compared by
`held_out`: the other 5% are queries, the 95% are the base, and .1, .2 and .4% of its rows are read. `queries` are the
same figures for the set's own queries and base at 500 to 8,000 rows read. They are reported, but nothing is chosen by
them; `--held-out-only` leaves them out and needs the learning set only. `ranked_K` is the share of queries whose true
neighbour is among the first K of 4,000 rows read, ranked by the angle of the logits. `chosen_S` is the share of queries
whose true neighbour is among the first S of the base by asymmetric distance, of .6% that are read.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hamtarget.codes import substring_bounds
from hamtarget.datasets import open_vectors
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import HammingTargetLoss, HashModel, Neighbors, ProbingLoss, TrainingOptions, train
from hamtarget.learn.losses.base import LossTerms, PairLoss
from hamtarget.learn.networks.builder import DenseNet
from hamtarget.learn.networks.standardize import Standardize
from hamtarget.learn.similarity.nearest_neighbors import nearest_neighbors
from research.datasets.vector_sets import open_vector_set

N_BITS = 64
READS = (500, 1000, 2000, 4000, 8000)
RANKED = (100, 400)
# Rows read before some are chosen by asymmetric distance, and how many are: shares of the base.
SOON = 0.006
CHOSEN = (0.0003, 0.0006)

_SUBSTRING = {"loss": "hamming", "substring_weight": 1e4}
_LIKELIHOOD = {"loss": "likelihood"}
_PROBING = {"loss": "probing"}
_LOSSES: list[dict[str, Any]] = [
    *({**_SUBSTRING, "substring_weight": weight} for weight in (1e4, 3e4, 1e5)),
    *({**_SUBSTRING, "substring_weight": weight, "steps": 16000} for weight in (1e4, 3e4)),
    {**_SUBSTRING, "width": 512},
    {**_SUBSTRING, "width": 1024},
    {**_SUBSTRING, "batch_size": 4096},
    {**_SUBSTRING, "sharpness": 8.0},
    {**_SUBSTRING, "dissimilar_weight": 30.0},
    {**_SUBSTRING, "dissimilar_weight": 0.0},
    *({**_SUBSTRING, "radius": radius} for radius in ((2, 6), 6, 10)),
    *({**_LIKELIHOOD, "flips": (0,), "weight": weight} for weight in (1e4, 1e5)),
    *({**_LIKELIHOOD, "flips": (1,), "weight": weight} for weight in (1e3, 1e4)),
    *({**_LIKELIHOOD, "flips": (2,), "weight": weight} for weight in (1e3, 100.0)),
    {**_LIKELIHOOD, "flips": (3,), "weight": 100.0},
    {**_LIKELIHOOD, "flips": (0, 1, 2, 3), "weight": 1e3},
    *({**_PROBING, "temperature": temperature} for temperature in (0.1, 0.3, 1.0)),
    {**_PROBING, "sharpness": 2.0},
    {**_PROBING, "batch_size": 4096},
    *({**_SUBSTRING, "substrings": 4, "substring_weight": weight} for weight in (1e4, 3e4)),
    {**_LIKELIHOOD, "flips": (1,), "weight": 1e3, "substrings": 4},
    {**_PROBING, "substrings": 4},
    *({**_SUBSTRING, "neighbors": neighbors} for neighbors in (5, 20)),
]
_FOUR = {**_PROBING, "substrings": 4}
_FOR_SPEED: list[dict[str, Any]] = [
    _FOUR,
    {**_FOUR, "steps": 16000},
    {**_FOUR, "batch_size": 2048, "steps": 8000},
    {**_FOUR, "batch_size": 4096},
    *({**_FOUR, "width": width} for width in (96, 128, 512)),
    *({**_FOUR, "layers": layers} for layers in (1, 2)),
    *({**_FOUR, "temperature": temperature} for temperature in (0.2, 0.5)),
    *({**_FOUR, "sharpness": sharpness} for sharpness in (2.0, 8.0)),
    *({**_FOUR, "neighbors": neighbors} for neighbors in (3, 5, 20)),
    *({**_PROBING, "substrings": substrings} for substrings in (5, 6, 8)),
]
_SHALLOW = {**_FOUR, "layers": 2}
_CHOOSING: list[dict[str, Any]] = [
    _SHALLOW,
    *(
        {**_SHALLOW, "choosing_weight": weight, "choosing_temperature": temperature}
        for weight, temperature in ((0.3, 0.5), (1.0, 0.25), (1.0, 0.5), (1.0, 1.0), (3.0, 0.5), (3.0, 1.0))
    ),
    {**_SHALLOW, "temperature": 0.5, "choosing_weight": 1.0, "choosing_temperature": 1.0},
    {**_SHALLOW, "choosing_weight": 1.0, "steps": 16000},
    {**_SHALLOW, "choosing_weight": 1.0, "substrings": 3},
]
# "losses": which loss. "speed": which setting of the probing loss for short substrings, whose buckets are full.
# "choosing": how much the loss should care which rows are compared.
SETTINGS = {"losses": _LOSSES, "speed": _FOR_SPEED, "choosing": _CHOOSING}


class MultiIndexLikelihood(PairLoss):
    """Minus the log probability that a table finds a similar pair, and the rows that tables give for other pairs.

    A table finds a pair if its substrings differ in at most `flips` bits; the mean over all `flips` is taken.
    """

    def __init__(self, *, substrings: int, flips: Sequence[int], weight: float, sharpness: float) -> None:
        super().__init__(N_BITS, gather=False)
        self.flips, self.weight, self.sharpness = tuple(flips), weight, sharpness
        self.bounds = substring_bounds(N_BITS, substrings)

    def _terms(self, logits: Tensor, similar: Tensor) -> LossTerms:
        soft = torch.tanh(self.sharpness * logits)
        itself = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
        wanted, other = similar & ~itself, ~(similar | itself)
        missed, rows = logits.new_zeros(()), logits.new_zeros(())
        for most in self.flips:
            logs = torch.stack([self._log_found(soft[:, a:b], most) for a, b in self.bounds])
            found = logs.exp()
            none = torch.log1p(-found.clamp(max=1 - 1e-6)).sum(0)
            # Where every table is unlikely, 1 - product is their sum.
            any_table = torch.where(none > -1e-4, logs.logsumexp(0), torch.log(-torch.expm1(none.clamp(max=-1e-5))))
            missed = missed - (any_table * wanted).sum() / wanted.sum().clamp(min=1)
            rows = rows + (found.sum(0) * other).sum() / other.sum().clamp(min=1)
        missed, rows = missed / len(self.flips), rows / len(self.flips)
        return self._report(missed + self.weight * rows, logits, similar, similar=missed, substring=rows)

    @staticmethod
    def _log_found(soft: Tensor, most: int) -> Tensor:
        n_bits = soft.shape[1]
        differs = ((1 - soft @ soft.T / n_bits) / 2).clamp(1e-5, 1 - 1e-5)
        same = 1 - differs
        terms: Any = sum(math.comb(n_bits, k) * differs**k * same ** (most - k) for k in range(most + 1))
        return (n_bits - most) * torch.log(same) + torch.log(terms)

    def extra_repr(self) -> str:
        """Return the settings, by which a run is recognised."""
        return f"flips={self.flips}, weight={self.weight}, sharpness={self.sharpness}, bounds={self.bounds}"


def build_loss(setting: dict[str, Any]) -> PairLoss:
    """Return the loss of a setting."""
    substrings, sharpness = setting.get("substrings", 3), setting.get("sharpness", 4.0)
    if setting["loss"] == "probing":
        temperature = setting.get("temperature", 0.3)
        return ProbingLoss(
            N_BITS,
            substrings=substrings,
            temperature=temperature,
            sharpness=sharpness,
            choosing_weight=setting.get("choosing_weight", 0.0),
            choosing_temperature=setting.get("choosing_temperature", 0.5),
        )
    if setting["loss"] == "likelihood":
        return MultiIndexLikelihood(
            substrings=substrings, flips=setting["flips"], weight=setting["weight"], sharpness=sharpness
        )
    return HammingTargetLoss(
        N_BITS,
        setting.get("radius", 2),
        dissimilar_weight=setting.get("dissimilar_weight", 300.0),
        substring_weight=setting["substring_weight"],
        substrings=substrings,
        sharpness=sharpness,
    )


@torch.inference_mode()
def evaluate(
    model: HashModel, base: Tensor, queries: Tensor, truth: Tensor, substrings: int, reads: Sequence[int]
) -> dict[str, Any]:
    """Return the shares of queries whose true neighbour is read, and then ranked, early enough."""
    model.eval()
    rows = torch.cat([model(part) for part in base.split(65536)])
    signs, units = torch.where(rows > 0, 1.0, -1.0), F.normalize(rows, dim=1)
    places: list[Tensor] = []
    ranks: list[Tensor] = []
    chosen: list[Tensor] = []
    n_read = min(4000, len(base))
    for some, nearest in zip(model(queries).split(100), truth.split(100), strict=True):
        cost = torch.stack(
            [
                some[:, a:b].abs().sum(1, keepdim=True) - some[:, a:b] @ signs[:, a:b].T
                for a, b in substring_bounds(N_BITS, substrings)
            ]
        ).amin(0)
        of_nearest = cost.gather(1, nearest[:, None])
        places.append((cost < of_nearest).sum(1) + (cost == of_nearest).sum(1) / 2)
        read = cost.topk(n_read, dim=1, largest=False).indices
        # By asymmetric distance, among .6% of the rows.
        soon = cost.topk(round(SOON * len(base)), dim=1, largest=False).indices
        asymmetric = some @ signs.T
        first = (asymmetric.gather(1, soon) > asymmetric.gather(1, nearest[:, None])).sum(1)
        chosen.append(torch.where((soon == nearest[:, None]).any(1), first, len(base)))
        closeness = F.normalize(some, dim=1) @ units.T
        ahead = (closeness.gather(1, read) > closeness.gather(1, nearest[:, None])).sum(1)
        ranks.append(torch.where((read == nearest[:, None]).any(1), ahead, n_read))
    place, rank, choice = torch.cat(places), torch.cat(ranks), torch.cat(chosen)
    return {
        **{f"nearest_at_{read}": float((place < read).float().mean()) for read in reads},
        **{f"chosen_{share:%}": float((choice < share * len(base)).float().mean()) for share in CHOSEN},
        **{f"ranked_{k}": float((rank < k).float().mean()) for k in RANKED},
    }


def main() -> None:
    """Train, evaluate, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder of the data")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON file for the results")
    parser.add_argument(
        "--settings",
        choices=sorted(SETTINGS),
        default="losses",
        help="the group of settings to try (default: %(default)s)",
    )
    parser.add_argument("--held-out-only", action="store_true", help="use no queries; needs learn.npz only")
    parser.add_argument("--queries", type=int, default=2000, help="number of the set's queries")
    parser.add_argument("--steps", type=int, default=4000, help="batches to train on")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random choices (default: %(default)s)")
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="begin no new model after this many minutes (default: %(default)s)"
    )
    arguments = parser.parse_args()
    began = time.perf_counter()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    whole = None if arguments.held_out_only else open_vector_set(arguments.data)
    source = open_vectors(arguments.data / "learn.npz") if whole is None else whole.learn
    learn = torch.from_numpy(np.array(source)).to(device)
    if whole is not None:
        some = slice(arguments.queries)
        base, queries, truth = (
            torch.from_numpy(np.array(a)).to(device)
            for a in (whole.base, whole.queries[some], whole.neighbors[some, 0])
        )
    order = torch.randperm(len(learn), generator=torch.Generator().manual_seed(123)).to(device)
    n_aside = len(learn) // 20
    aside, kept = learn[order[:n_aside]], learn[order[n_aside:]]
    aside_truth = torch.cat([torch.cdist(part.float(), kept.float()).argmin(1) for part in aside.split(500)])
    neighbors = nearest_neighbors(kept, 20)
    rows: list[dict[str, Any]] = []
    for setting in SETTINGS[arguments.settings]:
        if time.perf_counter() - began > 60 * arguments.minutes:
            print("time is up; the rest is left out")
            break
        torch.manual_seed(arguments.seed)
        model = HashModel(
            DenseNet(learn.shape[1], width=setting.get("width", 256), layers=setting.get("layers", 3)), N_BITS
        )
        for module in model.modules():
            if isinstance(module, Standardize):
                module.fit(kept.cpu())
        model.to(device)
        options = TrainingOptions(
            steps=setting.get("steps", arguments.steps),
            batch_size=setting.get("batch_size", 1024),
            seed=arguments.seed,
            log_every=10**6,
            stop_on_collapse=False,
        )
        start = time.perf_counter()
        train(model, build_loss(setting), kept, Neighbors(neighbors[:, : setting.get("neighbors", 10)]), options)
        seconds = time.perf_counter() - start
        substrings = setting.get("substrings", 3)
        shares = [round(len(kept) * share) for share in (0.001, 0.002, 0.004)]
        row = {
            "setting": setting,
            "seconds": seconds,
            "held_out": evaluate(model, kept, aside, aside_truth, substrings, shares),
        }
        if whole is not None:
            row["queries"] = evaluate(model, base, queries, truth, substrings, READS)
        rows.append(row)
        print(row, flush=True)
        told = {"base_rows": len(base), "n_queries": len(queries)} if whole is not None else {}
        write_json(arguments.out, {**told, "provenance": provenance(seed=arguments.seed), "rows": rows})


if __name__ == "__main__":
    main()
