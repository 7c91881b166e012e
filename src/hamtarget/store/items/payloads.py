"""Payloads: checks of their content, and their way to JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from hamtarget.errors import DtypeError, InputError, NotFiniteError
from hamtarget.items import Payload
from hamtarget.store.items.ids import encode_text, shorten

MAX_PAYLOAD_BYTES = 16 * 2**20
MAX_PAYLOAD_DEPTH = 100

# Payloads that are written at once; and what stands between them, which payloads cannot hold.
_AT_ONCE = 512
_BETWEEN = ",NaN,"
_PLAIN = {str, int, float, bool, type(None)}
_PAYLOADS = {dict, type(None)}


def payloads_as_json(payloads: Sequence[Payload | None]) -> list[bytes | None]:
    """Return all payloads as JSON in UTF-8: as `payload_as_json` does for each, several times as fast.

    Raises:
        As `payload_as_json`.
    """
    result: list[bytes | None] = []
    for start in range(0, len(payloads), _AT_ONCE):
        block = payloads[start : start + _AT_ONCE]
        result += _written_at_once(block) or [payload_as_json(payload) for payload in block]
    return result


def _written_at_once(payloads: Sequence[Payload | None]) -> list[bytes | None] | None:
    """Return the payloads as JSON, if they are flat and ordinary; None where each needs to be looked at.

    Most of the time of writing a small object is that of starting to write. So all of them are written as one list,
    with a NaN between each two. That NaN is found nowhere else shows that the list falls apart at the right places.
    """
    if not _PAYLOADS.issuperset(map(type, payloads)):
        return None
    objects: list[dict[Any, Any]] = [payload for payload in payloads if payload is not None]  # type: ignore[misc]
    if not ({str}.issuperset(map(type, chain.from_iterable(objects))) and _are_plain(objects)):
        return None
    separated: list[Any] = [math.nan] * (2 * len(payloads) - 1)
    separated[::2] = payloads
    text = _with_nan(separated)
    if text.count("NaN") != len(payloads) - 1 or "Infinity" in text:
        return None
    try:
        written = [piece.encode() for piece in text[1:-1].split(_BETWEEN)]
    except UnicodeEncodeError:
        return None
    if max(map(len, written)) > MAX_PAYLOAD_BYTES:
        return None
    return [None if piece == b"null" else piece for piece in written]


def _are_plain(objects: list[dict[Any, Any]]) -> bool:
    return _PLAIN.issuperset(map(type, chain.from_iterable(map(dict.values, objects))))


def payload_as_json(payload: Payload | None) -> bytes | None:
    """Return the payload as JSON in UTF-8.

    Raises:
        DtypeError: it is no object, or holds what JSON does not know.
        NotFiniteError: it holds NaN or infinity.
        InputError: it is too long or too deep, or holds half a surrogate pair.
    """
    if payload is None:
        return None
    if type(payload) is not dict:
        if not isinstance(payload, Mapping):
            raise DtypeError(
                f"payload is {shorten(payload)}, {type(payload).__name__}; expected an object (dict) or None"
            )
        payload = dict(payload)
    _check_json(payload, MAX_PAYLOAD_DEPTH)
    try:
        text = _to_json(payload)
    except ValueError as error:
        raise NotFiniteError(f"payload {shorten(payload)} holds NaN or infinity, which JSON cannot say") from error
    except TypeError as error:
        raise DtypeError(
            f"payload {shorten(payload)} is not JSON: {error}; expected dicts, lists, strings, numbers, bools and "
            "None: of a number of numpy, pass value.item()"
        ) from error
    encoded = encode_text(text, name="payload")
    if len(encoded) > MAX_PAYLOAD_BYTES:
        raise InputError(
            f"payload has {len(encoded):,} bytes; expected at most {MAX_PAYLOAD_BYTES:,}: keep large things in files"
        )
    return encoded


def _writer(*, allow_nan: bool) -> json.JSONEncoder:
    return json.JSONEncoder(ensure_ascii=False, allow_nan=allow_nan, separators=(",", ":"), check_circular=False)


_to_json = _writer(allow_nan=False).encode
_with_nan = _writer(allow_nan=True).encode


def _check_json(value: Any, depth: int) -> None:
    """Check that every object within has strings for keys: json would silently turn others into strings."""
    if depth == 0:
        raise InputError(f"payload is deeper than {MAX_PAYLOAD_DEPTH} levels; flatten it")
    inner = value
    if isinstance(value, dict):
        for key in value:
            if type(key) is not str:
                raise DtypeError(f"payload has the key {shorten(key)}, {type(key).__name__}; expected strings")
        inner = value.values()
    if _PLAIN.issuperset(map(type, inner)):
        return
    for element in inner:
        if isinstance(element, dict | list | tuple):
            _check_json(element, depth - 1)
