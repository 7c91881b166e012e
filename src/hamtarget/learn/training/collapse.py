"""Codes that do not tell inputs apart: noticed while training goes on, and after it."""

from __future__ import annotations

import warnings
from collections import deque

import numpy as np
import torch
from numpy.typing import NDArray

from hamtarget.codes import distances
from hamtarget.errors import CrowdedCodesWarning, TrainingError
from hamtarget.learn.losses.base import LossTerms
from hamtarget.learn.similarity.relation import Similarity

# Codes have collapsed if more than this share of the dissimilar pairs of a batch lies within the radius. Codes that
# learn well have a few percent from the first steps on, collapsed ones 30 to 100 percent.
_COLLAPSED = 0.25
# A run is looked at so often, but not in fewer steps than these.
_LOOKS_IN_A_RUN = 50
_FEWEST_STEPS_BETWEEN = 10
# The mean of so many looks counts, and this part of the steps must be done: a bad start is not a collapse.
_LOOKS = 5
_PART_DONE, _FEWEST_STEPS_DONE = 0.25, 100
# After training, a smaller share is worth a warning.
_CROWDED = 0.2

_ADVICE = (
    "pass more dissimilar_weight to the loss, keep every bit balanced (NetworkOptions(center='median')), train longer, "
    "or use more bits or a smaller radius"
)


class CollapseWatch:
    """Stops a training run whose codes have become one code, or a few.

    It looks at the share of dissimilar pairs of a batch that lie within the radius, beyond the share that random codes
    would have. Losses that do not report this share are not watched.

    Args:
        steps: number of all steps of the run.
    """

    def __init__(self, steps: int) -> None:
        self.every = max(_FEWEST_STEPS_BETWEEN, steps // _LOOKS_IN_A_RUN)
        self.first_step = max(_FEWEST_STEPS_DONE, _PART_DONE * steps)
        self.looks: deque[float] = deque(maxlen=_LOOKS)

    def look(self, step: int, terms: LossTerms) -> None:
        """Look at the codes of the batch of this step, if it is time to.

        Raises:
            TrainingError: the codes of this batch and of those looked at before have collapsed.
        """
        if step % self.every:
            return
        found = terms.diagnostics()
        if "actual_within" not in found or found["chance_within"] > 0.5:
            return
        within, chance = found["actual_within"], found["chance_within"]
        self.looks.append((within - chance) / (1 - chance))
        if step >= self.first_step and len(self.looks) == _LOOKS and sum(self.looks) / _LOOKS > _COLLAPSED:
            raise TrainingError(
                f"the codes have collapsed: at step {step:,}, {within:.0%} of the dissimilar pairs of a batch lie "
                f"within the radius, where random codes would have {chance:.1%}. The loss should keep them apart: "
                f"{_ADVICE}; for HammingTargetLoss(probability='angle') or a sharpness near 1, use the defaults. To "
                "train on in spite of it, pass TrainingOptions(stop_on_collapse=False)"
            )


def warn_if_crowded(codes: NDArray[np.uint8], items: torch.Tensor, similarity: Similarity, radius: int) -> None:
    """Warn with a `CrowdedCodesWarning` if many dissimilar inputs have got codes within the radius.

    Args:
        codes: packed codes of some inputs.
        items: item numbers of these inputs, on the device of `similarity`.
        similarity: tells which of them are similar.
        radius: the Hamming distance target.
    """
    near = distances(codes, codes, 8 * codes.shape[1]) <= radius
    dissimilar = ~similarity.matrix(items).cpu().numpy()
    share = float(near[dissimilar].mean()) if dissimilar.any() else 0.0
    if share > _CROWDED:
        warnings.warn(
            f"{share:.0%} of the dissimilar pairs lie within the radius ({radius}), so a search finds them all: "
            f"{_ADVICE}",
            CrowdedCodesWarning,
            stacklevel=4,
        )
