"""A sample of a store's codes, kept in memory: for the balance of bits and for histograms of distances."""

from __future__ import annotations

import time
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes, distances, unpack
from hamtarget.items import Id
from hamtarget.serve.messages.search_messages import Histogram
from hamtarget.store import Store

SAMPLE_ROWS = 20_000
_EXAMPLES = 24
# A store that changes all the time is sampled anew only so often.
_SECONDS = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class CodeSample:
    """Some codes of items, or all where there are few.

    Attributes:
        codes: (rows, n_bits / 8).
        is_whole: True if these are all codes.
        bit_balance: (n_bits,) share of rows with a 1.
        examples: a few ids.
    """

    codes: Codes
    is_whole: bool
    bit_balance: NDArray[np.float64]
    examples: list[Id]

    def histogram(self, code: Codes, n_bits: int) -> Histogram:
        """Count the rows at each distance from a code."""
        counts = np.bincount(distances(code, self.codes, n_bits)[0], minlength=n_bits + 1)
        return Histogram(counts=counts.tolist(), rows=len(self.codes), sampled=not self.is_whole)


class Sampler:
    """A sample that is drawn when it is needed and the store has changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._sample: CodeSample | None = None
        self._sequence = -1
        self._drawn = 0.0

    def sample(self) -> CodeSample:
        """Return a sample that is at most a few seconds behind the store."""
        with self._lock:
            now = time.monotonic()
            if self._sample is None or now - self._drawn > _SECONDS:
                sequence = self._store.sequence
                if self._sample is None or sequence != self._sequence:
                    self._sample = self._draw()
                    self._sequence = sequence
                self._drawn = now
            return self._sample

    def _draw(self) -> CodeSample:
        codes = self._store.sample_codes(SAMPLE_ROWS)
        n_bits = self._store.n_bits
        # Without any rows, no bit is out of balance.
        balance = unpack(codes, n_bits).mean(axis=0) if len(codes) else np.full(n_bits, 0.5)
        is_whole = len(codes) < SAMPLE_ROWS or len(codes) == self._store.stats().codes
        return CodeSample(codes, is_whole, balance, self._store.sample_ids(_EXAMPLES))
