"""Codes in Spark DataFrames: encode them, and find all pairs within a radius, of one set or of two.

The join is the multi-index's: rows are sent to one place for each of their radius + 1 substrings, rows that meet are
compared, and a pair counts where its first shared substring is. It finds what `hamtarget.search` finds, to the last
pair. Everything but the encoder runs inside the JVM.

A code is a binary column of n_bits / 8 bytes, as `encode` makes it; or a long, for up to 64 bits; or an array of longs,
64 bits each, the first bits first (`codes.view("<i8")` of packed numpy codes).
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
from hamtarget.integrations.spark.encoding import encode
from hamtarget.integrations.spark.join import near_duplicates, radius_join

__all__ = ["check_codes", "encode", "near_duplicates", "radius_join"]
