"""Data kept aside from training, and its cost."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hamtarget.errors import InputError, ShapeError
from hamtarget.learn.losses.base import BatchLoss
from hamtarget.learn.options import TrainingOptions
from hamtarget.learn.sampling import GroupBatchSampler
from hamtarget.learn.similarity import Similarity

# Batches that one look averages over.
_BATCHES = 8


def split(n_items: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """(items to train on, items kept aside), both in order; a random `share` is kept aside."""
    if not 0 <= share < 1:
        raise InputError(f"held_out is {share}; expected a share of 0 or more and less than 1")
    order = torch.randperm(n_items, generator=torch.Generator().manual_seed(seed))
    n_aside = round(share * n_items)
    return order[n_aside:].sort().values, order[:n_aside].sort().values


def places(items: Tensor, kept: Tensor, n_items: int) -> Tensor:
    """Where in `kept` those of the items are that are in it.

    Raises:
        InputError: an item number is out of range.
    """
    if len(items) and not 0 <= int(items.min()) <= int(items.max()) < n_items:
        raise InputError(f"markers hold item numbers outside 0 to {n_items - 1}")
    wanted = torch.zeros(n_items, dtype=torch.bool)
    wanted[items] = True
    return wanted[kept].nonzero().squeeze(1)


class HeldOutLoss:
    """The loss of a model on fixed group batches of held-out inputs: what `train` takes as `evaluate`.

    Args:
        inputs: kept aside, on the model's device.
        similarity: among those inputs.
        loss: the training loss.
        options: of the training; the batch is made smaller where there are too few inputs for it.
    """

    def __init__(self, inputs: Tensor, similarity: Similarity, loss: BatchLoss, options: TrainingOptions) -> None:
        self.inputs = inputs
        self.similarity = similarity.to(inputs.device)
        self.loss = loss
        # Held-out items may have lost their similars to the training part: those cannot be markers.
        markers = self.similarity.markers(options.group_size)
        groups = min(options.batch_size, len(inputs)) // options.group_size
        if groups < 2 or (markers is not None and len(markers) < 2):
            raise ShapeError(
                f"{len(inputs)} held-out inputs give fewer than 2 groups of {options.group_size}; "
                "hold out a larger share, or none"
            )
        self.sampler = GroupBatchSampler(
            self.similarity,
            groups * options.group_size,
            options.group_size,
            seed=options.seed,
            markers=markers,
            device=inputs.device,
        )

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> float:
        """Mean loss over the batches, the model being in evaluation mode."""
        total = 0.0
        for number in range(_BATCHES):
            items = self.sampler.batch(number)
            target = self.loss.target(self.similarity, items)
            total += float(self.loss(model(self.inputs[items]), target).total)
        return total / _BATCHES
