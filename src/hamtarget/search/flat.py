"""Search that reads every code: no tables, no tuning, the reference for every other index."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self, cast

from numpy.typing import ArrayLike, NDArray

from hamtarget.answer import Answer, Hits
from hamtarget.codes import check_n_bits
from hamtarget.errors import InputError
from hamtarget.search.embeddings import Embeddings, check_kind
from hamtarget.search.index import CodeIndex
from hamtarget.search.requests import Request

if TYPE_CHECKING:
    from hamtarget._core import _native
    from hamtarget.search.device.index import DeviceScanner

# Rows that go from a file to a device at a time.
_ROWS_AT_A_TIME = 1 << 20


class FlatIndex(CodeIndex):
    """An index without tables: codes of `n_bits` bits and their ids, all of which every search reads.

    It needs no radius and no tuning. Use it for few rows, to check what another index finds, or with a GPU for codes
    and radii that no table helps with.

    Example:
        >>> import numpy as np
        >>> index = FlatIndex(64)
        >>> index.add([7, 8], np.array([[0] * 8, [3] + [0] * 7], dtype=np.uint8))
        >>> index.search(np.zeros(8, dtype=np.uint8), radius=2)
        Hits(2 hits: Hit(id=7, distance=0), Hit(id=8, distance=2))
        >>> index
        FlatIndex(rows=2, n_bits=64, memory=...)
    """

    _has_tables = False
    _scanner: DeviceScanner | None = None

    def __init__(self, n_bits: int, *, embeddings: Embeddings | None = None, device: str | None = None) -> None:
        """Create an empty index.

        Args:
            n_bits: bits of a code: a multiple of 8 from 8 to 4,096.
            embeddings: kind of the embeddings, if rows have some; not on a device.
            device: "cuda", "cuda:1" or "cpu": codes live there, and torch compares them; the results are the same. By
                default they are in memory, and the native core compares them.

        Raises:
            InputError: `n_bits` is out of range, there is no such device, or embeddings are asked for on a device.
            DtypeError: `n_bits` is not an integer, `embeddings` not `Embeddings`, or `device` not a string.
            MissingExtraError: torch, which a device needs, is not installed.
        """
        check_kind(embeddings)
        if device is None:
            super().__init__(check_n_bits(n_bits), substrings=0, radius=None, embeddings=embeddings)
            return
        if embeddings is not None:
            raise InputError("embeddings and device are given; a device keeps codes alone: leave one of them out")
        from hamtarget.search.device.index import DeviceScanner

        self._scanner = DeviceScanner(n_bits, device)
        # Rows on a device answer the same calls as those of the core, but for searches, which are below.
        self._hold(cast("_native.MultiIndex", self._scanner.rows), None)

    @property
    def device(self) -> str | None:
        """The device that codes live on; None where they are in memory."""
        return None if self._scanner is None else self._scanner.device

    def answer_code(
        self,
        query: Any,
        code: ArrayLike | None,
        radius: int | None,
        limit: int | None,
        is_nearest: bool,
        mask: NDArray[Any] | None,
    ) -> Hits | None:
        """Answer a query for one code in one call of the core; None on a device, which takes the usual way."""
        return None if self._scanner is not None else super().answer_code(query, code, radius, limit, is_nearest, mask)

    def find_one(self, request: Request) -> Hits:
        """Return the hits of a request for one query."""
        return super().find_one(request) if self._scanner is None else self.find(request)[0]

    def find(self, request: Request) -> Answer:
        """Return the hits of a request for any number of queries; a device shares them among its own threads."""
        if self._scanner is None or request.offsets is not None:
            return super().find(request)
        return self._scanner.find(request)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Put the index, as it is now, at `path`; the file does not say on which device it was.

        Raises:
            OSError: the file cannot be written; what was at `path` is as it was.
        """
        if self._scanner is None:
            super().save(path)
            return
        here = FlatIndex(self.n_bits)
        _copy(self, here)
        here.save(path)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, mmap: bool = True, verify: bool = True, device: str | None = None
    ) -> Self:
        """Open the index in a file; see `MultiIndex.open`.

        Args:
            path: where `save` put it.
            mmap: use the file itself as memory.
            verify: read every byte of the file once, and refuse a damaged file.
            device: copy the codes there; see `FlatIndex`.

        Raises:
            InputError: there is no such device, or the file has embeddings and a device is given.
            CorruptFileError: the file is truncated, altered (with `verify`), or not of this kind.
            UnsupportedFileError: it is of another version, or of another kind of index.
            OSError: it cannot be read.
        """
        here = super().open(path, mmap=mmap, verify=verify)
        if device is None:
            return here
        there = cls(here.n_bits, embeddings=here.embeddings, device=device)
        _copy(here, there)
        return there


def _copy(source: FlatIndex, target: FlatIndex) -> None:
    """Add all rows of one index to another."""
    ids = source.ids()
    for start in range(0, len(ids), _ROWS_AT_A_TIME):
        block = ids[start : start + _ROWS_AT_A_TIME]
        codes = source.get(block)
        target.add(block, codes[0] if isinstance(codes, tuple) else codes)
