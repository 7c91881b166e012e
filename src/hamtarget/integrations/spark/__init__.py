"""Encode Spark DataFrames, and find all pairs of codes within a radius, in one DataFrame or between two.

The join works like the multi-index. A row is sent to one bucket for each of its radius + 1 substrings, rows that meet
in a bucket are compared, and a pair counts in the bucket of its first shared substring. It finds exactly the pairs that
`hamtarget.search` finds. Everything but the encoder runs inside the JVM.

A code is a binary column of n_bits / 8 bytes, as `encode` makes it; or a long, for up to 64 bits; or an array of longs
of 64 bits each, the first bits first (`codes.view("<i8")` of packed numpy codes).
"""

from hamtarget.errors import MissingExtraError

try:
    import pandas as pandas
    import pyarrow as pyarrow
    import pyspark as pyspark
except ImportError as error:
    raise MissingExtraError(
        "hamtarget.integrations.spark needs pyspark, pyarrow and pandas (and Java): pip install 'hamtarget[spark]'"
    ) from error

from hamtarget.integrations.spark.columns import check_codes
from hamtarget.integrations.spark.encoded_columns import encode
from hamtarget.integrations.spark.join import near_duplicates, radius_join

__all__ = ["check_codes", "encode", "near_duplicates", "radius_join"]


def __dir__() -> list[str]:
    return __all__
