"""Cross-entropy of the cosines between rows and the codes of classes."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def cosine_cross_entropy(logits: Tensor, labels: Tensor, codes: Tensor, *, scale: float, margin: float) -> Tensor:
    """Return the mean cross-entropy of scaled cosines.

    The logit of a label is scale x (cosine of the row and the label's code - margin where the row has the label).
    """
    labels = labels.to(logits.dtype)
    cosine = F.normalize(logits, dim=1) @ F.normalize(codes.to(logits.dtype), dim=1).T
    chances = labels / labels.sum(dim=1, keepdim=True).clamp(min=1)
    return F.cross_entropy(scale * (cosine - margin * labels), chances)
