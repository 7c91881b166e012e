"""SimHash of word shingles: near copies of a text differ in few bits of 64.

The definition, which gives the same code on every machine:

1. The text is normalised (Unicode NFKC) and case-folded. Words are runs of letters, digits and underscores; a Chinese
   character and a Japanese kana are words of their own.
2. The number of a word is that of the 8 bytes, little-endian, of BLAKE2b (digest size 8) of its UTF-8.
3. Shingles are all single words a, with hash mix(a), and all pairs of words a, b one after the other, with hash
   mix(3 a + b). `mix` is the end of SplitMix64; all arithmetic is modulo 2**64. A shingle counts once for a text.
4. The weight of a shingle with hash h is 256 + (mix(h) >> 58): nearly the same for all, so that few sums are 0.
5. Bit k of the code is 1 if the weights of the shingles whose hash has bit k exceed the weights of the others.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._files import write_atomically
from hamtarget.codes import Codes, from_logits, unit_rows
from hamtarget.encoders.shipped import recorded_figures
from hamtarget.encoders.texts.text_inputs import TEXT_SHAPE, check_texts

TEXT_HASH_FILE_NAME = "text_hash.json"
"""Name of the file in the folder of a saved hash of texts."""
TEXT_HASH_FORMAT = 1

Hashes = NDArray[np.uint64]

_N_BITS = 64
_ONE_WEIGHT = 256
_OWN_WORDS = "\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_OWN_WORDS}]|[^\W{_OWN_WORDS}]+")
# Texts are worked on together until they have so many characters: about 50 MB of memory.
_CHARACTERS_AT_ONCE = 500_000
_SHINGLES_AT_ONCE = 65_536
# Their weights together fit 16 bits.
_SHINGLES_OF_LANES = 128
# Numbers of words that are remembered: about 100 MB.
_REMEMBERED_WORDS = 500_000


class SimHash64:
    """SimHash of a text's words and pairs of neighbouring words, 64 bits; it needs no training.

    Copies of a text with other case, punctuation or spaces have the same code; copies with a few other words have a
    near one. A text without words has the code 0.

    Example:
        >>> encoder = SimHash64()
        >>> codes = encoder.encode(["The quick brown fox.", "the QUICK brown -- fox", "Something else"])
        >>> [int(np.bitwise_count(codes[0] ^ code).sum()) for code in codes]
        [0, 0, 32]
    """

    name = "simhash64"
    n_bits = _N_BITS
    radius: None = None
    input_shape = TEXT_SHAPE
    input_kind = "text"

    def __init__(self) -> None:
        self._numbers = _WordNumbers()

    @property
    def recorded(self) -> Mapping[str, Any] | None:
        """Figures that were measured of the hash; None if there are none."""
        return recorded_figures(self.name)

    def logits(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Return the sums before the threshold, (rows, 64), in weights of one shingle.

        Raises:
            ShapeError: the inputs are one text, not a batch.
            DtypeError: an input is not a text.
        """
        texts = check_texts(inputs)
        sums = np.zeros((len(texts), _N_BITS), dtype=np.int64)
        start = 0
        while start < len(texts):
            end, characters = start, 0
            while end < len(texts) and (end == start or characters + len(texts[end]) <= _CHARACTERS_AT_ONCE):
                characters += len(texts[end])
                end += 1
            self._add_block(texts[start:end], sums[start:end])
            start = end
        return (sums / _ONE_WEIGHT).astype(np.float32)

    def encode(self, inputs: ArrayLike) -> Codes:
        """Return packed codes, (rows, 8)."""
        return from_logits(self.logits(inputs))

    def embedding(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Return the logits scaled to unit length, (rows, 64)."""
        return unit_rows(self.logits(inputs))

    def save(self, folder: str | Path) -> None:
        """Write the name of the hash to `folder`, from where `hamtarget.open_encoder` opens it."""
        content = json.dumps({"format": TEXT_HASH_FORMAT, "text_hash": self.name}) + "\n"
        write_atomically(Path(folder) / TEXT_HASH_FILE_NAME, content.encode())

    def __repr__(self) -> str:
        return f"SimHash64(n_bits={self.n_bits}) [inputs texts]"

    def _add_block(self, texts: list[str], sums: NDArray[np.int64]) -> None:
        """Add the weights of all shingles of some texts to their sums."""
        words: list[str] = []
        counts = np.zeros(len(texts), dtype=np.int64)
        for row, text in enumerate(texts):
            found = words_of(text)
            counts[row] = len(found)
            words += found
        numbers = self._numbers.of(words)
        rows = np.repeat(np.arange(len(texts)), counts)
        is_pair = rows[:-1] == rows[1:]
        hashes = np.concatenate([_mix(numbers), _mix((np.uint64(3) * numbers[:-1] + numbers[1:])[is_pair])])
        rows = np.concatenate([rows, rows[:-1][is_pair]])
        hashes, rows = _distinct(hashes, rows)
        for start in range(0, len(rows), _SHINGLES_AT_ONCE):
            part = slice(start, start + _SHINGLES_AT_ONCE)
            _add_weights(hashes[part], rows[part], sums)


class _WordNumbers(dict[str, int]):
    """Numbers of words that were met; forgotten when they are too many."""

    def __missing__(self, word: str) -> int:
        # A half of a character, which JSON can write, has no UTF-8.
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        number = self[word] = int.from_bytes(digest, "little")
        return number

    def of(self, words: list[str]) -> Hashes:
        """Return the numbers of words."""
        if len(self) > _REMEMBERED_WORDS:
            self.clear()
        return np.fromiter(map(self.__getitem__, words), dtype=np.uint64, count=len(words))


def words_of(text: str) -> list[str]:
    """Return the words of a text, normalised and case-folded."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return _WORD.findall(text.casefold())


def _distinct(hashes: Hashes, rows: NDArray[np.int64]) -> tuple[Hashes, NDArray[np.int64]]:
    """Return the shingles of each row once, by ascending row."""
    # One sort of numbers that begin with the row takes half the time of a sort by two keys.
    shift = np.uint64(max(int(rows.max(initial=0)), 1).bit_length())
    keys = (rows.astype(np.uint64) << (np.uint64(_N_BITS) - shift)) | (hashes >> shift)
    order = np.argsort(keys)
    keys, sorted_hashes = keys[order], hashes[order]
    is_repeat = keys[1:] == keys[:-1]
    if (is_repeat & (sorted_hashes[1:] != sorted_hashes[:-1])).any():
        # Two different hashes begin alike, and might stand between two equal ones.
        order = np.lexsort((hashes, rows))
        sorted_hashes = hashes[order]
        is_repeat = (sorted_hashes[1:] == sorted_hashes[:-1]) & (rows[order][1:] == rows[order][:-1])
    kept = np.concatenate([np.ones(min(1, len(order)), dtype=bool), ~is_repeat])
    return sorted_hashes[kept], rows[order][kept]


def _mix(numbers: Hashes) -> Hashes:
    """Return numbers that look random: the end of SplitMix64."""
    mixed = numbers ^ (numbers >> np.uint64(30))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _add_weights(hashes: Hashes, rows: NDArray[np.int64], sums: NDArray[np.int64]) -> None:
    """Add the weights of shingles, with the signs of their bits, to the sums of their rows, which ascend."""
    weights = np.uint64(_ONE_WEIGHT) + (_mix(hashes) >> np.uint64(58))
    of_row = np.flatnonzero(np.diff(rows, prepend=-1))
    place = np.arange(len(rows)) - np.repeat(of_row, np.diff(of_row, append=len(rows)))
    starts = np.flatnonzero(place % _SHINGLES_OF_LANES == 0)
    # Four bits of a hash are added at once, each in 16 bits of a number.
    lanes = _LANES[hashes.astype("<u8").view(np.uint8).reshape(-1, 8)].reshape(-1, _N_BITS // 4)
    lanes *= weights[:, None]
    of_ones = np.add.reduceat(lanes, starts, axis=0).astype("<u8").view("<u2").astype(np.int64)
    np.add.at(sums, rows[starts], 2 * of_ones - np.add.reduceat(weights, starts).astype(np.int64)[:, None])


def _lanes_of_bytes() -> Hashes:
    """Return, for each byte, two numbers whose 16-bit parts, lowest first, are the byte's bits."""
    bits = (np.arange(256, dtype=np.uint64)[:, None] >> np.arange(8, dtype=np.uint64)) & np.uint64(1)
    shifted = bits.reshape(256, 2, 4) << np.arange(0, 64, 16, dtype=np.uint64)
    lanes: Hashes = shifted.sum(axis=2, dtype=np.uint64)
    return lanes


_LANES = _lanes_of_bytes()
