"""Losses of a batch, from checks to reports: `BatchLoss`, `PairLoss` of all pairs, `LabelLoss` of labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from hamtarget.codes import check_n_bits
from hamtarget.errors import DtypeError, InputError, NotFiniteError, ShapeError
from hamtarget.learn.losses.distributed import gather_rows
from hamtarget.learn.precision import full_float32
from hamtarget.learn.similarity.relation import Similarity

# Diagnostics look at so many rows of a batch at the most.
DIAGNOSED_ROWS = 2048


@dataclass(frozen=True)
class LossTerms:
    """The loss of a batch, `total`, and its parts, which carry no gradient; a part that a loss does not have is 0.

    Attributes:
        total: loss to call `backward` on. For a `HammingTargetLoss` it is similar + dissimilar_weight x dissimilar +
            substring_weight x substring.
        similar: mean cost of a similar pair, -J1 in the paper. For a `LabelLoss`, of a row against its label's code.
        dissimilar: mean cost of a dissimilar pair, -J2 in the paper.
        substring: cost of dissimilar pairs that share a substring, summed over substrings.
        quantization: mean cost of logits that are far from +-1.
    """

    total: Tensor
    similar: Tensor
    dissimilar: Tensor
    substring: Tensor
    quantization: Tensor
    _diagnose: tuple[BatchLoss, Tensor, Tensor] = field(repr=False)

    def diagnostics(self) -> dict[str, float]:
        """Return figures on the codes of the batch; see `BatchLoss.diagnostics`."""
        loss, logits, target = self._diagnose
        return loss.diagnostics(logits, target)


class BatchLoss(nn.Module, ABC):
    """A loss of the logits of a batch, given a target: which rows are similar (`PairLoss`), or labels (`LabelLoss`).

    Args:
        n_bits: length of a code.
        gather: under torch.distributed, take the rows of all processes; the target is then that of the whole batch.
    """

    def __init__(self, n_bits: int, *, gather: bool) -> None:
        super().__init__()
        self.n_bits = check_n_bits(n_bits)
        self.gather = gather

    @property
    def radius(self) -> int | tuple[int, ...] | None:
        """Hamming distance target, or several; None for a loss without one."""
        return None

    @property
    def capturable(self) -> bool:
        """True if a CUDA graph can hold it: its shapes do not depend on data, and it never waits for the device."""
        return True

    @abstractmethod
    def target(self, similarity: Similarity, items: Tensor) -> Tensor:
        """Return what `forward` needs to know of a batch of items beside their logits."""

    def at_step(self, step: int) -> None:
        """Prepare for training step 0, 1, ...; only losses that change as training goes on need it.

        The trainer calls it outside of a CUDA graph: what changes must be a tensor that is filled in place.
        """
        del step

    def forward(self, logits: Tensor, target: Tensor) -> LossTerms:
        """Return the loss of a batch.

        Args:
            logits: real values, (b, n_bits), of any floating type; computed in float32 or float64.
            target: target of the batch, as the method `target` returns it.

        Raises:
            ShapeError: logits and target do not fit each other or `n_bits`.
            DtypeError: logits or target have another type.
            NotFiniteError: logits on a CPU hold NaN or infinity. On a GPU the check would wait for the device: there
                the loss itself becomes NaN, and the trainer says so.
        """
        self._check(logits)
        if self.gather:
            logits = gather_rows(logits)
        self._check_target(target, len(logits))
        with full_float32(logits.device.type):
            if logits.dtype != torch.float64:
                logits = logits.float()
            return self._terms(logits, target)

    @abstractmethod
    def _check_target(self, target: Tensor, n_rows: int) -> None:
        """Raise an error if the target does not fit logits of `n_rows` rows."""

    @abstractmethod
    def _terms(self, logits: Tensor, target: Tensor) -> LossTerms:
        """Return the loss of checked logits of all processes, float32 or float64."""

    def _report(
        self,
        total: Tensor,
        logits: Tensor,
        target: Tensor,
        *,
        similar: Tensor | None = None,
        dissimilar: Tensor | None = None,
        substring: Tensor | None = None,
        quantization: Tensor | None = None,
    ) -> LossTerms:
        """Return the terms of this batch; parts that are not given are 0."""
        zero = torch.zeros_like(total, requires_grad=False)

        def part(value: Tensor | None) -> Tensor:
            return zero if value is None else value.detach()

        return LossTerms(
            total,
            similar=part(similar),
            dissimilar=part(dissimilar),
            substring=part(substring),
            quantization=part(quantization),
            _diagnose=(self, logits.detach(), target),
        )

    def _report_around(self, part: LossTerms, total: Tensor, logits: Tensor, target: Tensor) -> LossTerms:
        """Return the terms of this batch whose total contains that of another loss."""
        return replace(part, total=total, _diagnose=(self, logits.detach(), target))

    @torch.no_grad()
    def diagnostics(self, logits: Tensor, target: Tensor) -> dict[str, float]:
        """Return figures on the codes of at most the first 2,048 rows of a batch.

        Returns:
            bit_balance: 1 if each bit is 1 for half of the rows, 0 if each is constant.
            bit_correlation: mean absolute correlation of two bits; independent bits have nearly 0.
        """
        with full_float32(logits.device.type):
            logits = logits[:DIAGNOSED_ROWS]
            return self._diagnose(logits if logits.dtype == torch.float64 else logits.float(), target)

    def _diagnose(self, logits: Tensor, target: Tensor) -> dict[str, float]:
        del target
        signs = torch.where(logits > 0, 1.0, -1.0)
        mean = signs.mean(0)
        centred = signs - mean
        deviation = centred.pow(2).mean(0).sqrt().clamp(min=1e-6)
        correlation = (centred.T @ centred) / len(logits) / deviation / deviation[:, None]
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


class PairLoss(BatchLoss):
    """A loss over all ordered pairs of different rows of a batch.

    Its target is `similar`, (b, b) boolean: entry (i, j) is True if row j is similar to row i. It need not be symmetric
    or transitive. The diagonal is ignored.

    A loss of your own is a subclass with the method `_terms`, which returns `self._report(total, logits, similar)`. If
    shapes in it depend on data, set `capturable` to False. By `extra_repr`, a checkpoint recognises its settings.

    Args:
        n_bits: length of a code.
        gather: under torch.distributed, pair the rows of all processes; `similar` is then the whole batch's matrix.

    Example:
        >>> class Spread(PairLoss):
        ...     def _terms(self, logits, similar):
        ...         soft = torch.tanh(logits)
        ...         cosines = soft @ soft.T / self.n_bits
        ...         return self._report((cosines - similar.float()).square().mean(), logits, similar)
        >>> loss = Spread(16)
        >>> loss(torch.zeros(4, 16), torch.eye(4, dtype=torch.bool)).total
        tensor(0.2500)
    """

    def __init__(self, n_bits: int, *, gather: bool = False) -> None:
        super().__init__(n_bits, gather=gather)

    def target(self, similarity: Similarity, items: Tensor) -> Tensor:
        """Return which rows are similar, (b, b) boolean."""
        return similarity.matrix(items)

    def _check_target(self, target: Tensor, n_rows: int) -> None:
        if target.dtype != torch.bool:
            raise DtypeError(
                f"similar has dtype {target.dtype}; expected torch.bool, (rows, rows): of labels, make it by "
                "labels[:, None] == labels, or by Labels(labels).matrix(items)"
            )
        if target.shape != (n_rows, n_rows):
            hint = "; with gather=True it is the matrix of the whole batch of all processes" if self.gather else ""
            raise ShapeError(
                f"similar has shape {tuple(target.shape)}; {n_rows} rows of logits need {(n_rows, n_rows)}{hint}"
            )


class LabelLoss(BatchLoss):
    """A loss of the rows of a batch, given their labels.

    Its target is `labels`, (b, n_labels) of 0 and 1, floating, with one or several 1 in each row.

    Args:
        n_bits: length of a code.
        n_labels: number of different labels.
        gather: under torch.distributed, take the rows of all processes; the target is then that of the whole batch.
    """

    def __init__(self, n_bits: int, n_labels: int, *, gather: bool) -> None:
        super().__init__(n_bits, gather=gather)
        if n_labels < 1:
            raise InputError(f"n_labels is {n_labels}; expected 1 or more")
        self.n_labels = n_labels

    @property
    @abstractmethod
    def class_codes(self) -> Tensor:
        """Vectors that the rows of each class aim at, (n_labels, n_bits); their signs are codes."""

    def target(self, similarity: Similarity, items: Tensor) -> Tensor:
        """Return the labels of the items, (b, n_labels)."""
        return similarity.labels(items)

    def _check_target(self, target: Tensor, n_rows: int) -> None:
        if not target.dtype.is_floating_point:
            raise DtypeError(f"labels have dtype {target.dtype}; expected floating 0 and 1")
        if target.shape != (n_rows, self.n_labels):
            raise ShapeError(
                f"labels have shape {tuple(target.shape)}; {n_rows} rows of logits and {self.n_labels} labels need "
                f"{(n_rows, self.n_labels)}"
            )
