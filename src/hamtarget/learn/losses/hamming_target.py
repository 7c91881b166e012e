"""HammingTargetLoss: the loss of the paper (2.1.2), with the substring term of its source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hamtarget.codes import check_radius, substring_bounds
from hamtarget.errors import InputError
from hamtarget.learn.losses.base import LossTerms, PairLoss
from hamtarget.learn.losses.binomial import FLOOR
from hamtarget.learn.losses.pair_cost import DissimilarCost, PairCost, Probability, has_kernel, total_cost

# Shorter vectors of logits are not stretched to unit length: their direction is rounding noise.
_SHORTEST = 1e-4


class HammingTargetLoss(PairLoss):
    """The loss of the paper: similar pairs should lie within `radius` bits, all others outside.

    It is computed over all pairs of a batch (J in the paper). Weight decay, the paper's last term, is the optimiser's.

    Args:
        n_bits: length of a code.
        radius: Hamming distance target r; or several, whose losses are averaged. One small radius trains "within or
            not", several train the whole ranking.
        dissimilar_weight: weight of dissimilar pairs within the radius (lambda in the paper). More of it gives fewer,
            but surer hits.
        probability: estimate of the chance that one bit of a pair differs. "soft_bits" takes it from
            `tanh(sharpness x logits)` and sees bits that all rows share. "angle" takes it from the angle between the
            logits, as in the paper.
        sharpness: sharpness of the soft bits. At 1 all codes can become one, see docs/experiments.md.
        pair_average: "per_kind" adds the mean over similar pairs and the mean over dissimilar pairs. "all_pairs"
            divides both sums by the number of all pairs.
        substring_weight: weight of the substring term, which lowers the number of rows that a multi-index reads.
        substrings: number of substrings. None: the smallest radius + 1.
        substring_cost: "expected_rows" is the chance that a dissimilar pair shares the substring, (1-P)^m.
            "log_likelihood" is minus the log of the chance that it does not, as in the paper's source.
        floor: probabilities nearer than this to 0 or 1 are continued by a straight line.
        gather: under torch.distributed, pair the rows of all processes; `similar` is then the whole batch's matrix.

    Example:
        >>> import torch
        >>> loss = HammingTargetLoss(16, radius=2, dissimilar_weight=30)
        >>> logits = torch.randn(8, 16, requires_grad=True)
        >>> similar = torch.arange(8)[:, None] % 2 == torch.arange(8) % 2
        >>> loss(logits, similar).total.backward()
    """

    def __init__(
        self,
        n_bits: int,
        radius: int | Sequence[int] = 2,
        *,
        dissimilar_weight: float = 300.0,
        probability: Probability = "soft_bits",
        sharpness: float = 4.0,
        pair_average: Literal["per_kind", "all_pairs"] = "per_kind",
        substring_weight: float = 0.0,
        substrings: int | None = None,
        substring_cost: DissimilarCost = "expected_rows",
        floor: float = FLOOR,
        gather: bool = False,
    ) -> None:
        super().__init__(n_bits, gather=gather)
        radii = [radius] if isinstance(radius, int) else list(radius)
        if not radii:
            raise InputError("radius is an empty sequence; expected one radius or several")
        self.radii = tuple(sorted(check_radius(r, self.n_bits) for r in radii))
        _check_choice("probability", probability, ("soft_bits", "angle"))
        _check_choice("pair_average", pair_average, ("per_kind", "all_pairs"))
        _check_choice("substring_cost", substring_cost, ("expected_rows", "log_likelihood"))
        for name, value in (("dissimilar_weight", dissimilar_weight), ("substring_weight", substring_weight)):
            if not 0 <= value < float("inf"):
                raise InputError(f"{name} is {value}; expected a number of 0 or more")
        if not 0 < sharpness < float("inf"):
            raise InputError(f"sharpness is {sharpness}; expected a number above 0 (4 works well, 1 collapses)")
        if not 0 < floor < 0.01:
            raise InputError(f"floor is {floor}; expected a small probability, above 0 and below .01")
        self.dissimilar_weight = float(dissimilar_weight)
        self.probability: Probability = probability
        self.sharpness = float(sharpness)
        self.pair_average = pair_average
        self.substring_weight = float(substring_weight)
        self.substrings = self.radii[0] + 1 if substrings is None else substrings
        self.substring_cost = substring_cost
        self.floor = floor
        self._bounds = substring_bounds(self.n_bits, self.substrings)
        self._whole_cost = PairCost(self.n_bits, self.radii, probability, floor=floor)
        # Two substrings match exactly where their distance is within 0.
        self._substring_costs = [
            PairCost(stop - start, (0,), probability, dissimilar=substring_cost, floor=floor)
            for start, stop in self._bounds
        ]

    @property
    def radius(self) -> int | tuple[int, ...]:
        """Hamming distance target; a tuple if there are several."""
        return self.radii[0] if len(self.radii) == 1 else self.radii

    @property
    def capturable(self) -> bool:
        """True with the kernel. Without it, pairs are computed by operations that a graph cannot hold."""
        return has_kernel()

    def _terms(self, logits: Tensor, similar: Tensor) -> LossTerms:
        n_rows = len(logits)
        n_pairs = n_rows * (n_rows - 1)
        n_similar = (similar.sum() - similar.diagonal().sum()).to(logits.dtype)
        n_dissimilar = n_pairs - n_similar
        if self.pair_average == "all_pairs":
            n_similar = n_dissimilar = torch.full_like(n_similar, n_pairs)
        # A kind without pairs has a sum of 0, and then a mean of 0.
        counts = torch.stack([n_similar, n_dissimilar]).clamp(min=1)

        units = self._units(logits)
        whole, sums = total_cost(
            units, similar, torch.stack([1 / counts[0], self.dissimilar_weight / counts[1]]), self._whole_cost
        )
        means = sums / counts
        total = whole
        substring = logits.new_zeros(())
        if self.substring_weight > 0:
            weights = torch.stack([torch.zeros_like(counts[0]), self.substring_weight / counts[1]])
            for (start, stop), cost in zip(self._bounds, self._substring_costs, strict=True):
                part = units[:, start:stop] if self.probability == "soft_bits" else self._units(logits[:, start:stop])
                term, sums = total_cost(part, similar, weights, cost)
                total = total + term
                substring = substring + sums[1] / counts[1]
        return self._report(total, logits, similar, similar=means[0], dissimilar=means[1], substring=substring)

    def _units(self, logits: Tensor) -> Tensor:
        """Return the vectors whose dot products count: soft bits, or logits of unit length (z in the paper)."""
        if self.probability == "soft_bits":
            return torch.tanh(self.sharpness * logits)
        return F.normalize(logits, dim=1, eps=_SHORTEST)

    def _diagnose(self, logits: Tensor, similar: Tensor) -> dict[str, float]:
        """Return the figures of `BatchLoss.diagnostics`, and how far the loss misjudges distances.

        Returns:
            predicted_within: share of dissimilar pairs that the loss believes to be within the smallest radius.
            actual_within: share that is within it. If it is far above the predicted one, bits depend on each other.
            chance_within: share that codes of independent, balanced bits would have.
        """
        similar = similar[: len(logits), : len(logits)]
        other = ~similar & ~torch.eye(len(logits), dtype=torch.bool, device=logits.device)
        n_other = other.sum().clamp(min=1)
        radius = self.radii[0]
        units = self._units(logits)
        smallest = PairCost(self.n_bits, (radius,), self.probability, dissimilar="expected_rows")
        predicted, _ = smallest.of_pairs(units @ units.T, torch.zeros_like(other))
        signs = torch.where(logits > 0, 1.0, -1.0)
        distance = (self.n_bits - signs @ signs.T) / 2
        return {
            **super()._diagnose(logits, similar),
            "predicted_within": float((predicted * other).sum() / n_other),
            "actual_within": float(((distance <= radius) & other).sum() / n_other),
            "chance_within": sum(math.comb(self.n_bits, k) for k in range(radius + 1)) / 2**self.n_bits,
        }

    def settings(self) -> dict[str, Any]:
        """Return the arguments that the value depends on, by name."""
        return {
            "n_bits": self.n_bits,
            "radius": self.radii[0] if len(self.radii) == 1 else list(self.radii),
            "dissimilar_weight": self.dissimilar_weight,
            "probability": self.probability,
            "sharpness": self.sharpness,
            "pair_average": self.pair_average,
            "substring_weight": self.substring_weight,
            "substrings": self.substrings,
            "substring_cost": self.substring_cost,
            "floor": self.floor,
        }

    def extra_repr(self) -> str:
        """Return all settings that the value depends on, for `print(loss)` and to recognise a run."""
        return ", ".join(f"{name}={value!r}" for name, value in self.settings().items())


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name} is {value!r}; expected one of {', '.join(map(repr, choices))}")
