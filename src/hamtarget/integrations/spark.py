"""Encode Spark DataFrames, and find all pairs of codes within a radius, in one DataFrame or between two.

The join works like the multi-index. A row is sent to one bucket for each of its radius + 1 substrings, rows that meet
in a bucket are compared, and a pair counts in the bucket of its first shared substring. It finds exactly the pairs that
`hamtarget.search` finds. Everything but the encoder runs inside the JVM.

A code is a binary column of n_bits / 8 bytes, as `encode` makes it; or a long, for up to 64 bits; or an array of longs
of 64 bits each, the first bits first (`codes.view("<i8")` of packed numpy codes).
"""

# Without `from __future__ import annotations`, because Spark reads the annotations of a pandas function.
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add, and_
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import check_n_bits, check_radius, substring_bounds
from hamtarget.encoders.onnx_encoder import OnnxEncoder
from hamtarget.encoders.onnx_file import ONNX_NAME, read_sealed
from hamtarget.errors import DtypeError, InputError, MissingExtraError, ShapeError

try:
    import pandas as pd
    import pyarrow  # noqa: F401  # pandas functions need it
    from pyspark.sql import Column, DataFrame
    from pyspark.sql import functions as F
    from pyspark.sql import types as T
except ImportError as error:
    raise MissingExtraError(
        "hamtarget.integrations.spark needs pyspark, pyarrow and pandas (and Java): pip install 'hamtarget[spark]'"
    ) from error

__all__ = ["check_codes", "encode", "near_duplicates", "radius_join"]

# Names inside a join.
_ID = "id"
_KEY = "key"
_CELL = ["row_tile", "column_tile"]
_WORD_BITS = 64
_ID_TYPES = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.StringType)
# Sampled rows by which a bucket as large as a tile is recognised: chance hides 1 in 100,000 of them.
_SAMPLED_ROWS = 64


def __dir__() -> list[str]:
    return __all__


def check_codes(df: DataFrame, n_bits: int = 64, *, id: str = "id", code: str = "code") -> int:
    """Check that every row has an id and a code of `n_bits` bits, and return the number of rows.

    This reads all rows once, in a job of its own. The joins check every row too, but while they run: then Spark fails,
    with the same words.

    Raises:
        InputError: a column is missing, or a row has no id or no code of this width. The error says how many.
        DtypeError: a column does not have a type of ids or codes.
        ShapeError: codes of that type cannot have `n_bits` bits.
    """
    table = _CodeTable(df, n_bits, id, code, "df")
    counts = table.df.groupBy(table.problem().alias("problem")).count().collect()
    problems = {row["problem"]: row["count"] for row in counts}
    n_rows = sum(int(count) for count in problems.values())
    problems.pop(None, None)
    for problem, count in sorted(problems.items()):
        raise InputError(f"{problem.removeprefix('hamtarget: ')} ({count:,} of {n_rows:,} rows do not)")
    return n_rows


