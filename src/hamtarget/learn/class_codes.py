"""Fixed codes for classes, far from each other: what methods that learn by class centres aim at."""

from __future__ import annotations

import torch
from torch import Tensor

from hamtarget.codes import check_n_bits
from hamtarget.errors import InputError

# Random codes among which the greedy choice is made, for each class.
_CANDIDATES = 64
# Draws of a code that no other class has, before there can be too few of them.
_MOST_DRAWS = 1000


def hadamard(size: int) -> Tensor:
    """The Sylvester-Hadamard matrix of +-1, (size, size): any two rows differ in half of their places.

    Raises:
        InputError: the size is not a power of 2.
    """
    if size < 1 or size & (size - 1):
        raise InputError(f"size is {size}; expected a power of 2")
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix


def hadamard_centers(n_classes: int, n_bits: int, *, seed: int = 0) -> Tensor:
    """A code of +-1 for each class, (n_classes, n_bits): rows of [H; -H], as CSQ takes them.

    Where there are too few such rows (more than 2 `n_bits` classes), or `n_bits` is no power of 2, each code is a
    random one of as many 1 as -1, different from all others.

    Raises:
        InputError: there are not so many different codes.
    """
    check_n_bits(n_bits)
    if n_classes <= 2 * n_bits and not n_bits & (n_bits - 1):
        matrix = hadamard(n_bits)
        return torch.cat([matrix, -matrix])[:n_classes]
    generator = torch.Generator().manual_seed(seed)
    half = torch.cat([torch.ones(n_bits // 2), -torch.ones(n_bits - n_bits // 2)])
    chosen: dict[tuple[float, ...], Tensor] = {}
    draws = 0
    while len(chosen) < n_classes:
        code = half[torch.randperm(n_bits, generator=generator)]
        chosen.setdefault(tuple(code.tolist()), code)
        draws += 1
        if draws > _MOST_DRAWS * n_classes:
            raise InputError(f"{n_classes} classes need more different balanced codes than {n_bits} bits have")
    return torch.stack(list(chosen.values()))


def max_min_codes(n_classes: int, n_bits: int, *, seed: int = 0) -> Tensor:
    """A code of +-1 for each class, (n_classes, n_bits), chosen greedily to be far from the nearest other one.

    One code after another is the random candidate whose nearest chosen code is the farthest; of equals, the one whose
    mean distance is the largest.
    """
    check_n_bits(n_bits)
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (_CANDIDATES * n_classes, n_bits), generator=generator)
    candidates = signs.float() * 2 - 1
    chosen = [candidates[0]]
    nearest = torch.full((len(candidates),), float(n_bits))
    total = torch.zeros(len(candidates))
    for _ in range(1, n_classes):
        distance = (n_bits - candidates @ chosen[-1]) / 2
        nearest = torch.minimum(nearest, distance)
        total += distance
        # Distances are whole numbers, and the mean is below n_bits: it decides between equals only.
        best = int((nearest + total / (len(chosen) * (n_bits + 1))).argmax())
        chosen.append(candidates[best])
    return torch.stack(chosen)
