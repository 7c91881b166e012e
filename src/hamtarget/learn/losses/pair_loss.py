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
    """

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
