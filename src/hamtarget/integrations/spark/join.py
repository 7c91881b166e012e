"""Find all pairs within a radius by an equi-join on substrings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add, and_

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from hamtarget.codes import check_radius, substring_bounds
from hamtarget.errors import DtypeError, InputError
from hamtarget.integrations.spark.columns import ID, CodeTable, n_words, signed, word_name

# Sampled rows by which a bucket as large as a tile is recognised: chance hides 1 in 100,000 of them.
_SAMPLED_ROWS = 64

_KEY = "key"
_CELL = ["row_tile", "column_tile"]


def near_duplicates(
    df: DataFrame,
    radius: int,
    *,
    n_bits: int = 64,
    id: str = "id",
    code: str = "code",
    tile_rows: int | None = 10_000,
) -> DataFrame:
    """Return all pairs of rows within `radius` bits of each other, each pair once.

    The result has the columns a, b (ids, a < b) and distance. `df` is read several times: if it is expensive to
    compute, as the result of `encode` is, write it to Parquet first. When the result is read, Spark raises its own
    error, with hamtarget's words, if an id or a code is null or a code has another width. `check_codes` finds such rows
    before.

    Args:
        df: rows with unique ids and codes.
        radius: from 0 to n_bits - 1; a pair at exactly this distance counts. A row is sent to radius + 1 buckets.
        n_bits: bits of a code.
        id: name of the column of ids: integers or strings.
        code: name of the column of codes: binary, bigint or array<bigint>.
        tile_rows: a larger bucket is compared in tiles of about this many rows by this many, which several tasks can
            share, so that one frequent substring does not delay one task. None: one task compares a whole bucket.

    Raises:
        InputError: a column is missing, or a number is out of range.
        DtypeError: a column or a number has another type.
        ShapeError: codes of that type cannot have `n_bits` bits.

    Example:
        Find duplicates among stored codes::

            pairs = near_duplicates(spark.read.parquet("codes"), radius=2)
    """
    table = CodeTable(df, n_bits, id, code, "df")
    cut = _Cut(n_bits, check_radius(radius, n_bits))
    rows = table.rows()
    return _join(rows, rows, cut, _check_tile_rows(tile_rows), F.col(f"a.{ID}") < F.col(f"b.{ID}"))


def radius_join(
    left: DataFrame,
    right: DataFrame,
    radius: int,
    *,
    n_bits: int = 64,
    id: str = "id",
    code: str = "code",
    tile_rows: int | None = 10_000,
) -> DataFrame:
    """Return all pairs of a row of `left` and a row of `right` within `radius` bits.

    The result has the columns a (id of `left`), b (id of `right`) and distance. Arguments and errors are those of
    `near_duplicates`. The columns have the same names on both sides, but their types may differ.
    """
    tables = [CodeTable(df, n_bits, id, code, name) for df, name in ((left, "left"), (right, "right"))]
    cut = _Cut(n_bits, check_radius(radius, n_bits))
    return _join(tables[0].rows(), tables[1].rows(), cut, _check_tile_rows(tile_rows), F.lit(True))


@dataclass(frozen=True)
class _Cut:
    """Codes cut into radius + 1 substrings, as the index cuts them. Two codes within the radius share one of them."""

    n_bits: int
    radius: int

    @property
    def masks(self) -> list[dict[int, int]]:
        """Bits of each substring in each word that it reaches into."""
        found: list[dict[int, int]] = []
        for start, stop in substring_bounds(self.n_bits, self.radius + 1):
            bits: dict[int, int] = {}
            for bit in range(start, stop):
                bits[bit // 64] = bits.get(bit // 64, 0) | 1 << bit % 64
            found.append({word: signed(mask) for word, mask in bits.items()})
        return found

    @property
    def number_bits(self) -> int:
        """Low bits of a key that say which substring it is of."""
        return self.radius.bit_length()

    def keys(self) -> Column:
        """Return the buckets of a row: a number for each substring, made of its hash and its position.

        Different substrings of the same hash only cost a comparison, since pairs are judged by their codes.
        """
        keys = []
        for number, masks in enumerate(self.masks):
            hashed = F.xxhash64(*(F.col(word_name(word)).bitwiseAND(F.lit(mask)) for word, mask in masks.items()))
            keys.append(F.shiftleft(hashed, self.number_bits).bitwiseOR(F.lit(number)))
        return F.array(*keys)

    def distance(self) -> Column:
        """Return the number of bits in which the codes of rows a and b differ."""
        return reduce(add, (F.bit_count(self._differing(word)) for word in range(n_words(self.n_bits))))

    def is_first(self) -> Column:
        """Return true if rows a and b, which meet by a key, share none of the substrings before that one."""
        first = F.lit(-1)
        for number, masks in reversed(list(enumerate(self.masks))):
            shared = (self._differing(word).bitwiseAND(F.lit(mask)) == 0 for word, mask in masks.items())
            first = F.when(reduce(and_, shared), F.lit(number)).otherwise(first)
        return first == F.col(f"a.{_KEY}").bitwiseAND(F.lit((1 << self.number_bits) - 1))

    def _differing(self, word: int) -> Column:
        return F.col(f"a.{word_name(word)}").bitwiseXOR(F.col(f"b.{word_name(word)}"))


def _join(left: DataFrame, right: DataFrame, cut: _Cut, tile_rows: int | None, wanted: Column) -> DataFrame:
    merges = left is right
    if tile_rows is None:
        return _matches(_by_substring(left, cut), _by_substring(right, cut), cut, [_KEY], wanted, merges)
    # Large buckets are treated apart, so that a set joined with itself is shuffled only once for all others.
    large = F.broadcast(_large_buckets(left, right, cut, tile_rows))
    small_left, small_right = (_by_substring(rows, cut).join(large, _KEY, "left_anti") for rows in (left, right))
    # A cell is a tile row and a tile column: each row of `left` meets each row of `right` in one cell.
    row_tiles = _tiled(_by_substring(left, cut).join(large, _KEY), "row_tile", "column_tile")
    column_tiles = _tiled(_by_substring(right, cut).join(large, _KEY), "column_tile", "row_tile")
    # Without a given number of tasks, Spark would put all tiles into one, because they are few bytes.
    n_tasks = int(str(left.sparkSession.conf.get("spark.sql.shuffle.partitions")))
    row_tiles, column_tiles = (tiles.repartition(n_tasks, _KEY, *_CELL) for tiles in (row_tiles, column_tiles))
    return _matches(small_left, small_right, cut, [_KEY], wanted, merges).unionByName(
        _matches(row_tiles, column_tiles, cut, [_KEY, *_CELL], wanted, merges)
    )


def _by_substring(rows: DataFrame, cut: _Cut) -> DataFrame:
    return rows.select("*", F.explode(cut.keys()).alias(_KEY))


def _matches(
    left: DataFrame, right: DataFrame, cut: _Cut, meet: Sequence[str], wanted: Column, merges: bool
) -> DataFrame:
    here = reduce(and_, (F.col(f"a.{name}") == F.col(f"b.{name}") for name in meet))
    near = cut.distance() <= cut.radius
    # Spark does not foresee that explode multiplies rows: it would broadcast a large set to every machine. For two sets
    # of different sizes the choice is left to Spark.
    other = right.alias("b").hint("merge") if merges else right.alias("b")
    return (
        left.alias("a")
        .join(other, here & wanted & near & cut.is_first())
        .select(F.col(f"a.{ID}").alias("a"), F.col(f"b.{ID}").alias("b"), cut.distance().alias("distance"))
    )


def _large_buckets(left: DataFrame, right: DataFrame, cut: _Cut, tile_rows: int) -> DataFrame:
    """Return the keys of buckets with more than about `tile_rows` rows on one side, and the tiles of each side.

    The rows that are counted depend on their ids only, so that Spark finds the same if it computes this twice.
    """
    every = max(1, tile_rows // _SAMPLED_ROWS)
    counted = []
    for rows, sides in ((left, (1, 0)), (right, (0, 1))):
        sample = rows.where(F.pmod(F.xxhash64(ID), F.lit(every)) == 0)
        columns = (F.lit(side).alias(name) for side, name in zip(sides, _CELL, strict=True))
        counted.append(_by_substring(sample, cut).select(_KEY, *columns))
    tiles = [F.ceil(F.sum(name) * F.lit(every) / F.lit(tile_rows)).cast("int") for name in _CELL]
    found = counted[0].unionByName(counted[1]).groupBy(_KEY)
    named = (F.greatest(F.lit(1), column).alias(f"{name}s") for name, column in zip(_CELL, tiles, strict=True))
    return found.agg(*named).where(" OR ".join(f"{name}s > 1" for name in _CELL))


def _tiled(rows: DataFrame, own: str, other: str) -> DataFrame:
    """Return each row with its own tile, once for each tile of the other side."""
    tile = F.pmod(F.xxhash64(ID), F.col(f"{own}s")).cast("int")
    others = F.explode(F.sequence(F.lit(0), F.col(f"{other}s") - 1))
    return rows.select("*", tile.alias(own), others.alias(other))


def _check_tile_rows(tile_rows: int | None) -> int | None:
    if tile_rows is None:
        return None
    if not isinstance(tile_rows, int | np.integer) or isinstance(tile_rows, bool):
        raise DtypeError(f"tile_rows is {tile_rows!r}; expected an integer or None")
    if tile_rows < 1:
        raise InputError(f"tile_rows is {tile_rows}; expected at least 1")
    return int(tile_rows)
