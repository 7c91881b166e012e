"""Encoding of records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._picture_form import form_of
from hamtarget.cli.inputs.records import Record
from hamtarget.codes import unpack
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import InputError, ShapeError
from hamtarget.progress import Progress
from hamtarget.search import Embeddings
from hamtarget.store.items import encoded_inputs
from hamtarget.store.vectors.kept_vectors import kept_rows


@dataclass(frozen=True, eq=False)
class EncodedRecords:
    """Codes of the records that could be read.

    Attributes:
        records: records that have a code, in order.
        codes: (records, n_bits / 8) packed uint8.
        logits: (records, n_bits) float32; 0 where the code was given.
        broken: by id, why an image could not be read.
    """

    records: list[Record]
    codes: NDArray[np.uint8]
    logits: NDArray[np.float32]
    broken: dict[str | int, str]

    def probing_logits(self) -> NDArray[np.float32]:
        """Return the logits to probe with; each bit of a code that was given counts alike."""
        logits = self.logits.copy()
        given = [row for row, record in enumerate(self.records) if record.code is not None]
        if given:
            logits[given] = 2 * unpack(self.codes[given], logits.shape[1]).astype(np.float32) - 1
        return logits


def encode_records(
    records: Sequence[Record],
    encoder: Encoder | None,
    *,
    n_bits: int,
    workers: int = 0,
    remembers_codes: bool = False,
    progress: Progress | None = None,
) -> EncodedRecords:
    """Encode records; leave out and name each image that cannot be read.

    Args:
        records: vectors, images, texts and codes, in any order.
        encoder: encoder of vectors, images and texts; None if all records are codes.
        n_bits: bits of a code.
        workers: processes that read images; 0: this one.
        remembers_codes: True if codes of images come from the content cache and go there; images then have no logits.
        progress: called with the images that are read and all of them.

    Raises:
        InputError: a record needs an encoder, and there is none.
        ShapeError: a vector or a code has the wrong length.
    """
    codes = np.zeros((len(records), n_bits // 8), dtype=np.uint8)
    logits = np.zeros((len(records), n_bits), dtype=np.float32)
    broken: dict[int, str] = {}
    given = [row for row, record in enumerate(records) if record.code is not None]
    for row in given:
        codes[row] = _code(records[row], n_bits)
    vectors = [row for row, record in enumerate(records) if record.vector is not None]
    images = [row for row, record in enumerate(records) if record.image is not None]
    texts = [row for row, record in enumerate(records) if record.text is not None]
    if encoder is None and (vectors or images or texts):
        record = records[(vectors or images or texts)[0]]
        raise InputError(f"{record.id!r} is no code, and there is no model to encode it; pass --model, or codes")
    if encoder is not None and vectors:
        logits[vectors] = encoder.logits(_stacked([records[row] for row in vectors], encoder.input_shape))
    if encoder is not None and texts:
        logits[texts] = encoder.logits(np.array([records[row].text for row in texts], dtype=object))
    learned = np.ones(len(records), dtype=bool)
    learned[given] = False
    if encoder is not None and images and remembers_codes:
        from hamtarget.copies.picture_codes import encode_files

        paths = [str(records[row].image) for row in images]
        read = encode_files(paths, encoder, workers=workers, progress=progress)
        codes[[images[row] for row in read.rows]] = read.codes
        broken = {row: read.broken[path] for row, path in zip(images, paths, strict=True) if path in read.broken}
        learned[images] = False
    elif encoder is not None and images:
        from hamtarget.datasets.pictures.images import decode_images

        paths = [str(records[row].image) for row in images]
        decoded = decode_images(paths, form_of(encoder), workers=workers, progress=progress)
        broken = {images[row]: reason for row, reason in decoded.broken.items()}
        logits[[images[row] for row in decoded.rows]] = encoder.logits(decoded.images)
    codes[learned] = np.packbits(logits[learned] > 0, axis=1, bitorder="little")
    kept = [row for row in range(len(records)) if row not in broken]
    return EncodedRecords(
        [records[row] for row in kept],
        codes[kept],
        logits[kept],
        {records[row].id: reason for row, reason in broken.items()},
    )


def embeddings_of(encoded: EncodedRecords, kind: Embeddings, *, keeps_vectors: bool = False) -> NDArray[Any]:
    """Return the embeddings of records: the vectors, where the store keeps them, or logits scaled to unit length.

    Raises:
        InputError: the store's embeddings have another length, or a record is a code, which has no embedding.
    """
    for record in encoded.records:
        if record.code is not None:
            raise InputError(f"{record.id!r} is a code, which has no embedding; give the image or vector")
    if keeps_vectors:
        return kept_rows(_stacked(encoded.records, (kind.n_dims,)), kind)
    return encoded_inputs.embeddings_of(encoded.logits, kind)


def _code(record: Record, n_bits: int) -> NDArray[np.uint8]:
    code = np.frombuffer(record.code or b"", dtype=np.uint8)
    if len(code) * 8 != n_bits:
        whose = f"id {record.id}" if isinstance(record.id, int) else repr(record.id)
        raise ShapeError(f"code of {whose} has {len(code) * 8} bits; expected {n_bits}, {n_bits // 4} digits")
    return code


def _stacked(records: list[Record], shape: tuple[int, ...]) -> NDArray[Any]:
    rows = []
    for record in records:
        try:
            row = np.asarray(record.vector)
        except ValueError as error:
            raise ShapeError(f"vector of {record.id!r} is ragged: {error}") from error
        if row.shape != shape:
            raise ShapeError(f"vector of {record.id!r} has shape {row.shape}; this model takes {shape}")
        rows.append(row)
    return np.stack(rows)
