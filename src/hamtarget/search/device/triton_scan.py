"""The scan by two kernels: one that counts bits, for few queries, and one on tensor cores, for many.

Few queries are bound by memory: every code is read once, as it lies. Many are bound by arithmetic: bits become +1 and
-1 of int8, in a scratch of 256 MB, and a product of matrices gives n_bits - 2 * distance.
The largest product of a tile says if there is a hit in it at all; most tiles end with that.

Triton comes with torch where there is CUDA: only `searching` imports this module.
"""

from __future__ import annotations

import math
import os
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from hamtarget.search.device.keys import QUERY_SHIFT, ROW_BITS

_BITS_OF_WORD = 32
# Keys that come with the count of hits in one transfer.
_HEAD = 256
_FEWEST_ROWS = 16
_SPREAD_WORDS = 512
# A distance that no row has: of queries that only fill up a tile.
_NEVER = 1 << 30
# Kernels that run in Python, to test them where there is no GPU.
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


class Tiling(NamedTuple):
    """Sizes of the kernel for many queries: rows, queries and bits of a tile, tiles of a program, warps, stages."""

    rows: int
    queries: int
    bits: int
    tiles: int
    warps: int
    stages: int


class Counting(NamedTuple):
    """Sizes of the kernel for few queries: words of a program, warps, and if it asks first whether there is a hit."""

    words: int
    warps: int
    asks: bool


COUNTING = Counting(words=1024, warps=1, asks=True)
# By the most bits that each is for. Chosen by `python -m research.benchmarks.gpu_scan --tune` on an H200.
TILINGS = {
    64: Tiling(rows=64, queries=128, bits=64, tiles=32, warps=4, stages=4),
    256: Tiling(rows=64, queries=128, bits=256, tiles=32, warps=4, stages=4),
    4096: Tiling(rows=128, queries=128, bits=128, tiles=1, warps=4, stages=3),
}


