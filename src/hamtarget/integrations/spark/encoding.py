"""Codes of a DataFrame's vectors, by an exported encoder on every worker: onnxruntime and numpy, no torch."""

# No `from __future__ import annotations`: Spark reads the types of a pandas function to know what it takes and gives.
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from hamtarget.encoders.onnx_encoder import OnnxEncoder
from hamtarget.encoders.onnx_file import ONNX_NAME, read_sealed
from hamtarget.errors import DtypeError, InputError, ShapeError
from hamtarget.integrations.spark.columns import column_type, quoted


def encode(
    df: DataFrame, encoder: OnnxEncoder | str | Path, *, inputs: str = "vector", code: str = "code"
) -> DataFrame:
    """`df` and a binary column of codes of its vectors; codes are made when the result is read.

    Workers need `hamtarget[onnx]`; the encoder itself travels with the job.

    Args:
        df: rows with an array of numbers each.
        encoder: what `HashEncoder.export_onnx` wrote, open or not: a file, or the folder in which it is `model.onnx`.
        inputs: name of the column of arrays; an image's numbers lie one after another, row by row, channel by channel.
        code: name of the new column.

    Raises:
        FileError: there is no such encoder. CorruptFileError: it is damaged.
        MissingExtraError: onnxruntime is not installed here.
        InputError: there is no such column, or the new one is there already.
        DtypeError: the column does not hold arrays of numbers.
        Spark's own error, with hamtarget's words, when the result is read: an array is null, too short or long, or
            not finite.
    """
    if not isinstance(encoder, OnnxEncoder):
        encoder = OnnxEncoder(encoder, threads=1)
    found = column_type(df, inputs, name="df")
    if not isinstance(found, T.ArrayType) or not isinstance(found.elementType, T.NumericType):
        raise DtypeError(
            f"df: column {inputs!r} has type {found.simpleString()}; expected arrays of numbers, such as array<float>"
        )
    if code in df.columns:
        raise InputError(f"df has a column {code!r} already; drop it, or give the new one another name: code=...")
    content = read_sealed(encoder.path)
    shape, name = encoder.input_shape, inputs

    def codes_of(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        # A task has one core, and one encoder for all of its batches.
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / ONNX_NAME
            file.write_bytes(content)
            worker = OnnxEncoder(file, threads=1)
        for batch in batches:
            codes = worker.encode(_stacked(batch, shape, name))
            yield pd.Series([code.tobytes() for code in codes], dtype=object)

    on_workers = F.pandas_udf(codes_of, T.BinaryType())
    return df.withColumn(code, on_workers(F.col(quoted(inputs)).cast(T.ArrayType(T.FloatType()))))


def _stacked(batch: pd.Series, shape: tuple[int, ...], name: str) -> NDArray[np.float32]:
    """The arrays of a batch as one."""
    size = int(np.prod(shape))
    rows = np.empty((len(batch), size), dtype=np.float32)
    for row, values in enumerate(batch):
        if values is None or len(values) != size:
            found = "null" if values is None else f"an array of {len(values):,} numbers"
            raise ShapeError(f"column {name!r} holds {found}; this encoder takes arrays of {size:,}")
        rows[row] = values
    return rows.reshape(-1, *shape)
