"""Encode the vectors of a DataFrame by an exported encoder on every worker, with onnxruntime and without torch."""

# Without `from __future__ import annotations`, because Spark reads the annotations of a pandas function.
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
        # A task has one core, and uses one encoder for all of its batches.
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
    """Return the arrays of a batch as one."""
    size = int(np.prod(shape))
    rows = np.empty((len(batch), size), dtype=np.float32)
    for row, values in enumerate(batch):
        if values is None or len(values) != size:
            found = "null" if values is None else f"an array of {len(values):,} numbers"
            raise ShapeError(f"column {name!r} holds {found}; this encoder takes arrays of {size:,}")
        rows[row] = values
    return rows.reshape(-1, *shape)
