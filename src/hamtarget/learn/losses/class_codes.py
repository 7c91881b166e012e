"""Codes of classes for losses that learn by class: far from each other, or nearer where classes are alike."""

from __future__ import annotations

import torch
from torch import Tensor

from hamtarget.codes import check_n_bits
from hamtarget.errors import InputError, ShapeError

# Random codes among which the greedy choice is made, for each class.
_CANDIDATES = 64
# What a change of a code has to gain at least; less is rounding.
_LEAST_GAIN = 1e-9
# Draws of a code that no other class has, before there can be too few of them.
_MOST_DRAWS = 1000


def hadamard(size: int) -> Tensor:
    """Return the Sylvester-Hadamard matrix of +-1, (size, size): any two rows differ in half of their places.

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
    """Return a code of +-1 for each class, (n_classes, n_bits): rows of [H; -H], as in CSQ.

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
    """Return a code of +-1 for each class, (n_classes, n_bits), chosen greedily to be far from all others.

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


def codes_by_likeness(class_features: Tensor, n_bits: int, *, likeness: float = 1.0, seed: int = 0) -> Tensor:
    """Return a code of +-1 for each class, (n_classes, n_bits); classes that look alike get nearer codes.

    Each bit then parts the classes by what can be seen in them, and is easier to learn than one that parts them at
    random. No two codes are nearer to each other than the nearest two of `max_min_codes`, from which it starts. As long
    as something is gained, two classes swap their codes or a code changes one bit. What is gained: inner products of
    codes that are nearer to the cosines between the classes' features, which are brought to a mean of 0 and a spread
    of `likeness` times the root of `n_bits` (1 is the spread of random codes).

    Args:
        class_features: of each class, (n_classes, columns), such as the mean of its rows, see `class_means`. A class
            of which nothing is known has zeros.
        n_bits: length of a code.
        likeness: how near codes of like classes are to come; 0 keeps all codes as far apart as they can be.
        seed: of the codes to start from.

    Raises:
        ShapeError: the features are not a matrix.
        InputError: likeness is below 0.
    """
    if class_features.ndim != 2 or len(class_features) < 1:
        raise ShapeError(f"class_features have shape {tuple(class_features.shape)}; expected (n_classes, columns)")
    if not likeness >= 0:
        raise InputError(f"likeness is {likeness}; expected 0 or more")
    wanted = _standardized_cosines(class_features.double()) * likeness * n_bits**0.5
    codes = max_min_codes(len(class_features), n_bits, seed=seed).double()
    while _swap(codes, wanted) + _flip(codes, wanted):
        pass
    return codes.float()


def _swap(codes: Tensor, wanted: Tensor) -> int:
    """Let each class swap codes with the class that gains most, and return the number of swaps."""
    swaps = 0
    for one in range(len(codes)):
        products = _products(codes)
        # Of the sum of wanted x products over all pairs, for a swap with each other class.
        gain = (wanted[one] - wanted) * (products - products[one])
        gain[:, one] = 0
        gain.fill_diagonal_(0)
        best = int(gain.sum(1).argmax())
        if float(gain[best].sum()) > _LEAST_GAIN:
            codes[[one, best]] = codes[[best, one]]
            swaps += 1
    return swaps


def _flip(codes: Tensor, wanted: Tensor) -> int:
    """Flip bits that gain without bringing any two codes nearer than the nearest two, and return their number."""
    n_classes, n_bits = codes.shape
    flips = 0
    farthest_near = float((_products(codes) - n_bits * torch.eye(n_classes)).max())
    for one, code in enumerate(codes):
        while True:
            others = codes * code
            others[one] = 0
            products = others.sum(1)
            # The squared misfit grows by 4 a class, less what the change brings each product nearer to what is wanted.
            gain = others.T @ (products - wanted[one]) - (n_classes - 1)
            products[one] = -n_bits
            gain[(products[:, None] - 2 * others).amax(0) > farthest_near] = 0
            best = int(gain.argmax())
            if float(gain[best]) <= _LEAST_GAIN:
                break
            code[best] = -code[best]
            flips += 1
    return flips


def _products(codes: Tensor) -> Tensor:
    """Return the inner products of different codes, and 0 for a code with itself."""
    return (codes @ codes.T).fill_diagonal_(0)


def class_means(features: Tensor, labels: Tensor) -> Tensor:
    """Return the mean standardised features of each class, (n_labels, columns); 0 for a class without rows.

    Args:
        features: (rows, columns).
        labels: (rows, n_labels) of 0 and 1.
    """
    spread = features.std(0).clamp_min(1e-6)
    standardized = (features - features.mean(0)) / spread
    weights = labels.to(standardized)
    return weights.T @ standardized / weights.sum(0).clamp_min(1)[:, None]


def _standardized_cosines(features: Tensor) -> Tensor:
    """Return cosines between rows, scaled to mean 0 and spread 1 over different rows; 0 for rows of zeros."""
    lengths = features.norm(dim=1)
    cosines = (features @ features.T) / torch.outer(lengths, lengths).clamp_min(1e-12)
    known = torch.outer(lengths > 0, lengths > 0) & ~torch.eye(len(features), dtype=torch.bool)
    if not known.any():
        return torch.zeros_like(cosines)
    spread = cosines[known].std(correction=0).clamp_min(1e-12)
    return torch.where(known, (cosines - cosines[known].mean()) / spread, 0.0)
