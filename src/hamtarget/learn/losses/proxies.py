"""ProxyLoss: a pair loss that also draws each row to a proxy of its class."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

from hamtarget.errors import InputError, ShapeError
from hamtarget.learn.losses.base import LabelLoss, LossTerms, PairLoss
from hamtarget.learn.losses.class_codes import hadamard_centers


class ProxyLoss(LabelLoss):
    """A pair loss plus `proxy_weight` times the cross-entropy of the cosines to the proxies, one for each class.

    Pairs with a label in common are similar. The proxies are learned, or stay where they start.

    Args:
        pair_loss: loss of all pairs of the batch.
        n_labels: number of classes.
        proxy_weight: weight of the cross-entropy.
        proxies: first proxies, (n_labels, n_bits), such as `codes_by_likeness`. None: `hadamard_centers`.
        learned: True if the proxies are learned.
        scale: scale of the cosines. None: the square root of n_bits.
        margin: number taken from the cosine of a row's own class.
        seed: seed of proxies that are drawn at random.
    """

    def __init__(
        self,
        pair_loss: PairLoss,
        n_labels: int,
        *,
        proxy_weight: float = 1.0,
        proxies: Tensor | None = None,
        learned: bool = True,
        scale: float | None = None,
        margin: float = 0.2,
        seed: int = 0,
    ) -> None:
        super().__init__(pair_loss.n_bits, n_labels, gather=pair_loss.gather)
        if proxy_weight < 0:
            raise InputError(f"proxy_weight is {proxy_weight}; expected 0 or more")
        if proxies is not None and proxies.shape != (n_labels, pair_loss.n_bits):
            raise ShapeError(f"proxies have shape {tuple(proxies.shape)}; expected {(n_labels, pair_loss.n_bits)}")
        self.pair_loss = pair_loss
        self.proxy_weight = float(proxy_weight)
        self.scale = math.sqrt(self.n_bits) if scale is None else float(scale)
        self.margin = float(margin)
        self.seed = seed
        start = hadamard_centers(n_labels, self.n_bits, seed=seed) if proxies is None else proxies.clone()
        self.proxies = nn.Parameter(start, requires_grad=learned)

    @property
    def radius(self) -> int | tuple[int, ...] | None:
        """Hamming distance target of the pair loss."""
        return self.pair_loss.radius

    @property
    def capturable(self) -> bool:
        """True if the pair loss is."""
        return self.pair_loss.capturable

    def at_step(self, step: int) -> None:
        """Prepare the pair loss for a step."""
        self.pair_loss.at_step(step)

    @property
    def class_codes(self) -> Tensor:
        """The proxies, (n_labels, n_bits)."""
        return self.proxies

    def _terms(self, logits: Tensor, labels: Tensor) -> LossTerms:
        pairs = self.pair_loss._terms(logits, labels @ labels.T > 0)
        misses = cosine_cross_entropy(logits, labels, self.proxies, scale=self.scale, margin=self.margin)
        return self._report_around(pairs, pairs.total + self.proxy_weight * misses, logits, labels)

    def _diagnose(self, logits: Tensor, target: Tensor) -> dict[str, float]:
        return self.pair_loss._diagnose(logits, target @ target.T > 0)

    def extra_repr(self) -> str:
        """Return all settings that the value depends on."""
        return (
            f"{self.pair_loss.extra_repr()}, n_labels={self.n_labels}, proxy_weight={self.proxy_weight}, "
            f"learned={self.proxies.requires_grad}, scale={self.scale}, margin={self.margin}, seed={self.seed}"
        )


def cosine_cross_entropy(logits: Tensor, labels: Tensor, codes: Tensor, *, scale: float, margin: float) -> Tensor:
    """Return the mean cross-entropy of scaled cosines.

    The logit of a label is scale x (cosine of the row and the label's code - margin where the row has the label).
    """
    labels = labels.to(logits.dtype)
    cosine = F.normalize(logits, dim=1) @ F.normalize(codes.to(logits.dtype), dim=1).T
    chances = labels / labels.sum(dim=1, keepdim=True).clamp(min=1)
    return F.cross_entropy(scale * (cosine - margin * labels), chances)
