"""The Hamming-distance-target loss (paper 2.1.2, with the substring term that its source leaves commented out)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hamtarget.codes import check_n_bits, check_radius, substring_bounds
from hamtarget.errors import DtypeError, InputError, NotFiniteError, ShapeError
from hamtarget.learn.binomial import FLOOR
from hamtarget.learn.distributed import gather_rows
from hamtarget.learn.pair_cost import DissimilarCost, PairCost, Probability, total_cost
from hamtarget.learn.precision import full_float32

# Shorter vectors of logits are not stretched to unit length: their direction is rounding noise.
_SHORTEST = 1e-4
# Diagnostics look at so many rows of a batch at the most.
_DIAGNOSED_ROWS = 2048


@dataclass(frozen=True)
class LossTerms:
    """The loss of a batch (`total`, with gradient) and what it is made of (without).

    Attributes:
        total: similar + dissimilar_weight x dissimilar + substring_weight x substring; call `backward` on it.
        similar: mean cost of a similar pair, -J1 in the paper.
        dissimilar: mean cost of another pair, -J2.
        substring: cost of dissimilar pairs that share a substring, summed over substrings; 0 if not asked for.
    """

    total: Tensor
    similar: Tensor
    dissimilar: Tensor
    substring: Tensor
    _diagnose: tuple[HammingTargetLoss, Tensor, Tensor] = field(repr=False)

    def diagnostics(self) -> dict[str, float]:
        """Whether the codes of the batch keep the loss's own assumptions; see `HammingTargetLoss.diagnostics`."""
        loss, logits, is_similar = self._diagnose
        return loss.diagnostics(logits, is_similar)


