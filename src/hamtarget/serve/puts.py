"""Items of a request to put: checked, and as arrays with a row for each code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes
from hamtarget.items import Id
from hamtarget.serve.lanes.jobs import Input
from hamtarget.serve.messages.item_messages import ItemIn
from hamtarget.serve.problems import refused


@dataclass(frozen=True, slots=True, eq=False)
class PreparedItems:
    """Items as arrays; codes and embeddings that an encoder makes are still missing.

    Attributes:
        ids: of the items.
        counts: how many codes each has.
        codes: (codes, n_bits / 8), those of the first item first.
        embeddings: of each code, None where it has none yet.
        payloads: of the items.
        inputs: by the place of the code that is still to be made.
    """

    ids: list[Id]
    counts: list[int]
    codes: Codes
    embeddings: list[Any]
    payloads: list[dict[str, Any] | None]
    inputs: dict[int, Input]


def n_codes_of(items: Sequence[ItemIn]) -> int:
    """Return how many codes items have together."""
    return sum(max(1, sum(map(len, _lists(item)))) for item in items)


def prepare_items(
    items: Sequence[ItemIn],
    n_bits: int,
    read_codes: Callable[[list[str]], Codes],
    read_embedding: Callable[[list[float]], NDArray[Any]],
) -> PreparedItems:
    """Return items as arrays.

    Args:
        items: of the request.
        n_bits: of a code.
        read_codes: turns hexadecimal digits into codes.
        read_embedding: checks an embedding.

    Raises:
        Problem: an item has no code and no input, or too many, or its embeddings do not go with them.
    """
    codes: list[Codes] = []
    counts: list[int] = []
    embeddings: list[Any] = []
    inputs: dict[int, Input] = {}
    for number, item in enumerate(items):
        own_codes, own_inputs = _given(item, number)
        start = len(embeddings)
        counts.append(len(own_codes) or len(own_inputs))
        codes.append(read_codes(own_codes) if own_codes else np.zeros((counts[-1], n_bits // 8), dtype=np.uint8))
        inputs.update(enumerate(own_inputs, start))
        embeddings += _embeddings(item, number, counts[-1], read_embedding)
    return PreparedItems(
        [item.id for item in items],
        counts,
        np.concatenate(codes),
        embeddings,
        [item.payload for item in items],
        inputs,
    )


def _lists(item: ItemIn) -> list[Sequence[Any]]:
    return [given for given in (item.codes, item.vectors, item.images, item.texts) if given is not None]


def _given(item: ItemIn, number: int) -> tuple[list[str], list[Input]]:
    """Return the codes of an item as digits, or its inputs."""
    single: list[Input] = [each for each in (item.vector, item.image, item.text) if each is not None]
    several = _lists(item)
    if len(single) + len(several) + (item.code is not None) != 1:
        raise refused(f"item {number}: give one of code, vector, image and text, or several: codes, vectors, ...")
    if item.code is not None:
        return [item.code], []
    if item.codes is not None:
        return item.codes, []
    return [], single or list(several[0])


def _embeddings(
    item: ItemIn, number: int, n_codes: int, read_embedding: Callable[[list[float]], NDArray[Any]]
) -> list[Any]:
    """Return the embeddings of an item, None for each that is not given."""
    if item.embeddings is not None:
        if item.embedding is not None or len(item.embeddings) != n_codes:
            raise refused(f"item {number} has {len(item.embeddings)} embeddings for {n_codes} codes; give one for each")
        return [read_embedding(row) for row in item.embeddings]
    if item.embedding is None:
        return [None] * n_codes
    if _lists(item):
        raise refused(f"item {number} has several codes and `embedding`; give `embeddings`, one for each")
    return [read_embedding(item.embedding)]
