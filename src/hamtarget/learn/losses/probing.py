"""A loss for query-directed probing: similar rows should be read before all others."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hamtarget.codes import substring_bounds
from hamtarget.errors import InputError
from hamtarget.learn.losses.base import LossTerms
from hamtarget.learn.losses.pair_loss import PairLoss

# Log closeness of a row that is no rival: below that of any real one.
_FAR = -1e30
# A substring of about so many bits tells apart a million rows, and its table fits memory.
_SUBSTRING_BITS = 21


def default_substrings(n_bits: int) -> int:
    """Number of substrings of about 21 bits: 3 for 64 bits."""
    return max(1, round(n_bits / _SUBSTRING_BITS))


class ProbingLoss(PairLoss):
    """How late a similar row is read by query-directed probing, over all pairs of a batch.

    Probing (`MultiIndex.probe`) reads a row when it comes to the bucket of one of its substrings, at a cost of the sum
    of |logit| over the bits in which the substring differs from the query's. Each row of the batch is the query in
    turn. exp(-cost / temperature), summed over the substrings, is a row's closeness; the loss of a similar pair is
    minus the log of the similar row's part in the sum of its own closeness and that of all dissimilar rows. It is near
    0 where the similar row is read before all of them. Mean over similar pairs.

    With `choosing_weight` the same cost over whole codes is added, so many times: of the rows that are read, similar
    ones should also be the first by asymmetric distance, by which `probe` chooses those to be compared.

    The bits of the row that is read are soft, `tanh(sharpness x logits)`, so that there are slopes; the query's logits
    are taken as they are. The angle of logits that are learned so ranks rows well, too (HDT-E).

    Args:
        n_bits: length of a code.
        substrings: number of substrings; about n_bits / 21 if not given, which is 3 for 64 bits.
        temperature: the smaller, the more a few close rivals count.
        sharpness: of the soft bits.
        choosing_weight: of the cost over whole codes.
        choosing_temperature: of that cost.
        gather: under torch.distributed, pair the rows of all processes; `similar` is then the whole batch's matrix.
    """

    def __init__(
        self,
        n_bits: int,
        *,
        substrings: int | None = None,
        temperature: float = 0.3,
        sharpness: float = 4.0,
        choosing_weight: float = 0.0,
        choosing_temperature: float = 0.5,
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
        costs = self._costs(logits)
        total = _mean_cost(costs.div(-self.temperature).logsumexp(dim=0), wanted, no_rival)
        if self.choosing_weight:
            whole = costs.sum(dim=0) / -self.choosing_temperature
            total = total + self.choosing_weight * _mean_cost(whole, wanted, no_rival)
        return self._report(total, logits, similar, similar=total)

    def _costs(self, logits: Tensor) -> Tensor:
        """What it costs query i (row) to come to row j (column) by each substring, (substrings, b, b)."""
        soft = torch.tanh(self.sharpness * logits)
        # The sum of |logit| over differing bits is (sum of |logit| - logits . bits) / 2.
        return torch.stack(
            [
                (logits[:, start:stop].abs().sum(1, keepdim=True) - logits[:, start:stop] @ soft[:, start:stop].T) / 2
                for start, stop in self._bounds
            ]
        )

    def extra_repr(self) -> str:
        """All settings that the value depends on, for `print(loss)` and to recognise a run by."""
        return (
            f"n_bits={self.n_bits}, substrings={self.substrings}, temperature={self.temperature}, "
            f"sharpness={self.sharpness}, choosing_weight={self.choosing_weight}, "
            f"choosing_temperature={self.choosing_temperature}"
        )


def _mean_cost(closeness: Tensor, wanted: Tensor, no_rival: Tensor) -> Tensor:
    """Minus the log of a similar row's part in the closeness of itself and all rivals, over similar pairs."""
    rivals = closeness.masked_fill(no_rival, _FAR).logsumexp(dim=1, keepdim=True)
    cost = F.softplus(rivals - closeness)
    return cost.masked_fill(~wanted, 0.0).sum() / wanted.sum().clamp(min=1)