class TritonScan:
    """Finds rows within a radius on a GPU.

    Attributes:
        most_few: queries up to which bits are counted.
        scratch_bytes: bytes of rows that are spread at a time.
    """

    def __init__(self, device: torch.device) -> None:
        """Scan on a device."""
        self._device = device
        self.most_few = 96
        self.scratch_bytes = 1 << 28

    def scan(
        self, words: Tensor, queries: Tensor, radii: Tensor, allowed: Tensor | None, span: range, capacity: int
    ) -> tuple[int, Tensor]:
        """Return how many hits there are in a span, and their keys; see `PortableScan.scan`."""
        # The first number counts the hits.
        keys = torch.empty(capacity + 1, dtype=torch.int64, device=words.device)
        keys[:1] = 0
        if len(queries) <= self.most_few:
            self._scan_few(words, queries, radii, allowed, span, keys)
        else:
            self._scan_many(words, queries, radii, allowed, span, keys)
        head = keys[: _HEAD + 1].cpu()
        count = int(head[0])
        if count <= min(_HEAD, capacity):
            return count, head[1 : count + 1]
        return count, keys[1 : min(count, capacity) + 1]

    def _scan_few(
        self, words: Tensor, queries: Tensor, radii: Tensor, allowed: Tensor | None, span: range, keys: Tensor
    ) -> None:
        n_words = words.shape[1]
        padded = triton.next_power_of_2(n_words)
        rows = max(_FEWEST_ROWS, COUNTING.words // padded)
        _count_bits[(triton.cdiv(len(span), rows),)](
            words,
            queries,
            radii,
            words if allowed is None else allowed,
            keys,
            span.start,
            span.stop,
            len(queries),
            len(keys) - 1,
            WORDS=n_words,
            PADDED=padded,
            ROWS=rows,
            FILTERED=allowed is not None,
            ASKS=COUNTING.asks,
            INTERPRETED=_INTERPRETED,
            QUERY_SHIFT=QUERY_SHIFT,
            ROW_BITS=ROW_BITS,
            num_warps=COUNTING.warps,
        )

    def _scan_many(
        self, words: Tensor, queries: Tensor, radii: Tensor, allowed: Tensor | None, span: range, keys: Tensor
    ) -> None:
        n_bits = _BITS_OF_WORD * words.shape[1]
        tiling = TILINGS[min(most for most in TILINGS if n_bits <= most)]
        bits = math.gcd(n_bits, tiling.bits)
        n_tiles = 1 if bits < n_bits else tiling.tiles
        n_query_tiles = triton.cdiv(len(queries), tiling.queries)
        n_queries = n_query_tiles * tiling.queries
        asked = torch.zeros((n_queries, n_bits), dtype=torch.int8, device=words.device)
        _spread(queries, 0, len(queries), asked)
        # A product of at least this much is a hit.
        least = torch.full((n_queries,), _NEVER, dtype=torch.int32, device=words.device)
        least[: len(queries)] = torch.where(radii < 0, _NEVER, n_bits - 2 * radii)
        group = tiling.rows * n_tiles
        step = max(1, min(self.scratch_bytes // n_bits, len(span)) // group) * group
        # What lies behind the last row is read with its tile, and never a hit.
        scratch = torch.empty((step, n_bits), dtype=torch.int8, device=words.device)
        for start in range(span.start, span.stop, step):
            n_rows = min(step, span.stop - start)
            _spread(words, start, n_rows, scratch)
            _multiply[(triton.cdiv(n_rows, group) * n_query_tiles,)](
                scratch,
                asked,
                least,
                words if allowed is None else allowed,
                keys,
                start,
                n_rows,
                n_query_tiles,
                len(keys) - 1,
                BITS=n_bits,
                BLOCK_BITS=bits,
                ROWS=tiling.rows,
                QUERIES=tiling.queries,
                TILES=n_tiles,
                FILTERED=allowed is not None,
                QUERY_SHIFT=QUERY_SHIFT,
                ROW_BITS=ROW_BITS,
                num_warps=tiling.warps,
                num_stages=tiling.stages,
            )


def _spread(words: Tensor, first: int, n_rows: int, signs: Tensor) -> None:
    """Write the bits of some rows as +1 and -1 into the first rows of `signs`."""
    n_words = n_rows * words.shape[1]
    _spread_words[(triton.cdiv(n_words, _SPREAD_WORDS),)](
        words, signs.view(torch.int32), first * words.shape[1], n_words, COUNT=_SPREAD_WORDS, num_warps=4
    )


@triton.jit
def _ones(values, INTERPRETED: tl.constexpr):
    """Return how many bits of each word are 1."""
    if INTERPRETED:
        pairs = values - ((values >> 1) & 0x55555555)
        fours = (pairs & 0x33333333) + ((pairs >> 2) & 0x33333333)
        eights = (fours + (fours >> 4)) & 0x0F0F0F0F
        sixteens = eights + (eights >> 8)
        return (sixteens + (sixteens >> 16)) & 0x3F
    else:
        return tl.inline_asm_elementwise("popc.b32 $0, $1;", "=r,r", [values], dtype=tl.int32, is_pure=True, pack=1)


@triton.jit
def _count_bits(
    words,
    queries,
    radii,
    allowed,
    keys,
    first,
    stop,
    n_queries,
    capacity,
    WORDS: tl.constexpr,
    PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    FILTERED: tl.constexpr,
    ASKS: tl.constexpr,
    INTERPRETED: tl.constexpr,
    QUERY_SHIFT: tl.constexpr,
    ROW_BITS: tl.constexpr,
):
    rows = first + tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, PADDED)
    is_row = rows < stop
    is_word = columns < WORDS
    places = rows[:, None] * WORDS + columns[None, :]
    if WORDS == PADDED:
        codes = tl.load(words + places, mask=is_row[:, None], other=0)
    else:
        codes = tl.load(words + places, mask=is_row[:, None] & is_word[None, :], other=0)
    if FILTERED:
        is_row = is_row & (tl.load(allowed + rows, mask=is_row, other=0) != 0)
    for query in range(n_queries):
        asked = tl.load(queries + query * WORDS + columns, mask=is_word, other=0)
        distance = tl.sum(_ones(codes ^ asked[None, :], INTERPRETED), 1)
        is_hit = is_row & (distance <= tl.load(radii + query))
        if ASKS:
            if tl.max(is_hit.to(tl.int32)) > 0:
                _write_counted(distance, is_hit, rows, query, keys, capacity, QUERY_SHIFT, ROW_BITS)
        else:
            _write_counted(distance, is_hit, rows, query, keys, capacity, QUERY_SHIFT, ROW_BITS)


@triton.jit
def _write_counted(distance, is_hit, rows, query, keys, capacity, QUERY_SHIFT: tl.constexpr, ROW_BITS: tl.constexpr):
    numbers = rows | (distance.to(tl.int64) << ROW_BITS) | (tl.zeros_like(rows) + query << QUERY_SHIFT)
    slots = tl.atomic_add(keys + tl.zeros_like(rows), 1, mask=is_hit)
    tl.store(keys + 1 + slots, numbers, mask=is_hit & (slots < capacity))


@triton.jit
def _spread_words(words, signs, first, n_words, COUNT: tl.constexpr):
    places = tl.program_id(0) * COUNT + tl.arange(0, COUNT)
    is_word = places < n_words
    values = tl.load(words + first + places, mask=is_word, other=0)
    fours = tl.arange(0, 8)
    bits = (values[:, None] >> (4 * fours)[None, :]) & 0xF
    # Four bits go into the lowest bits of four bytes; then 1 stays 1, and 0 becomes 255, which is -1.
    bytes_of_bits = (bits * 0x00204081) & 0x01010101
    tl.store(signs + places[:, None] * 8 + fours[None, :], ~(bytes_of_bits * 0xFE), mask=is_word[:, None])


@triton.jit
def _multiply(
    signs,
    asked,
    least,
    allowed,
    keys,
    first,
    n_rows,
    n_query_tiles,
    capacity,
    BITS: tl.constexpr,
    BLOCK_BITS: tl.constexpr,
    ROWS: tl.constexpr,
    QUERIES: tl.constexpr,
    TILES: tl.constexpr,
    FILTERED: tl.constexpr,
    QUERY_SHIFT: tl.constexpr,
    ROW_BITS: tl.constexpr,
):
    program = tl.program_id(0)
    queries = (program % n_query_tiles) * QUERIES + tl.arange(0, QUERIES)
    group = program // n_query_tiles
    wanted = tl.load(least + queries)
    bits = tl.arange(0, BLOCK_BITS)
    if BITS == BLOCK_BITS:
        # The queries stay, rows pass by. Whether there is a hit is asked once for several tiles, since threads must
        # wait for each other to know it.
        right = tl.load(asked + queries[None, :] * BITS + bits[:, None])
        best = tl.full((ROWS, QUERIES), -BITS, dtype=tl.int32)
        for tile in range(TILES):
            rows = (group * TILES + tile) * ROWS + tl.arange(0, ROWS)
            left = tl.load(signs + rows[:, None] * BITS + bits[None, :])
            best = tl.maximum(best, tl.dot(left, right, out_dtype=tl.int32))
        if tl.max(tl.max(best, 0) - wanted) >= 0:
            for tile in tl.range(TILES, num_stages=1):
                rows = (group * TILES + tile) * ROWS + tl.arange(0, ROWS)
                left = tl.load(signs + rows[:, None] * BITS + bits[None, :])
                products = tl.dot(left, right, out_dtype=tl.int32)
                if tl.max(tl.max(products, 0) - wanted) >= 0:
                    _write_hits(
                        products, wanted, rows, queries, allowed, keys, first, n_rows, capacity,
                        BITS, FILTERED, QUERY_SHIFT, ROW_BITS,
                    )  # fmt: skip
    else:
        rows = group * ROWS + tl.arange(0, ROWS)
        products = tl.zeros((ROWS, QUERIES), dtype=tl.int32)
        for start in range(0, BITS, BLOCK_BITS):
            left = tl.load(signs + rows[:, None] * BITS + (start + bits)[None, :])
            right = tl.load(asked + queries[None, :] * BITS + (start + bits)[:, None])
            products = tl.dot(left, right, products, out_dtype=tl.int32)
        if tl.max(tl.max(products, 0) - wanted) >= 0:
            _write_hits(
                products, wanted, rows, queries, allowed, keys, first, n_rows, capacity,
                BITS, FILTERED, QUERY_SHIFT, ROW_BITS,
            )  # fmt: skip


@triton.jit
def _write_hits(
    products, wanted, rows, queries, allowed, keys, first, n_rows, capacity,
    BITS: tl.constexpr, FILTERED: tl.constexpr, QUERY_SHIFT: tl.constexpr, ROW_BITS: tl.constexpr,
):  # fmt: skip
    is_row = rows < n_rows
    if FILTERED:
        is_row = is_row & (tl.load(allowed + first + rows, mask=is_row, other=0) != 0)
    is_hit = (products >= wanted[None, :]) & is_row[:, None]
    distance = (BITS - products) >> 1
    numbers = (
        (first + rows).to(tl.int64)[:, None]
        | (distance.to(tl.int64) << ROW_BITS)
        | (queries.to(tl.int64)[None, :] << QUERY_SHIFT)
    )
    slots = tl.atomic_add(keys + tl.zeros_like(numbers), 1, mask=is_hit)
    tl.store(keys + 1 + slots, numbers, mask=is_hit & (slots < capacity))
