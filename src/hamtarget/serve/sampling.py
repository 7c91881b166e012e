"""A sample of a store's codes, kept in memory: for the balance of bits and for histograms of distances."""

from __future__ import annotations

import time
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes, distances, unpack
from hamtarget.items import Id
from hamtarget.serve.counting import CountingStore

SAMPLE_ROWS = 20_000
_EXAMPLES = 24
# A store that changes all the time is sampled anew only so often.
_SECONDS = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class CodeSample:
    """Codes of some items, or of all where there are few.

    Attributes:
        codes: (rows, n_bits / 8).
        is_whole: whether these are all.
        bit_balance: (n_bits,) share of rows with a 1.
        examples: a few ids.
    """

    codes: Codes
    is_whole: bool
    bit_balance: NDArray[np.float64]
    examples: list[Id]

    def histogram(self, code: Codes, n_bits: int) -> NDArray[np.int64]:
        """(n_bits + 1,) number of rows at each distance from the code."""
        return np.bincount(distances(code, self.codes, n_bits)[0], minlength=n_bits + 1)


class Sampler:
    """Draws a sample when one is asked for and the store has changed."""

    def __init__(self, store: CountingStore) -> None:
        self._store = store
        self._lock = Lock()
        self._sample: CodeSample | None = None
        self._sequence = -1
        self._drawn = 0.0

    def sample(self) -> CodeSample:
        """A sample that is at most a few seconds behind the store."""
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
        codes, ids = self._store.sample(SAMPLE_ROWS, _EXAMPLES)
        n_bits = self._store.n_bits
        # Of no rows at all, no bit is out of balance.
        balance = unpack(codes, n_bits).mean(axis=0) if len(codes) else np.full(n_bits, 0.5)
        return CodeSample(codes, len(codes) == len(self._store), balance, ids)
