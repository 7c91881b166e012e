"""KeepNeighbors: a loss that also keeps the neighbourhoods of the features that codes are learned from."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hamtarget.errors import InputError, ShapeError
from hamtarget.learn.losses.base import BatchLoss, LossTerms, PairLoss
from hamtarget.learn.similarity.relation import Similarity

# Cosines that differ by less from each other than this are equal.
_LEAST_SPREAD = 1e-6
# Logarithm of the chance that a row which is left out is a neighbour.
_NEVER = -1e30


class KeepNeighbors(BatchLoss):
    """A loss plus `weight` times the loss of neighbourhoods: rows with similar features should get similar codes.

    Labels alone teach a network to forget what tells unlabelled classes apart. So each row of a batch also compares
    itself with the rows that are not similar to it, once by the cosines of their features and once by their soft bits,
    `tanh(sharpness x logits)`. A softmax makes a distribution over these rows from each of the two, and the loss is
    the divergence of the second from the first. Near neighbours count most. How near similar rows come to each other
    is left to `loss`.

    Both comparisons are scaled, so that settings do not depend on the features or on the length of a code. Cosines are
    standardised for each row. Products of soft bits are divided by their spread for random codes, the square root of
    `n_bits`.

    Its target is that of `loss`, and beside it the features' cosines, (b, b). A similarity that knows features gives
    them: see `WithFeatures`. `HashEncoder.fit` makes one.

    Args:
        loss: loss that learns what is similar, such as `HammingTargetLoss`.
        weight: weight of the loss of neighbourhoods.
        focus: how much the nearest neighbours by features count before others.
        code_focus: the same by codes.
        sharpness: sharpness of the soft bits.
    """

    def __init__(
        self,
        loss: BatchLoss,
        weight: float = 3.0,
        *,
        focus: float = 2.0,
        code_focus: float = 2.0,
        sharpness: float = 2.0,
    ) -> None:
        super().__init__(loss.n_bits, gather=loss.gather)
        if not 0 <= weight < float("inf"):
            raise InputError(f"weight is {weight}; expected a number of 0 or more")
        for name, value in (("focus", focus), ("code_focus", code_focus), ("sharpness", sharpness)):
            if not 0 < value < float("inf"):
                raise InputError(f"{name} is {value}; expected a number above 0")
        self.loss = loss
        self.weight = float(weight)
        self.focus = float(focus)
        self.code_focus = float(code_focus)
        self.sharpness = float(sharpness)

    @property
    def radius(self) -> int | tuple[int, ...] | None:
        """Hamming distance target of the loss within."""
        return self.loss.radius

    @property
    def capturable(self) -> bool:
        """True if the loss within is."""
        return self.loss.capturable

    def at_step(self, step: int) -> None:
        """Prepare the loss within for a step."""
        self.loss.at_step(step)

    def target(self, similarity: Similarity, items: Tensor) -> Tensor:
        """Return the target of the loss within, and beside it the cosines of the items' features."""
        cosines = similarity.cosines(items)
        return torch.cat([self.loss.target(similarity, items).to(cosines.dtype), cosines], dim=1)

    def _check_target(self, target: Tensor, n_rows: int) -> None:
        if target.ndim != 2 or target.shape[1] <= n_rows:
            raise ShapeError(
                f"the target has shape {tuple(target.shape)}; expected ({n_rows}, columns): that of the loss within, "
                f"and {n_rows} columns of cosines"
            )
        self.loss._check_target(self._within(target, n_rows), n_rows)

    def _within(self, target: Tensor, n_rows: int) -> Tensor:
        """Return the target of the loss within."""
        within = target[:, : target.shape[1] - n_rows]
        return within > 0 if isinstance(self.loss, PairLoss) else within

    def _terms(self, logits: Tensor, target: Tensor) -> LossTerms:
        n_rows = len(logits)
        within = self._within(target, n_rows)
        terms = self.loss._terms(logits, within)
        similar = within if within.dtype == torch.bool else within @ within.T > 0
        missed = self._divergence(logits, target[:, target.shape[1] - n_rows :].to(logits.dtype), similar)
        return self._report_around(terms, terms.total + self.weight * missed, logits, target)

    def _divergence(self, logits: Tensor, cosines: Tensor, similar: Tensor) -> Tensor:
        """Return the mean divergence of neighbours by codes from neighbours by features, among dissimilar rows."""
        left_out = similar | torch.eye(len(logits), dtype=torch.bool, device=logits.device)
        soft = torch.tanh(self.sharpness * logits)
        closeness = soft @ soft.T / self.n_bits**0.5
        by_features = (self.focus * _standardized(cosines, left_out)).masked_fill(left_out, _NEVER).log_softmax(dim=1)
        by_codes = (self.code_focus * closeness).masked_fill(left_out, _NEVER).log_softmax(dim=1)
        return F.kl_div(by_codes, by_features, log_target=True, reduction="batchmean")

    def _diagnose(self, logits: Tensor, target: Tensor) -> dict[str, float]:
        return self.loss._diagnose(logits, self._within(target, len(target)))

    def settings(self) -> dict[str, Any]:
        """Return the arguments that the value depends on, by name, without the loss within."""
        return {
            "weight": self.weight,
            "focus": self.focus,
            "code_focus": self.code_focus,
            "sharpness": self.sharpness,
        }

    def extra_repr(self) -> str:
        """Return all settings that the value depends on."""
        own = ", ".join(f"{name}={value!r}" for name, value in self.settings().items())
        return f"{self.loss.extra_repr()}; neighbours: {own}"


def _standardized(cosines: Tensor, left_out: Tensor) -> Tensor:
    """Return cosines with a mean of 0 and a spread of 1 over the rows that are not left out, for each row."""
    others = (~left_out).sum(dim=1, keepdim=True).clamp(min=1)
    mean = cosines.masked_fill(left_out, 0.0).sum(dim=1, keepdim=True) / others
    centred = (cosines - mean).masked_fill(left_out, 0.0)
    spread = (centred.pow(2).sum(dim=1, keepdim=True) / others).sqrt()
    return centred / spread.clamp(min=_LEAST_SPREAD)
