"""Items that are to be put: checked, encoded, and as arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._checks import as_array, as_list
from hamtarget.codes import Codes, check_codes
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import DtypeError, InputError, ShapeError
from hamtarget.items import MAX_CODES, Id, Item, Payload
from hamtarget.search.embeddings import Embeddings
from hamtarget.store.items.encoded_inputs import encode, many_inputs
from hamtarget.store.items.ids import check_id, check_ids, shorten
from hamtarget.store.items.payloads import payloads_as_json
from hamtarget.store.settings import Settings


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Items as arrays.

    Attributes:
        ids: plain strings and integers, perhaps some of them twice.
        codes: (codes, n_bits / 8) of packed uint8: those of the first item, then those of the second, and so on.
        embeddings: (codes, n_dims), if the store keeps embeddings.
        payloads: JSON in UTF-8 or None for each item; None where no item has one.
        counts: how many codes each item has; None where each has one.
    """

    ids: list[Id]
    codes: Codes
    embeddings: NDArray[Any] | None
    payloads: list[bytes | None] | None
    counts: list[int] | None = None

    @property
    def all_counts(self) -> list[int]:
        """How many codes each item has."""
        return [1] * len(self.ids) if self.counts is None else self.counts

    def without_repeats(self) -> Batch:
        """Return the same with each id once: the last one counts."""
        last = {id: place for place, id in enumerate(self.ids)}
        if len(last) == len(self.ids):
            return self
        places = list(last.values())
        return Batch(
            list(last),
            self.codes[self._codes_of(places)],
            None if self.embeddings is None else self.embeddings[self._codes_of(places)],
            None if self.payloads is None else [self.payloads[place] for place in places],
            None if self.counts is None else [self.counts[place] for place in places],
        )

    def _codes_of(self, places: list[int]) -> list[int]:
        """Return where the codes of the items at these places are."""
        if self.counts is None:
            return places
        ends = np.cumsum(self.counts).tolist()
        return [code for place in places for code in range(ends[place] - self.counts[place], ends[place])]

    def payloads_of_codes(self) -> list[bytes | None] | None:
        """Return a payload for each code: that of its item for the first one, and None for the others."""
        if self.payloads is None or self.counts is None:
            return self.payloads
        spread: list[bytes | None] = []
        for payload, n_codes in zip(self.payloads, self.counts, strict=True):
            spread.append(payload)
            spread += [None] * (n_codes - 1)
        return spread


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
    n_codes = None
    codes = as_array(codes, name="codes")
    if codes.ndim == 3:
        codes, embeddings, n_codes = _flattened(codes, embeddings)
    rows = check_codes(codes, settings.n_bits)
    n_items = len(rows) // (n_codes or 1)
    if len(checked) != n_items:
        raise ShapeError(f"there are {len(checked):,} ids for {n_items:,} codes; expected one id for each code")
    texts = None
    if payloads is not None:
        payloads = as_list(payloads, name="payloads")
        if len(payloads) != n_items:
            raise ShapeError(f"there are {len(payloads):,} payloads for {n_items:,} codes; expected one for each")
        texts = payloads_as_json(payloads)
    counts = None if n_codes is None else [n_codes] * n_items
    return Batch(checked, rows, _check_embeddings(settings.embeddings, embeddings, len(rows)), texts, counts)


def _flattened(codes: ArrayLike, embeddings: ArrayLike | None) -> tuple[ArrayLike, ArrayLike | None, int]:
    """Return (items, codes, n_bits / 8) and (items, codes, n_dims) with a row for each code, and how many an item has.

    Raises:
        ShapeError: the embeddings are not so many. InputError: there are no codes, or too many.
    """
    array = as_array(codes, name="codes")
    n_codes = _check_n_codes(array.shape[1], "each item")
    vectors = None if embeddings is None else as_array(embeddings, name="embeddings")
    if vectors is not None and vectors.shape[:2] != array.shape[:2]:
        raise ShapeError(f"embeddings have shape {vectors.shape}; expected (items, codes, n_dims) as of the codes")
    return (
        array.reshape(-1, array.shape[2]),
        None if vectors is None else vectors.reshape(len(array) * n_codes, -1),
        n_codes,
    )


def _check_n_codes(n_codes: int, name: str) -> int:
    if not 1 <= n_codes <= MAX_CODES:
        raise InputError(f"{name} has {n_codes:,} codes; expected 1 to {MAX_CODES}")
    return n_codes


