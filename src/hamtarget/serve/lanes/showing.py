"""Items as they are shown: codes as hexadecimal digits, payloads as JSON."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np

from hamtarget.items import Item
from hamtarget.serve.pictures import Pictures


class Shown(NamedTuple):
    """An item that was found, as it is shown: its codes as hexadecimal digits, and its payload as JSON."""

    codes: list[str]
    payload: str


def shown_item(item: Item | None, pictures: Pictures) -> Shown | None:
    """Return an item as it is shown; None where there is none."""
    if item is None:
        return None
    return Shown(hex_codes(item), payload_json(item, pictures))


def hex_codes(item: Item) -> list[str]:
    """Return the code or the codes of an item as hexadecimal digits."""
    codes = [item.code] if item.codes is None else np.asarray(item.codes)
    return [np.asarray(code, dtype=np.uint8).tobytes().hex() for code in codes]


def payload_json(item: Item, pictures: Pictures) -> str:
    """Return the payload of an item as JSON; it names no folder of the server."""
    if item.payload is None:
        return "null"
    return json.dumps(pictures.shown(item.payload), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
