"""DBR: each image is regressed to the code of its class (after DBR-v3, Lu et al., 2017)."""

from __future__ import annotations

import torch
from torch import Tensor

from hamtarget.learn.losses.base import LabelLoss, LossTerms
from hamtarget.learn.losses.class_codes import max_min_codes
from research.comparators.csq import codes_of_classes, majority


class DBRLoss(LabelLoss):
    """Mean squared distance of tanh(logits) from the code of the row's class.

    The paper describes its codes only as "as far from each other as possible". Here they are a greedy max-min choice,
    see `max_min_codes`. A row with several labels gets the majority of their codes, bit by bit.

    Args:
        n_bits: length of a code.
        n_labels: how many classes there are.
        slope: of the tanh.
        codes: codes of the classes, (n_labels, n_bits), in place of this choice.
        seed: of the candidates among which codes are chosen.
        gather: see `BatchLoss`.
    """

    codes: Tensor
    undecided: Tensor

    def __init__(
        self,
        n_bits: int,
        n_labels: int,
        *,
        slope: float = 1.0,
        codes: Tensor | None = None,
        seed: int = 0,
        gather: bool = False,
    ) -> None:
        super().__init__(n_bits, n_labels, gather=gather)
        self.slope = float(slope)
        self.seed = seed
        # One more code than classes: it decides the bits for which a row's labels vote for 1 and for -1 equally.
        chosen = max_min_codes(n_labels + 1, n_bits, seed=seed)
        own = chosen[:-1] if codes is None else codes_of_classes(codes, self)
        self.register_buffer("codes", own, persistent=False)
        self.register_buffer("undecided", chosen[-1], persistent=False)

    @property
    def class_codes(self) -> Tensor:
        """Codes of the classes."""
        return self.codes

    def _terms(self, logits: Tensor, labels: Tensor) -> LossTerms:
        wanted = majority(labels.to(logits.dtype), self.codes.to(logits.dtype), self.undecided)
        cost = (torch.tanh(self.slope * logits) - wanted).pow(2).mean()
        return self._report(cost, logits, labels, similar=cost)

    def extra_repr(self) -> str:
        """Return all settings that the value depends on."""
        return f"n_bits={self.n_bits}, n_labels={self.n_labels}, slope={self.slope}, seed={self.seed}"
