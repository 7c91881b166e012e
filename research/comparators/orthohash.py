"""OrthoHash: one cross-entropy of the cosines to fixed codes of the classes (Hoe et al., NeurIPS 2021)."""

from __future__ import annotations

import math

from torch import Tensor

from hamtarget.errors import InputError
from hamtarget.learn.losses.base import LabelLoss, LossTerms
from hamtarget.learn.losses.class_codes import hadamard_centers
from hamtarget.learn.losses.proxies import cosine_cross_entropy
from research.comparators.csq import codes_of_classes


class OrthoHashLoss(LabelLoss):
    """Cross-entropy of s (cos(logits, code of the class) - m [its own class]), for batch-normalised logits.

    The codes are fixed and, in its paper, orthogonal or nearly so: `hadamard_centers`. A row with several labels aims
    at each of them with equal probability.

    Args:
        n_bits: length of a code.
        n_labels: how many classes there are.
        margin: m of its paper.
        scale: s of its paper; the root of `n_bits` if not given.
        codes: codes of the classes, (n_labels, n_bits), in place of the paper's.
        seed: of codes that are drawn at random.
        gather: see `BatchLoss`.
    """

    codes: Tensor

    def __init__(
        self,
        n_bits: int,
        n_labels: int,
        *,
        margin: float = 0.2,
        scale: float | None = None,
        codes: Tensor | None = None,
        seed: int = 0,
        gather: bool = False,
    ) -> None:
        super().__init__(n_bits, n_labels, gather=gather)
        self.margin = float(margin)
        self.scale = math.sqrt(n_bits) if scale is None else float(scale)
        if self.scale <= 0:
            raise InputError(f"scale is {scale}; expected a number above 0")
        self.seed = seed
        own = hadamard_centers(n_labels, n_bits, seed=seed) if codes is None else codes_of_classes(codes, self)
        self.register_buffer("codes", own, persistent=False)

    @property
    def class_codes(self) -> Tensor:
        """Codes of the classes."""
        return self.codes

    def _terms(self, logits: Tensor, labels: Tensor) -> LossTerms:
        cost = cosine_cross_entropy(logits, labels, self.codes, scale=self.scale, margin=self.margin)
        return self._report(cost, logits, labels, similar=cost)

    def extra_repr(self) -> str:
        """Return all settings that the value depends on."""
        return (
            f"n_bits={self.n_bits}, n_labels={self.n_labels}, margin={self.margin}, scale={self.scale}, "
            f"seed={self.seed}"
        )
