"""The scan by kernels of Triton: bits are counted for few queries, and multiplied on tensor cores for many.

Few queries are bound by memory: every code is read once, as it lies. Many are bound by arithmetic, and take four steps:

1. The bits of the queries become +1 and -1 of int8; each query gets a number, its shift.
2. The bits of some rows are spread to int8, too, in a scratch of 256 MB.
3. Tiles of rows are multiplied with tiles of queries. A product plus the shift of its query has a certain bit exactly
   where there is a hit, so that the bits of a tile are gathered by "or"; what remains is a mark for each tile.
4. The tiles that are marked, few of them, are multiplied again, and their hits are written.

Codes of up to 64 bits go two at a time: one int8 holds a bit of two rows, a product holds both distances.

Triton comes with torch where there is CUDA: only `searching` imports this module.
"""

from __future__ import annotations

import math
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from hamtarget.search.device.keys import QUERY_SHIFT, ROW_BITS

_BITS_OF_WORD = 32
# Keys that come with the count of hits in one transfer.
_HEAD = 4096
# Numbers of 32 bits after which memory is aligned as kernels like it.
_ALIGNED = 4
_FEWEST_ROWS = 16
# A tile has fewer queries than its tiling says, but not fewer than these, where there are so few.
_FEWEST_QUERIES = 128
_SPREAD_WORDS = 512
# Words of signs, four to a word, for each word of bits.
_WORDS_OF_SIGNS = 8
# Numbers in which a program marks its tiles: each for one of so many queries.
_PARTS = 8
# Codes up to this length are multiplied in pairs: a distance takes 7 bits.
_PAIRED_BITS = 64
# Kernels that run in Python, to test them where there is no GPU.
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
# Earlier versions launch what they have compiled with other arguments.
_IS_LAUNCHED_DIRECTLY = not _INTERPRETED and tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 3)
_compiled: dict[tuple[Any, ...], Any] = {}


class Tiling(NamedTuple):
    """Sizes for many queries: lines of the scratch, queries and bits of a tile, tiles of a program, warps, stages.

    A program marks its tiles in one number: there are at most 32.
    """

    lines: int
    queries: int
    bits: int
    tiles: int
    warps: int
    stages: int


class Counting(NamedTuple):
    """Sizes of the kernel for few queries: words of a program, and warps."""

    words: int
    warps: int


COUNTING = Counting(words=1024, warps=1)
# By the most bits that each is for. Chosen by `python -m research.benchmarks.gpu_scan --tune` on an H200.
TILINGS = {
    64: Tiling(lines=64, queries=128, bits=64, tiles=32, warps=4, stages=3),
    256: Tiling(lines=64, queries=256, bits=256, tiles=32, warps=4, stages=3),
    4096: Tiling(lines=128, queries=128, bits=128, tiles=16, warps=4, stages=3),
}