class HammingTargetLoss(nn.Module):
    """Cost of similar pairs outside, and other pairs inside, `radius` bits, over all pairs of a batch (J).

    Args:
        n_bits: length of a code.
        radius: the Hamming distance target r; or several, whose losses are averaged: one small radius trains
            "within or not", several train the whole ranking.
        dissimilar_weight: lambda of the paper: how much a dissimilar pair within the radius costs.
        probability: how the chance that one bit of a pair differs is estimated. "soft_bits": from
            `tanh(sharpness x logits)`, which sees bits that are shared by all rows; "angle": from the angle of the
            logits, as in the paper.
        sharpness: of the soft bits; at 1 all codes can become one, see docs/experiments.md.
        pair_average: "per_kind": the mean over similar and the mean over other pairs; "all_pairs": both sums over
            the number of all pairs.
        substring_weight: weight of the substring term, which lowers the rows that a multi-index reads; 0: none.
        substrings: number of substrings; `radius + 1` (of the smallest radius) if not given.
        substring_cost: "expected_rows": the chance that a dissimilar pair shares the substring, (1-P)^m;
            "log_likelihood": minus the log of the chance that it does not, as in the paper's source.
        floor: probabilities nearer than this to 0 or 1 are treated by a straight line.
        gather: under torch.distributed, pair the rows of all processes; `similar` is then the whole batch's matrix.

    Weight decay, the paper's last term, is the optimiser's.
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
        super().__init__()
        self.n_bits = check_n_bits(n_bits)
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
        self.gather = gather
        self._bounds = substring_bounds(self.n_bits, self.substrings)
        self._whole_cost = PairCost(self.n_bits, self.radii, probability, floor=floor)
        # Two substrings match exactly where their distance is within 0.
        self._substring_costs = [
            PairCost(stop - start, (0,), probability, dissimilar=substring_cost, floor=floor)
            for start, stop in self._bounds
        ]

    def forward(self, logits: Tensor, similar: Tensor) -> LossTerms:
        """The loss of all ordered pairs of different rows of a batch.

        Args:
            logits: (b, n_bits) real values, batch-normalised; any floating type, computed in float32 or float64.
            similar: (b, b) boolean: entry (i, j) says whether row j is similar to row i. Any pattern: it need not be
                symmetric or transitive. The diagonal is not looked at.

        Raises:
            ShapeError, DtypeError: the two do not fit each other or `n_bits`.
            NotFiniteError: logits on a CPU hold NaN or infinity. On a GPU the check would wait for the device: there
                the loss itself becomes NaN, and the trainer says so.
        """
        self._check(logits)
        if self.gather:
            logits = gather_rows(logits)
        if similar.dtype != torch.bool:
            raise DtypeError(f"similar has dtype {similar.dtype}; expected torch.bool")
        if similar.shape != (len(logits), len(logits)):
            hint = "; with gather=True it is the matrix of the whole batch of all processes" if self.gather else ""
            raise ShapeError(
                f"similar has shape {tuple(similar.shape)}; {len(logits)} rows of logits need "
                f"{(len(logits), len(logits))}{hint}"
            )
        with full_float32(logits.device.type):
            if logits.dtype != torch.float64:
                logits = logits.float()
            return self._terms(logits, similar)

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
        return LossTerms(total, means[0], means[1], substring, (self, logits.detach(), similar))

    def _units(self, logits: Tensor) -> Tensor:
        """What the dot products are taken of: soft bits, or logits of unit length (z in the paper)."""
        if self.probability == "soft_bits":
            return torch.tanh(self.sharpness * logits)
        return F.normalize(logits, dim=1, eps=_SHORTEST)

    @torch.no_grad()
    def diagnostics(self, logits: Tensor, similar: Tensor) -> dict[str, float]:
        """Whether codes keep the assumptions of the loss, from at most the first 2,048 rows of a batch.

        Returns:
            bit_balance: 1 if each bit is 1 for half of the rows, 0 if each is constant.
            bit_correlation: mean absolute correlation of two bits; independent bits have nearly 0.
            predicted_within: share of dissimilar pairs that the loss believes within the (smallest) radius.
            actual_within: the share that is. Far above the predicted one, the bits depend on each other.
        """
        with full_float32(logits.device.type):
            logits = logits[:_DIAGNOSED_ROWS]
            logits = logits if logits.dtype == torch.float64 else logits.float()
            n_rows = len(logits)
            other = ~similar[:n_rows, :n_rows]
            other = other & ~torch.eye(n_rows, dtype=torch.bool, device=logits.device)
            n_other = other.sum().clamp(min=1)

            signs = torch.where(logits > 0, 1.0, -1.0)
            mean = signs.mean(0)
            centred = signs - mean
            deviation = centred.pow(2).mean(0).sqrt().clamp(min=1e-6)
            correlation = (centred.T @ centred) / n_rows / deviation / deviation[:, None]
            off_diagonal = correlation.abs().sum() - correlation.diagonal().abs().sum()

            radius = self.radii[0]
            units = self._units(logits)
            smallest = PairCost(self.n_bits, (radius,), self.probability, dissimilar="expected_rows")
            predicted, _ = smallest.of_pairs(units @ units.T, torch.zeros_like(other))
            distance = (self.n_bits - signs @ signs.T) / 2
            return {
                "bit_balance": float(1 - mean.abs().mean()),
                "bit_correlation": float(off_diagonal / (self.n_bits * (self.n_bits - 1))),
                "predicted_within": float((predicted * other).sum() / n_other),
                "actual_within": float(((distance <= radius) & other).sum() / n_other),
            }

    def _check(self, logits: Tensor) -> None:
        if logits.ndim != 2 or logits.shape[1] != self.n_bits:
            raise ShapeError(f"logits have shape {tuple(logits.shape)}; expected (rows, {self.n_bits})")
        if not logits.dtype.is_floating_point:
            raise DtypeError(f"logits have dtype {logits.dtype}; expected a floating type")
        if len(logits) < 2 and not self.gather:
            raise ShapeError(f"the batch has {len(logits)} rows; a pair needs at least 2")
        if logits.device.type == "cpu" and not torch.isfinite(logits).all():
            raise NotFiniteError("logits hold NaN or infinity; expected finite numbers: check inputs and learning rate")

    def extra_repr(self) -> str:
        """All settings that the value depends on, for `print(loss)` and to recognise a run by."""
        settings = {
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
        return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name} is {value!r}; expected one of {', '.join(map(repr, choices))}")
