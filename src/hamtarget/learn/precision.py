"""Full float32 precision where a loss needs it, whatever the rest of the program has set."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def full_float32(device_type: str) -> Iterator[None]:
    """Turn off autocast and float32 products of lower precision (TF32, bfloat16) inside.

    bfloat16 rounds a probability of .01 to 0, and TF32 puts half of all products of a unit vector with itself above 1.
    The settings for products are the process's own, so other threads see them too while this lasts.
    """
    with torch.autocast(device_type, enabled=False), _full_products():
        yield


@contextlib.contextmanager
def _full_products() -> Iterator[None]:
    backends: list[Any] = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]  # type: ignore[attr-defined]
    # torch has an older and a newer way to set this, and the older getter refuses once the newer was used alone.
    try:
        older = torch.get_float32_matmul_precision()
    except RuntimeError:
        older = None
    newer = [getattr(backend, "fp32_precision", "none") for backend in backends]
    inherited = getattr(torch.backends, "fp32_precision", "none")
    if older == "highest" and {*newer, inherited} <= {"none", "ieee"}:
        yield
        return
    torch.set_float32_matmul_precision("highest")
    for backend in backends:
        if getattr(backend, "fp32_precision", "ieee") != "ieee":
            backend.fp32_precision = "ieee"
    try:
        yield
    finally:
        if older is not None:
            torch.set_float32_matmul_precision(older)
        for backend, precision in zip(backends, newer, strict=True):
            if getattr(backend, "fp32_precision", precision) != precision:
                backend.fp32_precision = precision
