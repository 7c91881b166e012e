"""Codes for vectors that come without a model."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from hamtarget.cli.inputs.new_stores import WantedStore
from hamtarget.cli.inputs.records import Record, Records
from hamtarget.cli.terminal.output import note
from hamtarget.errors import DtypeError, ShapeError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def with_learned_codes(place: str, wanted: WantedStore, records: Records) -> tuple[WantedStore, Records]:
    """Return a new store's options with an encoder, which is learned from the vectors of a source, and its records.

    Of lines, the first are learned from; of a file of vectors, a sample of all.

    Args:
        place: folder or address of the store.
        wanted: what the options say; they name no encoder.
        records: the source, of which nothing was read that it does not still give.

    Raises:
        InputError: the vectors are not at least 2 rows of finite numbers, as many in each row, or one has no cosine.
    """
    from hamtarget.encoders.vectors.vector_codes import MOST_LEARNED_FROM, learn_vector_codes
    from hamtarget.store.postgres.address import is_address

    vectors = records.vectors
    if vectors is None:
        first = [_compact(record) for record in islice(records.records, MOST_LEARNED_FROM)]
        vectors = _stacked([record for record in first if record.vector is not None])
        records = replace(records, records=chain(first, records.records))
    encoder = learn_vector_codes(vectors, wanted.metric or "l2", n_bits=wanted.bits)
    n_learned = min(len(vectors), MOST_LEARNED_FROM)
    of_all = "" if records.total in (None, n_learned) else f" of {records.total:,}"
    if wanted.embeddings not in (None, "none"):
        use = "searches go by them"
    elif is_address(place):
        use = "in PostgreSQL they choose which vectors are compared: see hamtarget train for better ones"
    else:
        use = f"the nearest by {encoder.neighbor_metric} are found by the vectors themselves"
    note(f"hamtarget: no --model: codes by {type(encoder).__name__}, learned from {n_learned:,}{of_all} vectors; {use}")
    return replace(wanted, encoder=encoder), records


def _compact(record: Record) -> Record:
    """Return a record whose vector is an array: a list of numbers takes eight times its memory."""
    import numpy as np

    if record.vector is None:
        return record
    try:
        vector = np.asarray(record.vector)
    except ValueError as error:
        raise ShapeError(f"vector of {record.id!r} is ragged: {error}") from error
    if vector.dtype.kind not in "fiu":
        raise DtypeError(f"vector of {record.id!r} has elements of type {vector.dtype}; expected numbers")
    # What is too large becomes infinity, and is refused as such.
    with np.errstate(over="ignore"):
        return replace(record, vector=vector.astype(np.float32))


def _stacked(records: list[Record]) -> NDArray[Any]:
    import numpy as np

    shape = records[0].vector.shape
    for record in records:
        if record.vector.shape != shape:
            raise ShapeError(f"vector of {record.id!r} has shape {record.vector.shape}; the first has {shape}")
    return np.stack([record.vector for record in records])