def encode(
    df: DataFrame, encoder: OnnxEncoder | str | Path, *, inputs: str = "vector", code: str = "code"
) -> DataFrame:
    """Return `df` with a binary column of codes of its vectors. Codes are computed when the result is read.

    Workers need `hamtarget[onnx]`. The encoder itself is sent with the job. When the result is read, Spark raises its
    own error, with hamtarget's words, if an array is null, too short, too long, or not finite.

    Args:
        df: rows with an array of numbers each.
        encoder: an `OnnxEncoder`, or the file that `HashEncoder.export_onnx` wrote, or the folder that holds it.
        inputs: name of the column of arrays. The numbers of an image are in the order channel, row, column.
        code: name of the new column.

    Raises:
        FileError: there is no such encoder.
        CorruptFileError: the encoder's file is damaged.
        MissingExtraError: onnxruntime is not installed here.
        InputError: there is no such column, or the new column exists already.
        DtypeError: the column does not hold arrays of numbers.

    Example:
        Encode, and keep the codes::

            encode(spark.read.parquet("vectors"), "model/").write.parquet("codes")
    """
    if not isinstance(encoder, OnnxEncoder):
        encoder = OnnxEncoder(encoder, threads=1)
    found = _column_type(df, inputs, name="df")
    if not isinstance(found, T.ArrayType) or not isinstance(found.elementType, T.NumericType):
        raise DtypeError(
            f"df: column {inputs!r} has type {found.simpleString()}; expected arrays of numbers, such as array<float>"
        )
    if code in df.columns:
        raise InputError(f"df has a column {code!r} already; drop it, or give the new one another name: code=...")
    content = read_sealed(encoder.path)
    shape, name = encoder.input_shape, inputs

    def codes_of(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        # A task has one core, and uses one encoder for all of its batches.
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / ONNX_NAME
            file.write_bytes(content)
            worker = OnnxEncoder(file, threads=1)
        for batch in batches:
            codes = worker.encode(_stacked(batch, shape, name))
            yield pd.Series([code.tobytes() for code in codes], dtype=object)

    on_workers = F.pandas_udf(codes_of, T.BinaryType())
    return df.withColumn(code, on_workers(F.col(_quoted(inputs)).cast(T.ArrayType(T.FloatType()))))


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
    table = _CodeTable(df, n_bits, id, code, "df")
    cut = _Cut(n_bits, check_radius(radius, n_bits))
    rows = table.rows()
    return _join(rows, rows, cut, _check_tile_rows(tile_rows), F.col(f"a.{_ID}") < F.col(f"b.{_ID}"))


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
    tables = [_CodeTable(df, n_bits, id, code, name) for df, name in ((left, "left"), (right, "right"))]
    cut = _Cut(n_bits, check_radius(radius, n_bits))
    return _join(tables[0].rows(), tables[1].rows(), cut, _check_tile_rows(tile_rows), F.lit(True))


@dataclass(frozen=True)
class _CodeTable:
    """A DataFrame whose columns have the right types.

    Raises:
        InputError: a column is missing, or `n_bits` is not a length that codes can have.
        DtypeError: `df` is not a DataFrame, or a column does not have a type of ids or codes.
        ShapeError: codes of that type cannot have `n_bits` bits.
    """

    df: DataFrame
    n_bits: int
    id: str
    code: str
    name: str
    """The name of the DataFrame in errors."""

    def __post_init__(self) -> None:
        check_n_bits(self.n_bits)
        found = _column_type(self.df, self.id, name=self.name)
        if not isinstance(found, _ID_TYPES):
            raise DtypeError(
                f"{self.name}: column {self.id!r} has type {found.simpleString()}; expected integers or strings as ids"
            )
        found = _column_type(self.df, self.code, name=self.name)
        is_array = isinstance(found, T.ArrayType) and isinstance(found.elementType, T.LongType)
        if not isinstance(found, T.BinaryType | T.LongType) and not is_array:
            raise DtypeError(
                f"{self.name}: column {self.code!r} has type {found.simpleString()}; "
                "expected codes: binary, bigint (up to 64 bits) or array<bigint>"
            )
        if isinstance(found, T.LongType) and self.n_bits > _WORD_BITS:
            raise ShapeError(
                f"{self.name}: column {self.code!r} is a bigint of 64 bits; n_bits is {self.n_bits}: "
                "expected binary or array<bigint>"
            )

    def rows(self) -> DataFrame:
        """Return ids, and the words of codes. Reading a row without an id or a valid code fails, and says why."""
        problem = self.problem()
        checked_id = F.when(problem.isNull(), self._id).otherwise(F.raise_error(problem).cast(self._id_type))
        words = [
            F.when(problem.isNull(), self._word(word)).otherwise(F.raise_error(problem).cast("bigint"))
            for word in range(_n_words(self.n_bits))
        ]
        return self.df.select(checked_id.alias(_ID), *(word.alias(_word_name(i)) for i, word in enumerate(words)))

    def problem(self) -> Column:
        """Return a sentence that says what is wrong with a row; null if nothing is."""
        where = f"hamtarget: {self.name}: column"
        return (
            F.when(self._id.isNull(), F.lit(f"{where} {self.id!r} holds null; expected an id in every row"))
            .when(self._code.isNull(), F.lit(f"{where} {self.code!r} holds null; expected a code in every row"))
            .when(
                ~self._has_width(),
                F.lit(f"{where} {self.code!r} holds a code of another width; expected {self.n_bits} bits"),
            )
        )

    @property
    def _id(self) -> Column:
        return F.col(_quoted(self.id))

    @property
    def _code(self) -> Column:
        return F.col(_quoted(self.code))

    @property
    def _id_type(self) -> T.DataType:
        return self.df.schema[self.id].dataType

    @property
    def _code_type(self) -> T.DataType:
        return self.df.schema[self.code].dataType

    def _has_width(self) -> Column:
        if isinstance(self._code_type, T.BinaryType):
            return F.octet_length(self._code) == self.n_bits // 8
        used = self.n_bits % _WORD_BITS
        if isinstance(self._code_type, T.ArrayType):
            size = _n_words(self.n_bits)
            last, whole = F.get(self._code, F.lit(size - 1)), F.size(self._code) == size
            whole = whole & ~F.exists(self._code, lambda word: word.isNull())
        else:
            last, whole = self._code, F.lit(True)
        return whole & (F.shiftrightunsigned(last, used) == 0) if used else whole

    def _word(self, word: int) -> Column:
        """Return 64 bits of the code, the first of them the lowest."""
        if isinstance(self._code_type, T.LongType):
            return self._code
        if isinstance(self._code_type, T.ArrayType):
            return F.get(self._code, F.lit(word))
        last = min(8 * (word + 1), self.n_bits // 8)
        # Positions count from 1. The last byte holds the highest bits, which come first in a written number.
        places = range(last, 8 * word, -1)
        digits = F.hex(F.concat(*(F.substring(self._code, place, 1) for place in places)))
        # A negative base stands for signed numbers, so that any 64 bits fit a long.
        return F.conv(digits, 16, -10).cast("bigint")


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
            found.append({word: _signed(mask) for word, mask in bits.items()})
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
            hashed = F.xxhash64(*(F.col(_word_name(word)).bitwiseAND(F.lit(mask)) for word, mask in masks.items()))
            keys.append(F.shiftleft(hashed, self.number_bits).bitwiseOR(F.lit(number)))
        return F.array(*keys)

    def distance(self) -> Column:
        """Return the number of bits in which the codes of rows a and b differ."""
        return reduce(add, (F.bit_count(self._differing(word)) for word in range(_n_words(self.n_bits))))

    def is_first(self) -> Column:
        """Return true if rows a and b, which meet by a key, share none of the substrings before that one."""
        first = F.lit(-1)
        for number, masks in reversed(list(enumerate(self.masks))):
            shared = (self._differing(word).bitwiseAND(F.lit(mask)) == 0 for word, mask in masks.items())
            first = F.when(reduce(and_, shared), F.lit(number)).otherwise(first)
        return first == F.col(f"a.{_KEY}").bitwiseAND(F.lit((1 << self.number_bits) - 1))

    def _differing(self, word: int) -> Column:
        return F.col(f"a.{_word_name(word)}").bitwiseXOR(F.col(f"b.{_word_name(word)}"))


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
        .select(F.col(f"a.{_ID}").alias("a"), F.col(f"b.{_ID}").alias("b"), cut.distance().alias("distance"))
    )


def _large_buckets(left: DataFrame, right: DataFrame, cut: _Cut, tile_rows: int) -> DataFrame:
    """Return the keys of buckets with more than about `tile_rows` rows on one side, and the tiles of each side.

    The rows that are counted depend on their ids only, so that Spark finds the same if it computes this twice.
    """
    every = max(1, tile_rows // _SAMPLED_ROWS)
    counted = []
    for rows, sides in ((left, (1, 0)), (right, (0, 1))):
        sample = rows.where(F.pmod(F.xxhash64(_ID), F.lit(every)) == 0)
        columns = (F.lit(side).alias(name) for side, name in zip(sides, _CELL, strict=True))
        counted.append(_by_substring(sample, cut).select(_KEY, *columns))
    tiles = [F.ceil(F.sum(name) * F.lit(every) / F.lit(tile_rows)).cast("int") for name in _CELL]
    found = counted[0].unionByName(counted[1]).groupBy(_KEY)
    named = (F.greatest(F.lit(1), column).alias(f"{name}s") for name, column in zip(_CELL, tiles, strict=True))
    return found.agg(*named).where(" OR ".join(f"{name}s > 1" for name in _CELL))


def _tiled(rows: DataFrame, own: str, other: str) -> DataFrame:
    """Return each row with its own tile, once for each tile of the other side."""
    tile = F.pmod(F.xxhash64(_ID), F.col(f"{own}s")).cast("int")
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


def _word_name(word: int) -> str:
    """Return the name that the column of a code's 64-bit word has inside a join."""
    return f"word_{word}"


def _n_words(n_bits: int) -> int:
    """Return the number of 64-bit words that hold a code."""
    return -(-n_bits // _WORD_BITS)


def _signed(word: int) -> int:
    """Return the long that has the same bits as an unsigned 64-bit number."""
    return word - (word >> 63 << 64)


def _column_type(df: DataFrame, column: str, *, name: str) -> T.DataType:
    """Return the type of a column.

    Raises:
        DtypeError: `df` is not a DataFrame.
        InputError: `df` has no such column, or several.
    """
    if not isinstance(df, DataFrame):
        raise DtypeError(f"{name} is {type(df).__name__}; expected a Spark DataFrame")
    found = df.columns.count(column)
    if found != 1:
        raise InputError(f"{name} has {found or 'no'} columns {column!r}; its columns are {', '.join(df.columns)}")
    return df.schema[column].dataType


def _quoted(column: str) -> str:
    """Return a column's name in quotes, so that Spark takes dots in it literally."""
    return "`" + column.replace("`", "``") + "`"


def _stacked(batch: pd.Series, shape: tuple[int, ...], name: str) -> NDArray[np.float32]:
    """Return the arrays of a batch as one."""
    size = int(np.prod(shape))
    rows = np.empty((len(batch), size), dtype=np.float32)
    for row, values in enumerate(batch):
        if values is None or len(values) != size:
            found = "null" if values is None else f"an array of {len(values):,} numbers"
            raise ShapeError(f"column {name!r} holds {found}; this encoder takes arrays of {size:,}")
        rows[row] = values
    return rows.reshape(-1, *shape)
