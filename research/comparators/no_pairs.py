"""NoPairs: what is left of a loss around pairs if pairs cost nothing."""

from __future__ import annotations

from torch import Tensor

from hamtarget.learn.losses.base import LossTerms, PairLoss


class NoPairs(PairLoss):
    """A pair loss that is always 0. Inside a `ProxyLoss` it leaves the proxies alone.

    Args:
        n_bits: length of a code.
    """

    def __init__(self, n_bits: int) -> None:
        super().__init__(n_bits, gather=False)

    def _terms(self, logits: Tensor, similar: Tensor) -> LossTerms:
        return self._report(logits.new_zeros(()), logits, similar)

    def extra_repr(self) -> str:
        """Return all settings that the value depends on."""
        return f"n_bits={self.n_bits}, no pairs"
