"""Check columns of ids and codes: their types at once, their values when the rows are read."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from hamtarget.codes import check_n_bits
from hamtarget.errors import DtypeError, InputError, ShapeError

ID = "id"
"""Name of the id inside a join."""

_WORD_BITS = 64
_ID_TYPES = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.StringType)


def word_name(word: int) -> str:
    """Return the name that the column of a code's 64-bit word has inside a join."""
    return f"word_{word}"


def n_words(n_bits: int) -> int:
    """Return the number of 64-bit words that hold a code."""
    return -(-n_bits // _WORD_BITS)


def signed(word: int) -> int:
    """Return the long that has the same bits as an unsigned 64-bit number."""
    return word - (word >> 63 << 64)


@dataclass(frozen=True)
class CodeTable:
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
        found = column_type(self.df, self.id, name=self.name)
        if not isinstance(found, _ID_TYPES):
            raise DtypeError(
                f"{self.name}: column {self.id!r} has type {found.simpleString()}; expected integers or strings as ids"
            )
        found = column_type(self.df, self.code, name=self.name)
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
            for word in range(n_words(self.n_bits))
        ]
        return self.df.select(checked_id.alias(ID), *(word.alias(word_name(i)) for i, word in enumerate(words)))

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
        return F.col(quoted(self.id))

    @property
    def _code(self) -> Column:
        return F.col(quoted(self.code))

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
            size = n_words(self.n_bits)
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


def check_codes(df: DataFrame, n_bits: int = 64, *, id: str = "id", code: str = "code") -> int:
    """Check that every row has an id and a code of `n_bits` bits, and return the number of rows.

    This reads all rows once, in a job of its own. The joins check every row too, but while they run: then Spark fails,
    with the same words.

    Raises:
        InputError: a column is missing, or a row has no id or no code of this width. The error says how many.
        DtypeError: a column does not have a type of ids or codes.
        ShapeError: codes of that type cannot have `n_bits` bits.
    """
    table = CodeTable(df, n_bits, id, code, "df")
    counts = table.df.groupBy(table.problem().alias("problem")).count().collect()
    problems = {row["problem"]: row["count"] for row in counts}
    n_rows = sum(int(count) for count in problems.values())
    problems.pop(None, None)
    for problem, count in sorted(problems.items()):
        raise InputError(f"{problem.removeprefix('hamtarget: ')} ({count:,} of {n_rows:,} rows do not)")
    return n_rows


def column_type(df: DataFrame, column: str, *, name: str) -> T.DataType:
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


def quoted(column: str) -> str:
    """Return a column's name so quoted that Spark takes dots in it literally."""
    return "`" + column.replace("`", "``") + "`"
