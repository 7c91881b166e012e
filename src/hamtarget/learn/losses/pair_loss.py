"""PairLoss: losses over all pairs of a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from hamtarget.errors import DtypeError, ShapeError
from hamtarget.learn.losses.base import BatchLoss
from hamtarget.learn.similarity.relation import Similarity


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
