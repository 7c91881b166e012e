"""Inputs held out from training, and the loss on them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hamtarget.errors import InputError, ShapeError
from hamtarget.learn.losses.base import BatchLoss
from hamtarget.learn.similarity.relation import Similarity
from hamtarget.learn.training.options import TrainingOptions
from hamtarget.learn.training.sampling import GroupBatchSampler

# One measurement is the mean over so many batches.
_BATCHES = 8


def split(n_items: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return (items to train on, items held out), both in order; a random `share` is held out."""
    if not 0 <= share < 1:
        raise InputError(f"held_out is {share}; expected a share of 0 or more and less than 1")
    order = torch.randperm(n_items, generator=torch.Generator().manual_seed(seed))
    n_aside = round(share * n_items)
    return order[n_aside:].sort().values, order[:n_aside].sort().values


def places(items: Tensor, kept: Tensor, n_items: int) -> Tensor:
    """Return the places in `kept` of those items that are in it.

    Raises:
        InputError: an item number is out of range.
    """
    if len(items) and not 0 <= int(items.min()) <= int(items.max()) < n_items:
        raise InputError(f"markers hold item numbers outside 0 to {n_items - 1}")
    wanted = torch.zeros(n_items, dtype=torch.bool)
    wanted[items] = True
    return wanted[kept].nonzero().squeeze(1)


class HeldOutLoss:
    """The loss of a model on fixed batches of held-out inputs; `train` takes it as `evaluate`.

    Args:
        inputs: held-out inputs, on the model's device.
        similarity: similarity among these inputs.
        loss: loss of the training.
        options: options of the training. The batch is made smaller if there are too few inputs for it.
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
        """Return the mean loss over the batches, of a model in evaluation mode."""
        total = 0.0
        for number in range(_BATCHES):
            items = self.sampler.batch(number)
            target = self.loss.target(self.similarity, items)
            total += float(self.loss(model(self.inputs[items]), target).total)
        return total / _BATCHES
