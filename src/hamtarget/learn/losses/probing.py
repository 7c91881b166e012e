"""ProbingLoss: a loss for query-directed probing, in which similar rows should be read before all others."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hamtarget.codes import substring_bounds
from hamtarget.errors import InputError
from hamtarget.learn.losses.base import LossTerms, PairLoss

# Log closeness of a row that is no rival: below that of any real one.
_FAR = -1e30
# Substrings of so many bits make few, full buckets: probing them reads the most rows in the least time.
_SUBSTRING_BITS = 16


def default_substrings(n_bits: int) -> int:
    """Return the number of substrings of about 16 bits: 4 for 64 bits."""
    return max(1, round(n_bits / _SUBSTRING_BITS))


class ProbingLoss(PairLoss):
    """A loss for query-directed probing: a similar row should be read before all dissimilar ones.

    A search with a budget reads a row when it comes to the bucket of one of the row's substrings. The cost of a
    bucket is the sum of |logit| over the bits in which it differs from the query's substring. Each row of a batch is
    the query in turn. exp(-cost / temperature), summed over the substrings, is the closeness of a row. The loss of a
    similar pair is minus the log of the similar row's share in the sum of its own closeness and that of all dissimilar
    rows: it is near 0 if the similar row is read before all of them. The loss of a batch is the mean over similar
    pairs.

    The same loss over whole codes is added, times `choosing_weight`. Of the rows that are read, similar ones should
    then also be the first by asymmetric distance, by which such a search chooses the rows to compare.

    The bits of the row that is read are soft, `tanh(sharpness x logits)`, so that they have slopes. The query's logits
    are taken as they are. The angle between such logits ranks rows well, too (HDT-E).

    Args:
        n_bits: length of a code.
        substrings: number of substrings. None: about n_bits / 16, which is 4 for 64 bits.
        temperature: the smaller it is, the more a few close rivals count.
        sharpness: sharpness of the soft bits.
        choosing_weight: weight of the loss over whole codes. 0: rows are only read early, not chosen well.
        choosing_temperature: temperature of the loss over whole codes.
        gather: under torch.distributed, pair the rows of all processes; `similar` is then the whole batch's matrix.

    Example:
        >>> ProbingLoss(64).substrings
        4
    """

    def __init__(
        self,
        n_bits: int,
        *,
        substrings: int | None = None,
        temperature: float = 0.3,
        sharpness: float = 4.0,
        choosing_weight: float = 1.0,
        choosing_temperature: float = 1.0,
        gather: bool = False,
    ) -> None:
        super().__init__(n_bits, gather=gather)
        if not 0 <= choosing_weight < float("inf"):
            raise InputError(f"choosing_weight is {choosing_weight}; expected a number of 0 or more")
        for name, value in (
            ("temperature", temperature),
            ("sharpness", sharpness),
            ("choosing_temperature", choosing_temperature),
        ):
            if not 0 < value < float("inf"):
                raise InputError(f"{name} is {value}; expected a number above 0")
        self.substrings = default_substrings(self.n_bits) if substrings is None else substrings
        self.temperature = float(temperature)
        self.sharpness = float(sharpness)
        self.choosing_weight = float(choosing_weight)
        self.choosing_temperature = float(choosing_temperature)
        self._bounds = substring_bounds(self.n_bits, self.substrings)

    def _terms(self, logits: Tensor, similar: Tensor) -> LossTerms:
        itself = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
        wanted, no_rival = similar & ~itself, similar | itself
        queries = logits
        if logits.device.type == "cpu":
            # Rows without a similar one add nothing as queries. On a GPU, to leave them out would mean to wait.
            some = wanted.any(dim=1).nonzero().squeeze(1)
            queries, wanted, no_rival = logits[some], wanted[some], no_rival[some]
        costs = self._costs(queries, logits)
        total = _mean_cost(costs.div(-self.temperature).logsumexp(dim=0), wanted, no_rival)
        if self.choosing_weight:
            whole = costs.sum(dim=0) / -self.choosing_temperature
            total = total + self.choosing_weight * _mean_cost(whole, wanted, no_rival)
        return self._report(total, logits, similar, similar=total)

    def _costs(self, queries: Tensor, logits: Tensor) -> Tensor:
        """Return the cost at which query i comes to row j by each substring, (substrings, queries, rows)."""
        soft = torch.tanh(self.sharpness * logits)
        # The sum of |logit| over differing bits is (sum of |logit| - logits . bits) / 2.
        return torch.stack(
            [
                (queries[:, start:stop].abs().sum(1, keepdim=True) - queries[:, start:stop] @ soft[:, start:stop].T) / 2
                for start, stop in self._bounds
            ]
        )

    def settings(self) -> dict[str, Any]:
        """Return the arguments that the value depends on, by name."""
        return {
            "n_bits": self.n_bits,
            "substrings": self.substrings,
            "temperature": self.temperature,
            "sharpness": self.sharpness,
            "choosing_weight": self.choosing_weight,
            "choosing_temperature": self.choosing_temperature,
        }

    def extra_repr(self) -> str:
        """Return all settings that the value depends on, for `print(loss)` and to recognise a run."""
        return ", ".join(f"{name}={value!r}" for name, value in self.settings().items())


def _mean_cost(closeness: Tensor, wanted: Tensor, no_rival: Tensor) -> Tensor:
    """Return minus the log of a similar row's share in the closeness of itself and all rivals, over similar pairs."""
    rivals = closeness.masked_fill(no_rival, _FAR).logsumexp(dim=1, keepdim=True)
    cost = F.softplus(rivals - closeness)
    return cost.masked_fill(~wanted, 0.0).sum() / wanted.sum().clamp(min=1)
