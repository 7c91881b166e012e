"""An index for Meta's package threatexchange: PDQ hashes on a `MultiIndex`, exact, with additions while it is queried.

`serialize` writes the index and its entries as one stream of bytes: a head, the file of the index, and the entries as
JSON. The head is 8 bytes that name the format, then three numbers of 8 bytes, little-endian: the threshold, the length
of the index file, and the length of the JSON; then the CRC-32 of the JSON in 4 bytes. The index file has checksums of
its own.
"""

from __future__ import annotations

import itertools
import json
import shutil
import struct
import tempfile
import threading
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeVar

import numpy as np

from hamtarget.codes import Codes, check_radius
from hamtarget.errors import CorruptFileError, InputError, MissingExtraError
from hamtarget.search import MultiIndex

try:
    from threatexchange.signal_type.index import IndexMatchUntyped, SignalSimilarityInfoWithIntDistance, SignalTypeIndex
except ImportError as error:
    raise MissingExtraError(
        f"hamtarget.integrations.threatexchange needs threatexchange ({error}): pip install 'hamtarget[threatexchange]'"
    ) from error

__all__ = ["PDQMultiIndex"]

Entry = TypeVar("Entry")

_N_BITS = 256
_N_DIGITS = _N_BITS // 4
# The distance within which PDQ's authors call a match confident.
_THRESHOLD = 31
_ENTRIES_AT_A_TIME = 1 << 16
_NAME = b"HTXPDQ01"
_HEAD = struct.Struct("<8sQQQI")
_PIECE = 1 << 20


def __dir__() -> list[str]:
    return __all__


class PDQMultiIndex(SignalTypeIndex[Entry]):  # type: ignore[misc, unused-ignore]  # Any where it is not installed
    """PDQ hashes and an entry for each, found exactly within a threshold.

    Any number of threads may query while others add; a query sees each addition whole or not at all. A hash may come
    with several entries.

    Example:
        >>> from hamtarget.integrations.threatexchange import PDQMultiIndex
        >>> index = PDQMultiIndex.build([("0" * 64, {"case": 7}), ("f" * 64, {"case": 8})])
        >>> [(match.metadata, match.similarity_info.distance) for match in index.query("0" * 63 + "1")]
        [({'case': 7}, 1)]
    """

    def __init__(self, entries: Iterable[tuple[str, Entry]] = (), *, threshold: int = _THRESHOLD) -> None:
        """Hold some entries.

        Args:
            entries: hashes of 64 hexadecimal digits, and what a query returns for each.
            threshold: largest distance of a match.

        Raises:
            InputError: the threshold is not from 0 to 255, or a hash is not one.
            DtypeError: the threshold is not an integer.
        """
        super().__init__()
        self.threshold = check_radius(threshold, _N_BITS)
        self._index = MultiIndex(_N_BITS, self.threshold)
        self._entries: list[Entry] = []
        self._adding = threading.Lock()
        self.add_all(entries)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._index)

    def query(self, query: str) -> list[IndexMatchUntyped[SignalSimilarityInfoWithIntDistance, Entry]]:
        """Return the entries of all hashes within the threshold, nearest first, then in the order they were added.

        Raises:
            InputError: the query is not a hash.
        """
        entries = self._entries
        return [
            IndexMatchUntyped(SignalSimilarityInfoWithIntDistance(hit.distance), entries[int(hit.id)])
            for hit in self._index.search(_codes([query])[0])
        ]

    def add(self, signal_str: str, entry: Entry) -> None:
        """Add an entry under a hash; entries that are there under the same hash stay.

        Raises:
            InputError: it is not a hash.
        """
        self.add_all(((signal_str, entry),))

    def add_all(self, entries: Iterable[tuple[str, Entry]]) -> None:
        """Add entries under their hashes, 65,536 at a time.

        Raises:
            InputError: a hash is not one; of its 65,536 none is added then, and those before them are.
        """
        for some in _in_blocks(entries):
            codes = _codes([signal for signal, _ in some])
            with self._adding:
                first = len(self._entries)
                # Entries come first: a query may find a row as soon as it is added.
                self._entries.extend(entry for _, entry in some)
                self._index.add(np.arange(first, first + len(some)), codes)

    def serialize(self, fout: BinaryIO) -> None:
        """Write the index into a stream, without pickle. `deserialize` reads it.

        Raises:
            InputError: an entry is not what JSON holds: None, a bool, a number, a string, or lists and dicts of these.
        """
        with self._adding:
            _write_stream(fout, self._index, self._entries, self.threshold)

    @classmethod
    def deserialize(cls, fin: BinaryIO) -> PDQMultiIndex[Any]:
        """Return the index that `serialize` wrote into a stream.

        Raises:
            CorruptFileError: the stream holds something else, or is damaged.
        """
        index, entries, threshold = _read_stream(fin)
        result: PDQMultiIndex[Any] = cls(threshold=threshold)
        result._index, result._entries = index, entries
        return result

    def dispose(self) -> None:
        """Forget all entries, and free their memory."""
        with self._adding:
            self._index, self._entries = MultiIndex(_N_BITS, self.threshold), []

    def __reduce__(self) -> NoReturn:
        raise InputError("an index of hamtarget is not pickled; write it by serialize, read it by deserialize")


