"""Codes that live on a device of torch, and their ids: kept in the order of the ids, changed all or none.

It answers the calls of the native core that an index makes, so that `CodeIndex` does not know which of them it holds.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hamtarget.codes import Codes
from hamtarget.errors import InputError
from hamtarget.search.device.keys import MAX_ROWS

_WORD_BYTES = 4
# Room for more rows is made by this factor, so that many small additions do not copy everything each time.
_GROWTH = 1.5
# Codes go to the device in pieces of so many bytes: a piece is padded on the way.
_UPLOAD_BYTES = 1 << 26


class Snapshot(NamedTuple):
    """Rows as a search sees them; later changes leave them alone.

    Attributes:
        ids: (rows,) ascending.
        words: (rows, words) int32 on the device: the bytes of a code, filled up with zeros.
    """

    ids: NDArray[np.int64]
    words: Tensor

    def ids_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ids of some rows."""
        if len(rows) and int(self.ids[-1]) - int(self.ids[0]) == len(self.ids) - 1:
            # Ids without gaps need not be looked up, which takes long for so many that no cache holds them.
            return rows + int(self.ids[0])
        found: NDArray[np.int64] = self.ids[rows]
        return found


class DeviceRows:
    """Codes of `n_bytes` bytes on a device, and their ids."""

    n_tables = 0
    radius = 0
    n_parts = 1

    def __init__(self, n_bytes: int, device: torch.device) -> None:
        """Hold no rows yet."""
        self.n_bytes = n_bytes
        self.n_words = -(-n_bytes // _WORD_BYTES)
        self.device = device
        # The arrays may have room behind the rows that the snapshot shows; only additions write there.
        self._ids: NDArray[np.int64] = np.empty(0, np.int64)
        self._words = torch.empty((0, self.n_words), dtype=torch.int32, device=device)
        self._snapshot = Snapshot(self._ids, self._words)
        self._writing = threading.Lock()

    def snapshot(self) -> Snapshot:
        """Return the rows as they are now."""
        return self._snapshot

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._snapshot.ids)

    def __contains__(self, id: object) -> bool:
        """Return True if there is a row with this id."""
        ids = self._snapshot.ids
        place = int(np.searchsorted(ids, id))  # type: ignore[call-overload]
        return place < len(ids) and bool(ids[place] == id)

    def ids(self) -> NDArray[np.int64]:
        """Return all ids, ascending."""
        return self._snapshot.ids.copy()

    @property
    def memory(self) -> int:
        """Bytes that codes take on the device, and ids beside it, with the room for more."""
        return self._words.nbytes + self._ids.nbytes

    def add(self, ids: NDArray[np.int64], codes: Codes, embeddings: None = None) -> None:
        """Store rows under new ids."""
        with self._writing:
            order = _ascending(ids)
            now = self._snapshot
            present = np.flatnonzero(_is_in(ids, now.ids))
            if len(present):
                raise InputError(
                    f"id {ids[present[0]]} is in this index already ({len(present)} of {len(ids)} ids are); "
                    "expected new ids"
                )
            n_rows = len(now.ids) + len(ids)
            if n_rows > MAX_ROWS:
                raise InputError(f"there would be {n_rows:,} rows; a device holds at most {MAX_ROWS:,}")
            if order is not None:
                ids, codes = ids[order], codes[order]
            if len(ids) == 0:
                return
            is_last = len(now.ids) == 0 or bool(ids[0] > now.ids[-1])
            self._append(now, ids, codes)
            if is_last:
                self._snapshot = Snapshot(self._ids[:n_rows], self._words[:n_rows])
            else:
                every = np.argsort(self._ids[:n_rows], kind="stable")
                self._hold(self._ids[every], self._words[self._to_device(every)])

    def delete(self, ids: NDArray[np.int64]) -> None:
        """Remove the rows of these ids."""
        with self._writing:
            _ascending(ids)
            now = self._snapshot
            stays = np.ones(len(now.ids), dtype=bool)
            stays[self._places(now, ids)] = False
            self._hold(now.ids[stays], now.words[self._to_device(stays)])

    def replace(self, ids: NDArray[np.int64], codes: Codes, embeddings: None = None) -> None:
        """Replace the codes of ids that are there."""
        with self._writing:
            _ascending(ids)
            now = self._snapshot
            places = self._places(now, ids)
            words = now.words.clone()
            words[self._to_device(places)] = self._uploaded(codes)
            self._hold(now.ids, words)

    def get(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return the codes of these ids as bytes one after another, and no embeddings."""
        now = self._snapshot
        words = now.words[self._to_device(self._places(now, ids))].cpu().numpy()
        codes = words.view(np.uint8)[:, : self.n_bytes]
        return np.ascontiguousarray(codes).reshape(-1), np.empty(0, np.uint8)

    def compact(self) -> None:
        """Give back the room for more rows."""
        with self._writing:
            now = self._snapshot
            self._hold(now.ids.copy(), now.words.clone())

    def hold(self, ids: NDArray[np.int64], words: Tensor) -> None:
        """Hold these rows, whose words are on the device already, in the place of all others; the ids ascend."""
        with self._writing:
            self._hold(ids, words)

    def words_of(self, codes: Codes) -> NDArray[np.int32]:
        """Return codes as words, filled up with zeros; they may share memory with the codes."""
        if self.n_bytes % _WORD_BYTES:
            padded = np.zeros((len(codes), _WORD_BYTES * self.n_words), np.uint8)
            padded[:, : self.n_bytes] = codes
            codes = padded
        # A single row counts as contiguous whatever its stride, which torch does not take.
        return np.ascontiguousarray(codes).reshape(-1).view(np.int32).reshape(-1, self.n_words)

    def _append(self, now: Snapshot, ids: NDArray[np.int64], codes: Codes) -> None:
        first, stop = len(now.ids), len(now.ids) + len(ids)
        if stop > len(self._ids):
            # The first rows get no more room than they need: most indexes are filled once.
            room = stop if first == 0 else max(stop, int(first * _GROWTH))
            grown_ids = np.empty(room, np.int64)
            grown_ids[:first] = now.ids
            grown_words = torch.empty((room, self.n_words), dtype=torch.int32, device=self.device)
            grown_words[:first] = now.words
            self._ids, self._words = grown_ids, grown_words
        self._ids[first:stop] = ids
        step = max(1, _UPLOAD_BYTES // (_WORD_BYTES * self.n_words))
        for start in range(0, len(codes), step):
            part = self._uploaded(codes[start : start + step])
            self._words[first + start : first + start + len(part)] = part

    def _hold(self, ids: NDArray[np.int64], words: Tensor) -> None:
        self._ids, self._words = ids, words
        self._snapshot = Snapshot(ids, words)

    def _uploaded(self, codes: Codes) -> Tensor:
        # A copy: torch would otherwise share memory with the caller's codes where the device is the CPU.
        return torch.tensor(self.words_of(codes), device=self.device)

    def _to_device(self, numbers: NDArray[np.int64] | NDArray[np.bool_]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(numbers)).to(self.device)

    @staticmethod
    def _places(now: Snapshot, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        missing = np.flatnonzero(~_is_in(ids, now.ids))
        if len(missing):
            raise InputError(f"id {ids[missing[0]]} is not in this index; expected ids that were added")
        return np.searchsorted(now.ids, ids).astype(np.int64)


def _is_in(ids: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which ids are among the known ones, which ascend."""
    if len(known) == 0:
        return np.zeros(len(ids), dtype=bool)
    places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    found: NDArray[np.bool_] = known[places] == ids
    return found


def _ascending(ids: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return the order in which ids ascend; None if they do already.

    Raises:
        InputError: an id is there twice.
    """
    if bool((ids[1:] > ids[:-1]).all()):
        return None
    order = np.argsort(ids, kind="stable")
    repeated = np.flatnonzero(ids[order[1:]] == ids[order[:-1]])
    if len(repeated):
        raise InputError(f"ids hold {ids[order[repeated[0]]]} more than once; expected each id once")
    return order
