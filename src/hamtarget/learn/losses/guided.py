"""GuidedLoss: codes that are learned beside longer ones, which tell classes apart better."""

from __future__ import annotations

import torch
from torch import Tensor

from hamtarget.errors import InputError
from hamtarget.learn.losses.base import LabelLoss, LossTerms


class GuidedLoss(LabelLoss):
    """The loss of a code plus `guide_weight` times the loss of a longer code, its guide.

    The first logits are those of the code, the others those of the guide. The network learns from both. Afterwards
    `ClassPull` tells the class of a row by all logits, and keeps those of the code. Few bits tell many classes apart
    badly, so short codes gain most.

    Args:
        code: loss of the first logits.
        guide: loss of the other logits, for the same labels.
        guide_weight: weight of the guide's loss.
    """

    def __init__(self, code: LabelLoss, guide: LabelLoss, *, guide_weight: float = 0.5) -> None:
        super().__init__(code.n_bits + guide.n_bits, code.n_labels, gather=code.gather)
        if guide.n_labels != code.n_labels:
            raise InputError(f"the guide has {guide.n_labels} labels; expected {code.n_labels}, as the code has")
        if guide_weight < 0:
            raise InputError(f"guide_weight is {guide_weight}; expected 0 or more")
        self.code = code
        self.guide = guide
        self.guide_weight = float(guide_weight)

    @property
    def radius(self) -> int | tuple[int, ...] | None:
        """Hamming distance target of the code."""
        return self.code.radius

    @property
    def capturable(self) -> bool:
        """True if both losses are."""
        return self.code.capturable and self.guide.capturable

    def at_step(self, step: int) -> None:
        """Prepare both losses for a step."""
        self.code.at_step(step)
        self.guide.at_step(step)

    @property
    def class_codes(self) -> Tensor:
        """Class codes of the code, then those of its guide."""
        return torch.cat([self.code.class_codes, self.guide.class_codes], dim=1)

    def _terms(self, logits: Tensor, labels: Tensor) -> LossTerms:
        code = self.code._terms(logits[:, : self.code.n_bits], labels)
        guide = self.guide._terms(logits[:, self.code.n_bits :], labels)
        return self._report_around(code, code.total + self.guide_weight * guide.total, logits, labels)

    def _diagnose(self, logits: Tensor, target: Tensor) -> dict[str, float]:
        return self.code._diagnose(logits[:, : self.code.n_bits], target)

    def extra_repr(self) -> str:
        """Return all settings that the value depends on."""
        return f"{self.code.extra_repr()}; guide_weight={self.guide_weight}, guide: {self.guide.extra_repr()}"
