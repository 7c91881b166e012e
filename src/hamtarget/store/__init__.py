"""A durable collection of items (id, code, embedding, payload), found by the distance of their codes."""

from hamtarget.filters import Range
from hamtarget.items import Id, Item
from hamtarget.store.results import Pair, StoreReport, StoreStats
from hamtarget.store.store import Store

__all__ = [
    "Id",
    "Item",
    "Pair",
    "Range",
    "Store",
    "StoreReport",
    "StoreStats",
]