def batch_of_items(settings: Settings, encoder: Callable[[], Encoder], items: Sequence[Item]) -> Batch:
    """Return items as arrays, checked; those with inputs are encoded together.

    Raises:
        As `batch_of_rows`.
    """
    for item in items:
        _check_item(item)
    ids = [check_id(item.id) for item in items]
    payloads = payloads_as_json([item.payload for item in items])
    made = _made_of_inputs(settings, encoder, items)
    codes: list[Codes] = []
    vectors: list[NDArray[Any]] = []
    for place, item in enumerate(items):
        here, own = made.get(place, (None, None))
        codes.append(_given_codes(item, settings.n_bits) if here is None else here)
        given = _given_embeddings(item, len(codes[-1]))
        own = own if given is None else given
        if own is not None:
            vectors.append(own)
        elif settings.embeddings is not None:
            raise InputError(f"item {shorten(item.id)} has no embedding; this store keeps one for each code")
    counts = [len(part) for part in codes]
    rows = np.concatenate(codes)
    try:
        embeddings = np.concatenate(vectors) if vectors else None
    except ValueError as error:
        raise ShapeError(f"embeddings of the items do not have one length ({error})") from error
    checked = _check_embeddings(settings.embeddings, embeddings, len(rows))
    return Batch(ids, rows, checked, payloads, counts if max(counts) > 1 else None)


def _check_item(item: Item) -> None:
    if not isinstance(item, Item):
        raise DtypeError(f"put got {shorten(item)}, {type(item).__name__}; expected Item(id, ...)")
    if sum(given is not None for given in (item.input, item.code, item.inputs, item.codes)) != 1:
        raise InputError(f"item {shorten(item.id)} needs either an input or a code, or several: inputs or codes")
    is_one = item.codes is None and item.inputs is None
    if (item.embeddings if is_one else item.embedding) is not None:
        fitting = "embedding=... with one code or input" if is_one else "embeddings=... with several"
        raise InputError(f"item {shorten(item.id)} has an embedding of the wrong kind; expected {fitting}")


def _made_of_inputs(
    settings: Settings, encoder: Callable[[], Encoder], items: Sequence[Item]
) -> dict[int, tuple[Codes, NDArray[Any] | None]]:
    """Return codes, and embeddings where the store keeps some, of the items that have inputs, by their places."""
    inputs: list[Any] = []
    counts: dict[int, int] = {}
    for place, item in enumerate(items):
        if item.input is not None:
            own = [item.input]
        elif item.inputs is not None:
            own = _several_inputs(item)
        else:
            continue
        inputs += own
        counts[place] = len(own)
    if not counts:
        return {}
    trained = encoder()
    is_missing = any(items[place].embedding is None and items[place].embeddings is None for place in counts)
    codes, embeddings = encode(
        trained,
        many_inputs(trained, inputs, instead="put"),
        settings.embeddings if is_missing else None,
        keeps_vectors=settings.keeps_vectors,
    )
    made: dict[int, tuple[Codes, NDArray[Any] | None]] = {}
    start = 0
    for place, count in counts.items():
        here = slice(start, start + count)
        made[place] = codes[here], None if embeddings is None else embeddings[here]
        start += count
    return made


def _several_inputs(item: Item) -> list[Any]:
    if isinstance(item.inputs, str | bytes | os.PathLike):
        raise ShapeError(f"inputs of item {shorten(item.id)} are one {type(item.inputs).__name__}; expected a list")
    own = list(item.inputs)
    _check_n_codes(len(own), f"item {shorten(item.id)}")
    return own


def _given_codes(item: Item, n_bits: int) -> Codes:
    """Return the codes of an item that has no inputs, (codes, n_bits / 8)."""
    if item.code is not None:
        return _one_code(item.code, n_bits, item.id)
    codes = as_array(item.codes, name="codes")  # type: ignore[arg-type]
    if codes.ndim != 2:
        raise ShapeError(
            f"the codes of item {shorten(item.id)} have {codes.ndim} dimensions; expected 2: (codes, n_bits / 8)"
        )
    _check_n_codes(len(codes), f"item {shorten(item.id)}")
    return check_codes(codes, n_bits)


def _given_embeddings(item: Item, n_codes: int) -> NDArray[Any] | None:
    """Return the embeddings that came with an item, (codes, n_dims)."""
    if item.embedding is not None:
        return as_array(item.embedding, name="embedding")[None]
    if item.embeddings is None:
        return None
    embeddings = as_array(item.embeddings, name="embeddings")
    if len(embeddings) != n_codes:
        raise ShapeError(
            f"item {shorten(item.id)} has {len(embeddings):,} embeddings for {n_codes:,} codes; expected one for each"
        )
    return embeddings


def _one_code(code: ArrayLike, n_bits: int, id: Id) -> Codes:
    array = as_array(code, name="codes")
    if array.ndim != 1:
        raise ShapeError(f"the code of item {shorten(id)} has {array.ndim} dimensions; expected 1: (n_bits / 8,)")
    return check_codes(array, n_bits)


def _check_embeddings(kind: Embeddings | None, embeddings: ArrayLike | None, n_rows: int) -> NDArray[Any] | None:
    if kind is None:
        if embeddings is not None:
            raise InputError("embeddings are given; this store keeps none: create it with embeddings=Embeddings(...)")
        return None
    if embeddings is None:
        raise InputError(f"embeddings are missing; this store keeps {kind.n_dims} numbers for each item")
    return kind.check(embeddings, n_rows=n_rows)
