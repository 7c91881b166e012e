"""A map of a store: some of its codes in the plane, so that near codes lie near each other as far as a plane allows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes, unpack
from hamtarget.items import Id, Item
from hamtarget.query import RunningBounds, Work
from hamtarget.serve.lanes.memory import Holding
from hamtarget.store import Store

MAX_POINTS = 5000
"""Items of one map, at most."""

_LABEL_FIELDS = ("label", "class")
_LABEL_CHARACTERS = 100
# A bit is unpacked, and then a float.
_BIT_BYTES = 5
# Steps of the iteration; the two largest directions of a few thousand codes are found in about ten.
_STEPS = 30


@dataclass(frozen=True, slots=True, eq=False)
class CodeMap:
    """Items of a store as points.

    Attributes:
        ids: their ids.
        points: (items, 2), each coordinate within -1 and 1.
        shares: share of the codes' variance that each of the two directions has.
        labels: what the payload says an item is; None where it says nothing.
        is_whole: True if these are all items.
    """

    ids: list[Id]
    points: NDArray[np.float32]
    shares: list[float]
    labels: list[str | None]
    is_whole: bool

    def body(self) -> bytes:
        """Return the map as an answer, in JSON."""
        places = self.points.astype(np.float64).round(4).tolist()
        points = [
            {"id": id, "x": x, "y": y, "label": label}
            for id, (x, y), label in zip(self.ids, places, self.labels, strict=True)
        ]
        shares = [round(share, 4) for share in self.shares]
        answer = {"points": points, "shares": shares, "sampled": not self.is_whole}
        return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()


class Cartographer:
    """Draws maps of a store, and keeps the last one until the store changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._drawn: tuple[tuple[int, int], CodeMap] | None = None

    def draw(self, n: int, bounds: RunningBounds, holding: Holding) -> CodeMap:
        """Return a map of `n` items, drawn at random, or of all where there are fewer.

        Args:
            n: number of items.
            bounds: bounds on the work.
            holding: memory of the request, which the bits of the codes are taken from.

        Raises:
            LimitError: their payloads are larger than an answer may be, or it took too long.
            Problem: their bits do not fit the memory that the request, or all requests, may hold.
        """
        key = (self._store.sequence, n)
        with self._lock:
            if self._drawn is not None and self._drawn[0] == key:
                return self._drawn[1]
        ids = self._store.sample_ids(n)
        items = self._store.get(ids, work=Work(bounds))
        found = [(id, item) for id, item in zip(ids, items, strict=True) if item is not None]
        # An item with several codes stands where its first one does.
        codes = np.array(
            [item.code if item.codes is None else np.asarray(item.codes)[0] for _, item in found], dtype=np.uint8
        ).reshape(len(found), self._store.n_bits // 8)
        n_bytes = _BIT_BYTES * len(found) * self._store.n_bits
        holding.take(n_bytes)
        try:
            points, shares = project(codes, self._store.n_bits)
        finally:
            holding.give(n_bytes)
        bounds.check()
        labels = [_label(item) for _, item in found]
        drawn = CodeMap([id for id, _ in found], points, shares, labels, len(found) == len(self._store))
        with self._lock:
            self._drawn = (key, drawn)
        return drawn


def project(codes: Codes, n_bits: int) -> tuple[NDArray[np.float32], list[float]]:
    """Return codes in the plane of their two principal components, and the share of variance of each.

    The same codes give the same map. The squared distance of bits is the Hamming distance, so that no other plane keeps
    more of the distances between codes.
    """
    bits = unpack(codes, n_bits).astype(np.float32)
    bits -= bits.sum(axis=0) / max(1, len(bits))
    variance = float(np.vdot(bits, bits))
    if variance == 0:
        # None, one, or all alike.
        return np.zeros((len(codes), 2), dtype=np.float32), [0.0, 0.0]
    # By iteration: the whole decomposition of 4,096 bits would take a minute.
    start = np.random.default_rng(0).normal(size=(n_bits, 4)).astype(np.float32)
    directions = np.linalg.qr(start)[0]
    for _ in range(_STEPS):
        directions = np.linalg.qr(bits.T @ (bits @ directions))[0]
    # The best two within the space that was found, the largest first.
    _, strengths, turned = np.linalg.svd(bits @ directions, full_matrices=False)
    axes = directions @ turned[:2].T
    # A direction has no sign: choose that in which its largest part is positive.
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), range(2)])
    points = bits @ axes
    shares = [float(strength**2) / variance for strength in strengths[:2]]
    return points / np.abs(points).max(), shares


def _label(item: Item) -> str | None:
    payload = item.payload or {}
    told = next((payload[field] for field in _LABEL_FIELDS if isinstance(payload.get(field), str | int)), None)
    return None if told is None else str(told)[:_LABEL_CHARACTERS]
