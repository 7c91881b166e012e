"""Items that are to be put: checked, encoded, and as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget.codes import Codes, check_codes
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import DtypeError, InputError, ShapeError
from hamtarget.items import Id, Item, Payload
from hamtarget.search.embeddings import Embeddings
from hamtarget.store.encoded_inputs import encode, many_inputs
from hamtarget.store.ids import check_id, check_ids, shorten
from hamtarget.store.payloads import payloads_as_json
from hamtarget.store.settings import Settings


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Items as arrays.

    Attributes:
        ids: plain strings and integers, perhaps some of them twice.
        codes: (items, n_bits / 8) of packed uint8.
        embeddings: (items, n_dims), if the store keeps embeddings.
        payloads: JSON in UTF-8 or None for each item; None where no item has one.
    """

    ids: list[Id]
    codes: Codes
    embeddings: NDArray[Any] | None
    payloads: list[bytes | None] | None

    def without_repeats(self) -> Batch:
        """Return the same with each id once: the last one counts."""
        last = {id: place for place, id in enumerate(self.ids)}
        if len(last) == len(self.ids):
            return self
        places = list(last.values())
        return Batch(
            list(last),
            self.codes[places],
            None if self.embeddings is None else self.embeddings[places],
            None if self.payloads is None else [self.payloads[place] for place in places],
        )


def batch_of_rows(
    settings: Settings,
    encoder: Callable[[], Encoder],
    ids: Iterable[Id] | NDArray[Any],
    *,
    codes: ArrayLike | None,
    inputs: Any,
    embeddings: ArrayLike | None,
    payloads: Sequence[Payload | None] | None,
) -> Batch:
    """Return the caller's arrays, checked; `encoder` is called if there are inputs.

    Raises:
        InputError, and its kinds: something is missing, too much, or not what the store keeps.
    """
    checked = check_ids(ids)
    if (codes is None) == (inputs is None):
        raise InputError("codes and inputs are both given or both missing; give one of them")
    if codes is None:
        trained = encoder()
        codes, made = encode(
            trained,
            many_inputs(trained, inputs, instead="put"),
            settings.embeddings if embeddings is None else None,
            keeps_vectors=settings.keeps_vectors,
        )
        embeddings = made if embeddings is None else embeddings
    rows = check_codes(codes, settings.n_bits)
    if len(checked) != len(rows):
        raise ShapeError(f"there are {len(checked):,} ids for {len(rows):,} codes; expected one id for each code")
    texts = None
    if payloads is not None:
        if len(payloads) != len(rows):
            raise ShapeError(f"there are {len(payloads):,} payloads for {len(rows):,} codes; expected one for each")
        texts = payloads_as_json(payloads)
    return Batch(checked, rows, _check_embeddings(settings.embeddings, embeddings, len(rows)), texts)


def batch_of_items(settings: Settings, encoder: Callable[[], Encoder], items: Sequence[Item]) -> Batch:
    """Return items as arrays, checked; those with inputs are encoded together.

    Raises:
        As `batch_of_rows`.
    """
    for item in items:
        if not isinstance(item, Item):
            raise DtypeError(f"put got {shorten(item)}, {type(item).__name__}; expected Item(id, ...)")
        if (item.input is None) == (item.code is None):
            raise InputError(f"item {shorten(item.id)} needs either an input or a code, one of them")
    ids = [check_id(item.id) for item in items]
    payloads = payloads_as_json([item.payload for item in items])
    codes: list[Any] = [item.code for item in items]
    embeddings: list[Any] = [item.embedding for item in items]
    places = [place for place, item in enumerate(items) if item.input is not None]
    if places:
        trained = encoder()
        kind = settings.embeddings if any(embeddings[place] is None for place in places) else None
        inputs = [items[place].input for place in places]
        made_codes, made_embeddings = encode(
            trained, many_inputs(trained, inputs, instead="put"), kind, keeps_vectors=settings.keeps_vectors
        )
        for made, place in enumerate(places):
            codes[place] = made_codes[made]
            if embeddings[place] is None and made_embeddings is not None:
                embeddings[place] = made_embeddings[made]
    rows = np.concatenate([_one_code(code, settings.n_bits, id) for code, id in zip(codes, ids, strict=True)])
    vectors = None
    if any(embedding is not None for embedding in embeddings) or settings.embeddings is not None:
        for embedding, id in zip(embeddings, ids, strict=True):
            if embedding is None:
                raise InputError(f"item {shorten(id)} has no embedding; this store keeps one for each item")
        vectors = _check_embeddings(settings.embeddings, np.stack([np.asarray(row) for row in embeddings]), len(rows))
    return Batch(ids, rows, vectors, payloads)


def _one_code(code: ArrayLike, n_bits: int, id: Id) -> Codes:
    if np.ndim(code) != 1:
        raise ShapeError(f"the code of item {shorten(id)} has {np.ndim(code)} dimensions; expected 1: (n_bits / 8,)")
    return check_codes(code, n_bits)


def _check_embeddings(kind: Embeddings | None, embeddings: ArrayLike | None, n_rows: int) -> NDArray[Any] | None:
    if kind is None:
        if embeddings is not None:
            raise InputError("embeddings are given; this store keeps none: create it with embeddings=Embeddings(...)")
        return None
    if embeddings is None:
        raise InputError(f"embeddings are missing; this store keeps {kind.n_dims} numbers for each item")
    return kind.check(embeddings, n_rows=n_rows)
