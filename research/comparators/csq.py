"""CSQ: each image is pulled towards the Hadamard code of its class (Yuan et al., CVPR 2020)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hamtarget.errors import InputError, ShapeError
from hamtarget.learn.losses.base import LabelLoss, LossTerms
from hamtarget.learn.losses.class_codes import hadamard_centers


class CSQLoss(LabelLoss):
    """Binary cross-entropy of h = tanh(logits) against the centre of the row's class, and of h against +-1.

    The cross-entropy is that of the probability (h + 1) / 2 of a 1, averaged over rows and bits. Added to it is
    `quantization_weight` times the mean of (|h| - 1)^2. The centres are `hadamard_centers`. A row with several labels
    gets the majority of their centres, bit by bit.

    Args:
        n_bits: length of a code.
        n_labels: how many classes there are.
        quantization_weight: lambda of its paper.
        codes: centres of the classes, (n_labels, n_bits), in place of the paper's.
        seed: of centres that are drawn at random.
        gather: see `BatchLoss`.
    """

    centers: Tensor
    undecided: Tensor

    def __init__(
        self,
        n_bits: int,
        n_labels: int,
        *,
        quantization_weight: float = 0.05,
        codes: Tensor | None = None,
        seed: int = 0,
        gather: bool = False,
    ) -> None:
        super().__init__(n_bits, n_labels, gather=gather)
        if quantization_weight < 0:
            raise InputError(f"quantization_weight is {quantization_weight}; expected 0 or more")
        self.quantization_weight = float(quantization_weight)
        self.seed = seed
        own = hadamard_centers(n_labels, n_bits, seed=seed) if codes is None else codes_of_classes(codes, self)
        self.register_buffer("centers", own, persistent=False)
        generator = torch.Generator().manual_seed(seed)
        coin = torch.randint(0, 2, (n_bits,), generator=generator).float() * 2 - 1
        self.register_buffer("undecided", coin, persistent=False)

    @property
    def class_codes(self) -> Tensor:
        """Codes of the classes: the centres."""
        return self.centers

    def _terms(self, logits: Tensor, labels: Tensor) -> LossTerms:
        wanted = majority(labels.to(logits.dtype), self.centers.to(logits.dtype), self.undecided)
        # (tanh u + 1) / 2 is the sigmoid of 2 u.
        center = F.binary_cross_entropy_with_logits(2 * logits, (wanted + 1) / 2)
        quantization = (torch.tanh(logits).abs() - 1).pow(2).mean()
        total = center + self.quantization_weight * quantization
        return self._report(total, logits, labels, similar=center, quantization=quantization)

    def extra_repr(self) -> str:
        """Return all settings that the value depends on."""
        return (
            f"n_bits={self.n_bits}, n_labels={self.n_labels}, quantization_weight={self.quantization_weight}, "
            f"seed={self.seed}"
        )


def codes_of_classes(codes: Tensor, loss: LabelLoss) -> Tensor:
    """Return a copy of given codes of classes.

    Raises:
        ShapeError: there is not one code of the loss's length for each label.
    """
    if codes.shape != (loss.n_labels, loss.n_bits):
        raise ShapeError(f"codes have shape {tuple(codes.shape)}; expected {(loss.n_labels, loss.n_bits)}")
    return codes.clone()


def majority(labels: Tensor, codes: Tensor, undecided: Tensor) -> Tensor:
    """Return the code that the codes of each row's labels vote for, bit by bit, (rows, n_bits) of +-1.

    Args:
        labels: (rows, labels) of 0 and 1.
        codes: (labels, n_bits) of +-1.
        undecided: (n_bits,) of +-1: the bits to take where votes are equal.
    """
    votes = labels @ codes
    return torch.where(votes == 0, undecided.to(votes.dtype), votes.sign())
