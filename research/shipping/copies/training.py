"""Training a learned perceptual hash: altered views of one photo are similar, all other pairs are not.

python -m research.shipping.copies.training --photos photos.npz --out copies64.safetensors --steps 3400
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import HammingTargetLoss
from research.shipping.copies.alterations import Strength, alter
from research.shipping.copies.network import CopyNetwork
from research.shipping.copies.photos import STORED_SIDE, read_packs

_WARM_UP = 0.08
_LAST_RATE = 0.002
_AVERAGED_STEPS = 1000
_TOLD_SECONDS = 60.0


@dataclass(frozen=True)
class CopySettings:
    """Settings of a training run.

    Attributes:
        n_bits: bits of a code.
        width: channels of the network's stem.
        side: side of the network's pictures.
        radii: Hamming distance targets.
        weight: weight of dissimilar pairs at the end. One false pair in a million must weigh as much as a missed copy.
        first_weight: the same at the beginning. It grows evenly, on a logarithmic scale, until half of the steps.
        batch: photos of a step.
        views: altered views of each photo.
        steps: steps of training.
        seconds: time of training, instead of a number of steps; 0: as many steps as `steps` says.
        rate: largest learning rate.
        sharpness: sharpness of the soft bits.
        strength: frequency and strength of the alterations.
        seed: seed of the weights and the views.
    """

    n_bits: int = 64
    width: int = 32
    side: int = 64
    radii: tuple[int, ...] = (8, 11)
    weight: float = 3e5
    first_weight: float = 1e3
    batch: int = 1024
    views: int = 4
    steps: int = 3400
    seconds: float = 0.0
    rate: float = 3e-3
    sharpness: float = 2.0
    strength: Strength = field(default_factory=Strength)
    seed: int = 0


def train(photos: Tensor, aspects: Tensor, settings: CopySettings) -> tuple[CopyNetwork, int]:
    """Return a network that was trained on photos, (n, 3, h, w) uint8, on their device; and the steps of that."""
    torch.manual_seed(settings.seed)
    device = photos.device
    network = _network(settings).to(device)
    averaged = _network(settings).to(device)
    averaged.load_state_dict(network.state_dict())
    optimizer = torch.optim.AdamW(network.parameters(), lr=settings.rate, weight_decay=0.02, betas=(0.9, 0.98))
    loss = HammingTargetLoss(
        settings.n_bits, settings.radii, dissimilar_weight=settings.weight, sharpness=settings.sharpness
    )
    altered: Callable[..., Tensor] = alter
    trained: Callable[[Tensor], Tensor] = network
    if device.type == "cuda":
        altered, trained = torch.compile(alter, dynamic=False), torch.compile(network, dynamic=False)
    begun = told = time.perf_counter()
    step, spent = 0, 0.0
    while spent < 1:
        warm = min(1.0, spent / _WARM_UP)
        optimizer.param_groups[0]["lr"] = settings.rate * warm * max(_LAST_RATE, 0.5 * (1 + math.cos(math.pi * spent)))
        growth = settings.weight / settings.first_weight
        loss.dissimilar_weight = settings.first_weight * growth ** min(1.0, 2 * spent)
        items = torch.randint(0, len(photos), (settings.batch,), device=device)
        chosen = photos[items].float() / 255
        views = torch.cat(
            [altered(chosen, aspects[items], settings.side, settings.strength) for _ in range(settings.views)]
        )
        with torch.autocast(device.type, torch.bfloat16):
            logits = trained(views.to(memory_format=torch.channels_last))
        owners = items.repeat(settings.views)
        terms = loss(logits.float(), owners[:, None] == owners[None, :])
        optimizer.zero_grad(set_to_none=True)
        terms.total.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 2.0)
        optimizer.step()
        _average(averaged, network, 1 / min(_AVERAGED_STEPS, 1 + step / 5))
        if time.perf_counter() - told > _TOLD_SECONDS:
            told = time.perf_counter()
            facts = {"step": step, "similar": float(terms.similar), **terms.diagnostics()}
            print(json.dumps({name: float(f"{value:.3g}") for name, value in facts.items()}), flush=True)
        step += 1
        spent = (time.perf_counter() - begun) / settings.seconds if settings.seconds else step / settings.steps
    return averaged.eval(), step


def _network(settings: CopySettings) -> CopyNetwork:
    return CopyNetwork(settings.n_bits, width=settings.width, side=settings.side)


@torch.no_grad()
def _average(averaged: CopyNetwork, network: CopyNetwork, share: float) -> None:
    """Move the averaged weights a share of the way to the new ones."""
    for mine, new in zip(averaged.state_dict().values(), network.state_dict().values(), strict=True):
        if mine.dtype.is_floating_point:
            mine.lerp_(new, share)
        else:
            mine.copy_(new)


def main() -> None:
    """Train by the options of the command line; write the weights, and beside them the settings."""
    usual = CopySettings()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", nargs="+", type=Path, required=True, help="files that photos.py has written")
    parser.add_argument("--out", type=Path, required=True, help="file of the weights (.safetensors)")
    parser.add_argument("--bits", type=int, default=usual.n_bits)
    parser.add_argument("--width", type=int, default=usual.width)
    parser.add_argument("--radii", type=int, nargs="+", default=list(usual.radii))
    parser.add_argument("--weight", type=float, default=usual.weight)
    parser.add_argument("--batch", type=int, default=usual.batch)
    parser.add_argument("--steps", type=int, default=usual.steps)
    parser.add_argument("--seconds", type=float, default=usual.seconds, help="time of training, instead of --steps")
    parser.add_argument("--box", type=float, default=usual.strength.box)
    parser.add_argument("--crop", type=float, default=usual.strength.crop)
    parser.add_argument("--share", type=float, default=usual.strength.share)
    parser.add_argument("--seed", type=int, default=usual.seed)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    asked = parser.parse_args()
    settings = CopySettings(
        n_bits=asked.bits,
        width=asked.width,
        radii=tuple(asked.radii),
        weight=asked.weight,
        batch=asked.batch,
        steps=asked.steps,
        strength=Strength(crop=asked.crop, share=asked.share, box=asked.box),
        seconds=asked.seconds,
        seed=asked.seed,
    )
    photos, aspects = read_packs(asked.photos, STORED_SIDE)
    network, steps = train(photos.to(asked.device), aspects.to(asked.device), settings)
    # Half precision is as good for the codes, and half as large.
    weights = {
        name: (value.half() if value.dtype.is_floating_point else value).contiguous().cpu()
        for name, value in network.state_dict().items()
    }
    save_file(weights, asked.out)
    facts = {"n_photos": len(photos), **asdict(settings), "steps": steps, "provenance": provenance(seed=settings.seed)}
    write_json(asked.out.with_suffix(".json"), facts)


if __name__ == "__main__":
    main()
