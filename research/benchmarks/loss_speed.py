"""Time forward and backward of the loss over all pairs of a batch, beside the same formula in plain autograd.

    python -m research.benchmarks.loss_speed --batch 1024 4096 8192 --out research/results/loss_speed.json

Both are timed in one run, in turns, on the GPU if there is one. Values and gradients are compared with float64 first.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import HammingTargetLoss

N_BITS, RADIUS, WEIGHT, SHARPNESS, FLOOR = 64, 2, 300.0, 4.0, 1e-6


def plain_loss(logits: Tensor, similar: Tensor) -> Tensor:
    """Compute the same loss as a textbook would write it: sums of powers, differentiated by autograd."""
    soft = torch.tanh(SHARPNESS * logits)
    p = ((1 - soft @ soft.T / N_BITS) / 2).clamp(FLOOR, 1 - FLOOR)
    q = 1 - p
    within: Tensor = torch.zeros_like(p)
    for k in range(RADIUS + 1):
        within = within + math.comb(N_BITS, k) * p**k * q ** (RADIUS - k)
    outside: Tensor = torch.zeros_like(p)
    for k in range(RADIUS + 1, N_BITS + 1):
        outside = outside + math.comb(N_BITS, k) * p ** (k - RADIUS - 1) * q ** (N_BITS - k)
    log_within = (N_BITS - RADIUS) * torch.log(q) + torch.log(within)
    log_outside = (RADIUS + 1) * torch.log(p) + torch.log(outside)
    pairs = ~torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    near, far = similar & pairs, ~similar & pairs
    return -(log_within * near).sum() / near.sum() - WEIGHT * (log_outside * far).sum() / far.sum()


def batch(size: int, device: str, seed: int) -> tuple[Tensor, Tensor]:
    """Return logits in groups of 4 that lie near each other, and a matrix that is True for pairs of one group."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(size // 4, N_BITS, generator=generator).repeat_interleave(4, dim=0)
    logits = centres + 0.3 * torch.randn(size, N_BITS, generator=generator)
    group = torch.arange(size) // 4
    return logits.to(device).requires_grad_(), (group[:, None] == group).to(device)


def forward_backward(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, similar: Tensor) -> float:
    """Return the seconds of one forward and backward pass."""
    logits.grad = None
    if logits.is_cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    loss(logits, similar).backward()
    if logits.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def peak_floats(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, similar: Tensor) -> float | None:
    """Return the most memory that a pass adds, in floats of 4 bytes over b^2; None if it cannot be measured."""
    if not logits.is_cuda:
        return None
    logits.grad = None
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    loss(logits, similar).backward()
    return (torch.cuda.max_memory_allocated() - before) / 4 / len(logits) ** 2


def difference(device: str, seed: int, options: dict[str, Any]) -> dict[str, float]:
    """Return the errors of float32 on `device` against float64 on the CPU, of the value and of the gradient."""
    logits, similar = batch(512, "cpu", seed)
    loss = HammingTargetLoss(N_BITS, **options)
    exact = loss(logits.double(), similar).total
    (exact_gradient,) = torch.autograd.grad(exact, logits)
    there = logits.detach().to(device).requires_grad_()
    value = loss(there, similar.to(device)).total
    (gradient,) = torch.autograd.grad(value, there)
    return {
        "value": abs(value.item() - exact.item()) / abs(exact.item()),
        "gradient": float((gradient.cpu() - exact_gradient).abs().max() / exact_gradient.abs().max()),
    }


def measure(size: int, device: str, repeats: int, seed: int) -> dict[str, Any]:
    """Measure time and memory of both versions at one batch size."""
    logits, similar = batch(size, device, seed)
    ours = HammingTargetLoss(N_BITS, RADIUS, dissimilar_weight=WEIGHT, sharpness=SHARPNESS)
    versions: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "hamtarget": lambda y, s: ours(y, s).total,
        "plain": plain_loss,
    }
    result: dict[str, Any] = {"batch_size": size}
    values = {}
    for name, version in list(versions.items()):
        try:
            forward_backward(version, logits, similar)
            values[name] = float(version(logits, similar).detach())
            result[f"{name}_floats_per_pair"] = peak_floats(version, logits, similar)
        except torch.OutOfMemoryError:
            result[f"{name}_floats_per_pair"] = "out of memory"
            del versions[name]
    times: dict[str, list[float]] = {name: [] for name in versions}
    for _ in range(repeats):
        for name, version in versions.items():
            times[name].append(forward_backward(version, logits, similar))
    result |= {f"{name}_ms": 1e3 * statistics.median(seconds) for name, seconds in times.items()}
    if len(versions) == 2:
        result["speed_up"] = result["plain_ms"] / result["hamtarget_ms"]
        result["value_difference"] = abs(values["plain"] - values["hamtarget"]) / abs(values["plain"])
    return result


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=None, help="batch sizes")
    parser.add_argument(
        "--repeats", type=int, default=11, help="number of timings; the median counts (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all random choices (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=None, help="JSON file for the results")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = arguments.batch or ([1024, 4096, 8192] if device == "cuda" else [256, 1024])
    out = arguments.out or Path("research/results") / f"loss_speed_{device}.json"

    options: list[dict[str, Any]] = [
        {"radius": 2},
        {"radius": 2, "probability": "angle"},
        {"radius": [2, 6, 12], "sharpness": 2.0},
        {"radius": 2, "substring_weight": 300.0},
        {"radius": 2, "substring_weight": 300.0, "substring_cost": "log_likelihood", "probability": "angle"},
    ]
    checks = []
    for option in options:
        found = difference(device, arguments.seed, option)
        print(f"{device} against float64: value {found['value']:.1e}, gradient {found['gradient']:.1e} {option}")
        checks.append({"options": option, **found})
    rows = []
    for size in sizes:
        row = measure(size, device, arguments.repeats, arguments.seed)
        rows.append(row)
        print(", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
    setting = {"n_bits": N_BITS, "radius": RADIUS, "dissimilar_weight": WEIGHT, "sharpness": SHARPNESS}
    write_json(
        out,
        {
            "provenance": provenance(seed=arguments.seed),
            "setting": {**setting, "repeats": arguments.repeats, "data": "generated"},
            "against_float64": checks,
            "rows": rows,
        },
    )


if __name__ == "__main__":
    main()