class TritonScan:
    """Finds rows within a radius on a GPU.

    Attributes:
        most_few: queries up to which bits are counted.
        scratch_bytes: bytes of rows that are spread at a time.
    """

    def __init__(self) -> None:
        """Scan with sizes that suit most GPUs."""
        self.most_few = 64
        self.scratch_bytes = 1 << 28

    def scan(
        self,
        words: Tensor,
        queries: NDArray[np.int32],
        radii: NDArray[np.int32],
        allowed: Tensor | None,
        span: range,
        capacity: int,
    ) -> tuple[int, NDArray[np.int64]]:
        """Return how many hits there are in a span, and their keys; see `PortableScan.scan`."""
        with _on(words.device):
            # A call for few rows takes as long as its transfers and launches: there is one copy each way. The radii and
            # queries go to the beginning of an array, with a count of 0; hits follow the count.
            n_radii, n_words = (triton.cdiv(size, _ALIGNED) * _ALIGNED for size in (radii.size, queries.size))
            block = np.zeros(n_radii + n_words + 2, np.int32)
            block[: radii.size] = radii
            block[n_radii : n_radii + queries.size] = queries.reshape(-1)
            count_at = (n_radii + n_words) // 2
            room = torch.empty(count_at + 1 + capacity, dtype=torch.int64, device=words.device)
            room[: count_at + 1].copy_(torch.from_numpy(block.view(np.int64)), non_blocking=True)
            numbers = room.view(torch.int32)
            asked = _Asked(numbers[n_radii:], numbers, len(queries))
            keys = room[count_at:]
            scan = self._scan_few if len(queries) <= self.most_few else self._scan_many
            scan(words, asked, allowed, span, keys)
            head = keys[: 1 + _HEAD].cpu().numpy()
            count = int(head[0])
            if count > capacity:
                return count, head[:0]
            if count < len(head):
                return count, np.sort(head[1 : count + 1])
            return count, torch.sort(keys[1 : count + 1]).values.cpu().numpy()

    def _scan_few(self, words: Tensor, asked: _Asked, allowed: Tensor | None, span: range, keys: Tensor) -> None:
        n_words = words.shape[1]
        padded = triton.next_power_of_2(n_words)
        rows = max(_FEWEST_ROWS, COUNTING.words // padded)
        _launch(
            _count_bits,
            triton.cdiv(span.stop - span.start // _FEWEST_ROWS * _FEWEST_ROWS, rows),
            (words, asked.words, asked.radii, words if allowed is None else allowed, keys),
            (span.start, span.stop, asked.n_queries, len(keys) - 1),
            (n_words, padded, rows, allowed is not None, _FEWEST_ROWS, _INTERPRETED, QUERY_SHIFT, ROW_BITS),
            warps=COUNTING.warps,
        )

    def _scan_many(self, words: Tensor, asked: _Asked, allowed: Tensor | None, span: range, keys: Tensor) -> None:
        device, n_words = words.device, words.shape[1]
        n_bits = _BITS_OF_WORD * n_words
        is_paired = n_bits <= _PAIRED_BITS
        rows_of_line = 2 if is_paired else 1
        tiling = TILINGS[min(most for most in TILINGS if n_bits <= most)]
        queries = min(tiling.queries, max(_FEWEST_QUERIES, triton.next_power_of_2(asked.n_queries)))
        n_query_tiles = triton.cdiv(asked.n_queries, queries)
        n_queries = n_query_tiles * queries
        group = tiling.lines * tiling.tiles
        n_groups = triton.cdiv(len(span), group * rows_of_line)
        step = min(n_groups, max(1, self.scratch_bytes // (n_bits * group))) * group
        scratch = torch.empty((step, n_words * _WORDS_OF_SIGNS), dtype=torch.int32, device=device)
        signs = torch.empty((n_queries, n_words * _WORDS_OF_SIGNS), dtype=torch.int32, device=device)
        shifts = torch.empty(n_queries, dtype=torch.int32, device=device)
        marks = torch.empty(step // group * n_query_tiles * _PARTS, dtype=torch.int32, device=device)
        block_bits = math.gcd(n_bits, tiling.bits)
        sizes = (n_bits, block_bits, tiling.lines, queries, tiling.tiles, _PARTS, is_paired)
        factors = (scratch.view(torch.int8), signs.view(torch.int8), shifts, marks)
        for start in range(span.start, span.stop, step * rows_of_line):
            n_rows = min(step * rows_of_line, span.stop - start)
            n_lines = triton.cdiv(n_rows, rows_of_line * tiling.lines) * tiling.lines
            # The queries are spread with the first rows.
            n_spread = n_queries if start == span.start else 0
            _launch(
                _spread,
                n_spread + triton.cdiv(n_lines * n_words, _SPREAD_WORDS),
                (words, scratch, asked.words, asked.radii, signs, shifts),
                (n_spread, asked.n_queries, start, n_rows, n_lines),
                (n_words, triton.next_power_of_2(n_words), is_paired, _SPREAD_WORDS, _INTERPRETED),
                warps=4,
            )
            n_programs = triton.cdiv(n_rows, group * rows_of_line) * n_query_tiles
            _launch(
                _mark_tiles,
                n_programs,
                factors,
                (n_query_tiles,),
                sizes,
                warps=tiling.warps,
                stages=tiling.stages,
            )
            _launch(
                _write_tiles,
                n_programs,
                (*factors, asked.radii, words if allowed is None else allowed, keys),
                (start, n_rows, asked.n_queries, n_query_tiles, len(keys) - 1),
                (*sizes, allowed is not None, QUERY_SHIFT, ROW_BITS),
                warps=4,
            )


class _Asked(NamedTuple):
    """Queries on the device: their words, their radii and their number."""

    words: Tensor
    radii: Tensor
    n_queries: int


def _on(device: torch.device) -> AbstractContextManager[None]:
    """Return a context in which kernels are launched on a device."""
    if device.type == "cpu" or device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(device)


def _launch(
    kernel: Any,
    n_programs: int,
    tensors: tuple[Tensor, ...],
    numbers: tuple[int, ...],
    sizes: tuple[int, ...],
    *,
    warps: int,
    stages: int = 3,
) -> None:
    """Launch a kernel with its arguments and the sizes that it is compiled for.

    In every launch Triton looks at all of them, to see if it must compile. This takes longer than a small kernel, so
    what is compiled for the sizes is launched directly. It fits: no kernel is compiled for values of numbers, and all
    tensors begin at multiples of 16 bytes.
    """
    key = (kernel.__name__, tensors[0].device, sizes, warps, stages)
    known = _compiled.get(key)
    if known is not None:
        known[n_programs, 1, 1](*tensors, *numbers, *sizes)
        return
    found = kernel[(n_programs,)](*tensors, *numbers, *sizes, num_warps=warps, num_stages=stages)
    if _IS_LAUNCHED_DIRECTLY:
        _compiled[key] = found


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
def _bytes_of_bits(words):
    """Return the bits of words, four in each number: a bit in the lowest place of each byte."""
    bits = (words[:, None] >> (4 * tl.arange(0, 8))[None, :]) & 0xF
    return (bits * 0x00204081) & 0x01010101


@triton.jit
def _either(a, b):
    return a | b


@triton.jit
def _append(numbers, is_hit, keys, capacity, COUNT: tl.constexpr):
    """Write the keys of hits behind those that are there; the first number counts them all."""
    is_hit = tl.reshape(is_hit, (COUNT,)).to(tl.int32)
    ranks = tl.cumsum(is_hit, 0)
    slots = tl.atomic_add(keys, tl.sum(is_hit).to(tl.int64)) + ranks
    tl.store(keys + slots, tl.reshape(numbers, (COUNT,)), mask=(is_hit != 0) & (slots <= capacity))


# Kernels are compiled for no values of numbers: see `_launch`.
@triton.jit(do_not_specialize=["first", "stop", "n_queries", "capacity"])
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
    ALIGNED: tl.constexpr,
    INTERPRETED: tl.constexpr,
    QUERY_SHIFT: tl.constexpr,
    ROW_BITS: tl.constexpr,
):
    # Memory is read in larger pieces from a multiple of some rows.
    rows = first // ALIGNED * ALIGNED + tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, PADDED)
    is_row = (rows >= first) & (rows < stop)
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
        if tl.max(is_hit.to(tl.int32)) > 0:
            numbers = rows | (distance.to(tl.int64) << ROW_BITS) | (tl.zeros_like(rows) + query << QUERY_SHIFT)
            _append(numbers, is_hit, keys, capacity, ROWS)


@triton.jit(do_not_specialize=["n_spread", "n_queries", "first", "n_rows", "n_lines"])
def _spread(
    words,
    scratch,
    queries,
    radii,
    signs,
    shifts,
    n_spread,
    n_queries,
    first,
    n_rows,
    n_lines,
    WORDS: tl.constexpr,
    PADDED: tl.constexpr,
    PAIRED: tl.constexpr,
    COUNT: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Spread some queries, a program for each, and then some rows."""
    program = tl.program_id(0)
    if program < n_spread:
        _spread_query(program, queries, radii, signs, shifts, n_queries, WORDS, PADDED, PAIRED, INTERPRETED)
    else:
        _spread_rows(program - n_spread, words, scratch, first, n_rows, n_lines, WORDS, PAIRED, COUNT)


@triton.jit
def _spread_query(
    query, queries, radii, signs, shifts, n_queries,
    WORDS: tl.constexpr, PADDED: tl.constexpr, PAIRED: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """Write the bits of a query as +1 and -1, and its shift; zeros for those that only fill up a tile."""
    is_query = query < n_queries
    columns = tl.arange(0, PADDED)
    words = tl.load(queries + query * WORDS + columns, mask=columns < tl.where(is_query, WORDS, 0), other=0)
    # 1 stays 1, and 0 becomes 255, which is -1.
    spread = tl.where(is_query, ~(_bytes_of_bits(words) * 0xFE), 0)
    places = (query * WORDS + columns)[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(signs + places, spread, mask=places < (query + 1) * WORDS * 8)
    radius = tl.load(radii + query, mask=is_query, other=-1)
    ones = tl.sum(_ones(words, INTERPRETED))
    if PAIRED:
        shift = _paired_shift(radius, ones, 32 * WORDS)
    else:
        # The product is BITS - 2 * distance. So the sum is 2^14 + 2 * (radius - distance), from 2^13 to 3 * 2^13.
        shift = 16384 + 2 * radius - 32 * WORDS
    tl.store(shifts + query, tl.where(is_query, shift, 0))


@triton.jit
def _paired_shift(radius, ones, BITS: tl.constexpr):
    """Return what is added to the product of two rows, so that it becomes lower + 128 * upper.

    Each of the two is 64 + radius - distance: from 0 to 127, and 64 or more for a hit. The product itself is that of
    the bits of the lower row, plus 128 times that of the upper row less the sum of the query's signs; a product of bits
    is the number of ones of the query less the distance.
    """
    reach = 64 + tl.minimum(tl.maximum(radius, 0), 63)
    shift = 129 * (reach - ones) + 128 * (2 * ones - BITS)
    # A radius of 64 would not fit: everything is a hit then.
    return shift + tl.where(radius > 63, 1 << 30, 0)


@triton.jit
def _spread_rows(
    program, words, scratch, first, n_rows, n_lines, WORDS: tl.constexpr, PAIRED: tl.constexpr, COUNT: tl.constexpr
):
    """Write the bits of some rows into the lines of the scratch: those of one row as +1 and -1, or those of two.

    Lines that only fill up a tile repeat the last row: anything else could look like a hit to every query.
    """
    places = program * COUNT + tl.arange(0, COUNT)
    lines = places // WORDS
    is_line = lines < n_lines
    codes = words + tl.cast(first, tl.int64) * WORDS + places % WORDS
    if PAIRED:
        lower = tl.load(codes + tl.minimum(2 * lines, n_rows - 1) * WORDS, mask=is_line, other=0)
        upper = tl.load(codes + tl.minimum(2 * lines + 1, n_rows - 1) * WORDS, mask=is_line, other=0)
        # The lowest bit counts 1; the highest, that of a bit 0 of the upper row, -128.
        spread = _bytes_of_bits(lower) | (_bytes_of_bits(~upper) << 7)
    else:
        values = tl.load(codes + tl.minimum(lines, n_rows - 1) * WORDS, mask=is_line, other=0)
        spread = ~(_bytes_of_bits(values) * 0xFE)
    tl.store(scratch + places[:, None] * 8 + tl.arange(0, 8)[None, :], spread, mask=is_line[:, None])


@triton.jit(do_not_specialize=["n_query_tiles"])
def _mark_tiles(
    signs,
    asked,
    shifts,
    marks,
    n_query_tiles,
    BITS: tl.constexpr,
    BLOCK_BITS: tl.constexpr,
    LINES: tl.constexpr,
    QUERIES: tl.constexpr,
    TILES: tl.constexpr,
    PARTS: tl.constexpr,
    PAIRED: tl.constexpr,
):
    """Write which tiles have a hit, as bits of some numbers for each program.

    Each number is for some of the queries: the first one for 0, PARTS, 2 * PARTS and so on.
    """
    program = tl.program_id(0)
    queries = (program % n_query_tiles) * QUERIES + tl.arange(0, QUERIES)
    first = program // n_query_tiles * (TILES * LINES)
    shift = tl.load(shifts + queries)
    # Each thread remembers the tiles in which it saw a hit: until the end, none waits for another.
    seen = tl.zeros((LINES, PARTS), dtype=tl.int32)
    products = tl.zeros((LINES, QUERIES), dtype=tl.int32)
    BLOCKS: tl.constexpr = BITS // BLOCK_BITS
    # In one loop over tiles and their blocks of bits, a tile is loaded while the one before it is multiplied.
    for step in range(TILES * BLOCKS):
        tile = step // BLOCKS
        lines = first + tile * LINES + tl.arange(0, LINES)
        bits = step % BLOCKS * BLOCK_BITS + tl.arange(0, BLOCK_BITS)
        left = tl.load(signs + lines[:, None] * BITS + bits[None, :])
        right = tl.load(asked + queries[None, :] * BITS + bits[:, None])
        products = tl.dot(left, right, products, out_dtype=tl.int32)
        if step % BLOCKS == BLOCKS - 1:
            seen |= _mark(products, shift, tile, LINES, QUERIES, PARTS, PAIRED)
            products = tl.zeros((LINES, QUERIES), dtype=tl.int32)
    tl.store(marks + program * PARTS + tl.arange(0, PARTS), tl.reduce(seen, 0, _either))


@triton.jit
def _mark(products, shift, tile, LINES: tl.constexpr, QUERIES: tl.constexpr, PARTS: tl.constexpr, PAIRED: tl.constexpr):
    """Return the tile's bit for those lines and parts of the queries that have a hit."""
    HITS: tl.constexpr = 1 << 6 | 1 << 13 | 1 << 30 if PAIRED else 1 << 14
    # Every eighth product of a line lies in the same thread: with eight parts, no thread asks another.
    sums = tl.reshape(products + shift[None, :], (LINES, QUERIES // PARTS, PARTS))
    return tl.where((tl.reduce(sums, 1, _either) & HITS) != 0, 1 << tile, 0)


@triton.jit
def _product(
    signs, asked, lines, queries,
    BITS: tl.constexpr, BLOCK_BITS: tl.constexpr, LINES: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    bits = tl.arange(0, BLOCK_BITS)
    products = tl.zeros((LINES, QUERIES), dtype=tl.int32)
    for start in range(0, BITS, BLOCK_BITS):
        left = tl.load(signs + lines[:, None] * BITS + (start + bits)[None, :])
        right = tl.load(asked + queries[None, :] * BITS + (start + bits)[:, None])
        products = tl.dot(left, right, products, out_dtype=tl.int32)
    return products


@triton.jit(do_not_specialize=["first_row", "n_rows", "n_queries", "n_query_tiles", "capacity"])
def _write_tiles(
    signs,
    asked,
    shifts,
    marks,
    radii,
    allowed,
    keys,
    first_row,
    n_rows,
    n_queries,
    n_query_tiles,
    capacity,
    BITS: tl.constexpr,
    BLOCK_BITS: tl.constexpr,
    LINES: tl.constexpr,
    QUERIES: tl.constexpr,
    TILES: tl.constexpr,
    PARTS: tl.constexpr,
    PAIRED: tl.constexpr,
    FILTERED: tl.constexpr,
    QUERY_SHIFT: tl.constexpr,
    ROW_BITS: tl.constexpr,
):
    """Write the hits of the tiles that are marked."""
    program = tl.program_id(0)
    first = program // n_query_tiles * (TILES * LINES)
    # The tiles behind the last row hold what was there before.
    n_tiles = tl.minimum(TILES, tl.cdiv(n_rows - first * (2 if PAIRED else 1), LINES * (2 if PAIRED else 1)))
    parts = tl.arange(0, PARTS)
    marked_parts = tl.load(marks + program * PARTS + parts)
    for part in range(PARTS):
        marked = tl.sum(tl.where(parts == part, marked_parts, 0))
        if marked != 0:
            queries = (program % n_query_tiles) * QUERIES + part + PARTS * tl.arange(0, QUERIES // PARTS)
            radius = tl.load(radii + queries, mask=queries < n_queries, other=-1)
            for tile in range(n_tiles):
                if (marked >> tile) & 1:
                    lines = first + tile * LINES + tl.arange(0, LINES)
                    products = _product(signs, asked, lines, queries, BITS, BLOCK_BITS, LINES, QUERIES // PARTS)
                    if PAIRED:
                        sums = products + tl.load(shifts + queries)[None, :]
                        reach = 64 + tl.minimum(tl.maximum(radius, 0), 63)
                        _write_hits(
                            reach[None, :] - (sums & 127), 2 * lines,
                            queries, radius, allowed, keys, first_row, n_rows, capacity,
                            LINES * QUERIES // PARTS, FILTERED, QUERY_SHIFT, ROW_BITS,
                        )  # fmt: skip
                        _write_hits(
                            reach[None, :] - ((sums >> 7) & 127), 2 * lines + 1,
                            queries, radius, allowed, keys, first_row, n_rows, capacity,
                            LINES * QUERIES // PARTS, FILTERED, QUERY_SHIFT, ROW_BITS,
                        )  # fmt: skip
                    else:
                        _write_hits(
                            (BITS - products) >> 1, lines,
                            queries, radius, allowed, keys, first_row, n_rows, capacity,
                            LINES * QUERIES // PARTS, FILTERED, QUERY_SHIFT, ROW_BITS,
                        )  # fmt: skip


@triton.jit
def _write_hits(
    distances, rows, queries, radius, allowed, keys, first_row, n_rows, capacity,
    COUNT: tl.constexpr, FILTERED: tl.constexpr, QUERY_SHIFT: tl.constexpr, ROW_BITS: tl.constexpr,
):  # fmt: skip
    is_row = rows < n_rows
    if FILTERED:
        is_row = is_row & (tl.load(allowed + first_row + rows, mask=is_row, other=0) != 0)
    is_hit = (distances <= radius[None, :]) & is_row[:, None]
    numbers = (
        (first_row + rows).to(tl.int64)[:, None]
        | (distances.to(tl.int64) << ROW_BITS)
        | (queries.to(tl.int64)[None, :] << QUERY_SHIFT)
    )
    _append(numbers, is_hit, keys, capacity, COUNT)