def _in_blocks(entries: Iterable[tuple[str, Entry]]) -> Iterator[list[tuple[str, Entry]]]:
    rest = iter(entries)
    while some := list(itertools.islice(rest, _ENTRIES_AT_A_TIME)):
        yield some


def _codes(signals: list[str]) -> Codes:
    try:
        codes = np.frombuffer(bytes.fromhex("".join(signals)), np.uint8)
        if all(len(signal) == _N_DIGITS for signal in signals):
            return codes.reshape(len(signals), _N_BITS // 8)
    except (TypeError, ValueError):
        pass
    wrong = next(signal for signal in signals if not _is_hash(signal))
    raise InputError(f"the signal is {wrong!r}; expected a PDQ hash of {_N_DIGITS} hexadecimal digits")


def _is_hash(signal: object) -> bool:
    return isinstance(signal, str) and len(signal) == _N_DIGITS and all(c in "0123456789abcdefABCDEF" for c in signal)


def _write_stream(out: BinaryIO, index: MultiIndex, entries: list[Any], threshold: int) -> None:
    """Write an index and its entries.

    Raises:
        InputError: an entry is not what JSON holds.
    """
    text = _as_json(entries)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pdq.index"
        index.save(path)
        out.write(_HEAD.pack(_NAME, threshold, path.stat().st_size, len(text), zlib.crc32(text)))
        with path.open("rb") as file:
            shutil.copyfileobj(file, out, _PIECE)
    out.write(text)


def _read_stream(source: BinaryIO) -> tuple[MultiIndex, list[Any], int]:
    """Return an index, its entries and the threshold.

    Raises:
        CorruptFileError: the stream holds something else, or is damaged.
    """
    head = source.read(_HEAD.size)
    if len(head) < _HEAD.size or not head.startswith(_NAME):
        raise CorruptFileError(f"the stream begins with {head[:8]!r}; expected what PDQMultiIndex.serialize wrote")
    _, threshold, index_size, text_size, checksum = _HEAD.unpack(head)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pdq.index"
        with path.open("wb") as file:
            _copy(source, file, index_size)
        # A copy in memory: the file goes with its folder.
        index = MultiIndex.open(path, mmap=False)
    text = source.read(text_size)
    if len(text) < text_size or zlib.crc32(text) != checksum:
        raise CorruptFileError("the entries of the stream are damaged or cut off; serialize the index again")
    entries = json.loads(text)
    rows = index.ids()
    if not isinstance(entries, list) or len(entries) != len(rows) or (len(rows) and rows[-1] != len(rows) - 1):
        raise CorruptFileError(f"the stream has {len(rows):,} rows, and other entries; serialize the index again")
    if index.n_bits != 256 or index.radius != threshold:
        raise CorruptFileError(f"the index of the stream has {index.n_bits} bits and radius {index.radius}")
    return index, entries, int(threshold)


def _as_json(entries: list[Any]) -> bytes:
    try:
        text = json.dumps(entries, separators=(",", ":"), allow_nan=False)
        # JSON has no tuples, and names of fields are strings: what comes back differently is refused.
        if json.loads(text) == entries:
            return text.encode()
    except (TypeError, ValueError):
        pass
    raise InputError(
        "an entry is not what JSON holds, and nothing else is written: expected None, bool, int, float, str, or lists "
        "and dicts of these; keep such entries elsewhere, and their keys here"
    )


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size:
        piece = source.read(min(size, _PIECE))
        if not piece:
            raise CorruptFileError(f"the stream ends {size:,} bytes too early; serialize the index again")
        target.write(piece)
        size -= len(piece)
