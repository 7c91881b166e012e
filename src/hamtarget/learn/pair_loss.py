"""What every loss over all pairs of a batch has in common: checks, gathering, float32, and what it tells."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from hamtarget.codes import check_n_bits
from hamtarget.errors import DtypeError, NotFiniteError, ShapeError
from hamtarget.learn.distributed import gather_rows
from hamtarget.learn.precision import full_float32

# Diagnostics look at so many rows of a batch at the most.
_DIAGNOSED_ROWS = 2048


@dataclass(frozen=True)
class LossTerms:
    """The loss of a batch (`total`, with gradient) and what it is made of (without); a part that it has not is 0.

    Attributes:
        total: similar + dissimilar_weight x dissimilar + substring_weight x substring; call `backward` on it.
        similar: mean cost of a similar pair, -J1 in the paper.
        dissimilar: mean cost of another pair, -J2.
        substring: cost of dissimilar pairs that share a substring, summed over substrings.
    """

    total: Tensor
    similar: Tensor
    dissimilar: Tensor
    substring: Tensor
    _diagnose: tuple[PairLoss, Tensor, Tensor] = field(repr=False)

    def diagnostics(self) -> dict[str, float]:
        """Whether the codes of the batch keep the loss's own assumptions; see `PairLoss.diagnostics`."""
        loss, logits, is_similar = self._diagnose
        return loss.diagnostics(logits, is_similar)


class PairLoss(nn.Module, ABC):
    """A loss over all ordered pairs of different rows of a batch.

    Args:
        n_bits: length of a code.
        gather: under torch.distributed, pair the rows of all processes; `similar` is then the whole batch's matrix.
    """

    def __init__(self, n_bits: int, *, gather: bool) -> None:
        super().__init__()
        self.n_bits = check_n_bits(n_bits)
        self.gather = gather

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

    @abstractmethod
    def _terms(self, logits: Tensor, similar: Tensor) -> LossTerms:
        """The loss of checked logits, float32 or float64, of all processes."""

    @torch.no_grad()
    def diagnostics(self, logits: Tensor, similar: Tensor) -> dict[str, float]:
        """Whether codes keep the assumptions of the loss, from at most the first 2,048 rows of a batch.

        Returns:
            bit_balance: 1 if each bit is 1 for half of the rows, 0 if each is constant.
            bit_correlation: mean absolute correlation of two bits; independent bits have nearly 0.
        """
        with full_float32(logits.device.type):
            logits = logits[:_DIAGNOSED_ROWS]
            logits = logits if logits.dtype == torch.float64 else logits.float()
            return self._diagnose(logits, similar[: len(logits), : len(logits)])

    def _diagnose(self, logits: Tensor, similar: Tensor) -> dict[str, float]:
        n_rows = len(logits)
        signs = torch.where(logits > 0, 1.0, -1.0)
        mean = signs.mean(0)
        centred = signs - mean
        deviation = centred.pow(2).mean(0).sqrt().clamp(min=1e-6)
        correlation = (centred.T @ centred) / n_rows / deviation / deviation[:, None]
        off_diagonal = correlation.abs().sum() - correlation.diagonal().abs().sum()
        return {
            "bit_balance": float(1 - mean.abs().mean()),
            "bit_correlation": float(off_diagonal / max(1, self.n_bits * (self.n_bits - 1))),
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
