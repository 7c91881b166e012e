"""LabelLoss: losses of rows against codes of their labels."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from hamtarget.errors import DtypeError, InputError, ShapeError
from hamtarget.learn.losses.base import BatchLoss
from hamtarget.learn.similarity.relation import Similarity


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
