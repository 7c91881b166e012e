"""GroupBatchSampler: batches of groups, each a random marker and some inputs similar to it (paper 2.2)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from hamtarget.errors import InputError, SimilarityError
from hamtarget.learn.similarity.relation import Similarity, check_enough

# Batches drawn together: on a GPU, drawing one takes the host longer than training on it takes the device.
_BATCHES_AT_ONCE = 16


class GroupBatchSampler:
    """Draws batches of item numbers: `batch_size / group_size` groups of a marker and items similar to it.

    In every epoch each possible marker is one once, in random order. A batch depends only on the seed and its own
    number. So training can be resumed at any step, and every process of a distributed run draws the same batch and
    takes its share.

    Args:
        similarity: tells which items may join a marker's group.
        batch_size: items in a batch, over all processes; a multiple of group_size.
        group_size: items in a group, the marker included. 1 gives random batches, for losses that know the aim of each
            item, or batches in which similar items meet by chance.
        steps: number of batches of an iteration; 0 if only `batch` is called.
        seed: seed of the random order.
        markers: items that may be markers. None: all.
        rank: number of this process.
        world_size: number of all processes.
        first_step: number of the first batch of an iteration, to resume.
        device: device on which batches are drawn, that of the similarity.

    Iterating gives lists of item numbers, as a DataLoader's `batch_sampler` should; `batch(step)` returns a tensor.

    Raises:
        InputError: the sizes do not divide each other.
        SimilarityError: a marker has fewer than group_size - 1 similar items; the error names it.

    Example:
        >>> from hamtarget.learn import Labels
        >>> sampler = GroupBatchSampler(Labels([0, 0, 0, 1, 1, 1]), 4, 2, steps=3)
        >>> [len(batch) for batch in sampler]
        [4, 4, 4]
    """

    def __init__(
        self,
        similarity: Similarity,
        batch_size: int,
        group_size: int,
        *,
        steps: int = 0,
        seed: int = 0,
        markers: Tensor | None = None,
        rank: int = 0,
        world_size: int = 1,
        first_step: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        if group_size < 1:
            raise InputError(f"group_size is {group_size}; expected 1 or more: a marker and its similar items")
        if batch_size < group_size or batch_size % (group_size * world_size):
            raise InputError(
                f"batch_size is {batch_size}; expected a multiple of group_size ({group_size})"
                + (f" times the number of processes ({world_size})" if world_size > 1 else "")
            )
        self.similarity = similarity
        self.batch_size = batch_size
        self.group_size = group_size
        self.steps = steps
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.first_step = first_step
        self.device = torch.device(device)
        self._markers = torch.arange(similarity.n_items) if markers is None else markers
        self._markers = self._markers.to(self.device)
        self._check_markers()
        self._epoch = -1
        self._order = self._markers
        self._run = -1
        self._drawn = self._markers

    def __repr__(self) -> str:
        return (
            f"GroupBatchSampler({self.similarity!r}, batch_size={self.batch_size}, group_size={self.group_size}, "
            f"steps={self.steps})"
        )

    def __len__(self) -> int:
        return self.steps - self.first_step

    def __iter__(self) -> Iterator[list[int]]:
        if not self.steps:
            raise InputError("the sampler has no steps; expected steps=N, as many batches as it is to give")
        for step in range(self.first_step, self.steps):
            yield self.share(self.batch(step)).tolist()

    def batch(self, step: int) -> Tensor:
        """Return the items of the whole batch number `step`, group by group, (batch_size,)."""
        run, place = divmod(step, _BATCHES_AT_ONCE)
        if run != self._run:
            n_groups = _BATCHES_AT_ONCE * self.batch_size // self.group_size
            markers = self._marker_run(run * n_groups, n_groups)
            groups = markers[:, None]
            if self.group_size > 1:
                similars = self.similarity.draw(markers, self.group_size - 1, self._generator(2 * run))
                groups = torch.cat([groups, similars], dim=1)
            self._drawn = groups.view(_BATCHES_AT_ONCE, self.batch_size)
            self._run = run
        return self._drawn[place]

    def share(self, batch: Tensor) -> Tensor:
        """Return the part of this process in a whole batch."""
        return batch.chunk(self.world_size)[self.rank]

    def _marker_run(self, start: int, count: int) -> Tensor:
        """Return `count` markers from place `start` of the endless sequence of shuffled epochs."""
        parts = []
        while count > 0:
            epoch, place = divmod(start, len(self._markers))
            if epoch != self._epoch:
                # Odd numbers, so that no epoch's generator is that of a run of batches.
                generator = self._generator(2 * epoch + 1)
                self._order = self._markers[torch.randperm(len(self._markers), generator=generator, device=self.device)]
                self._epoch = epoch
            part = self._order[place : place + count]
            parts.append(part)
            start += len(part)
            count -= len(part)
        return torch.cat(parts)

    def _generator(self, number: int) -> torch.Generator:
        # Two odd constants near 2^64 / golden ratio and its like: neighbouring seeds and numbers land far apart.
        mixed = ((self.seed + 1) * 0x9E3779B97F4A7C15 + number * 0xD1B54A32D192ED03) % 2**63
        return torch.Generator(device=self.device).manual_seed(mixed)

    def _check_markers(self) -> None:
        if len(self._markers) == 0:
            raise SimilarityError("there are no markers; expected at least one item with similar items")
        counts = self.similarity.counts()
        if counts is None:
            return
        check_enough(self._markers, counts.to(self.device)[self._markers], self.group_size - 1)
