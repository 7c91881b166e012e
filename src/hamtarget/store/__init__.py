"""A durable collection of items (id, code, embedding, payload), found by the distance of their codes."""

from hamtarget.store.filters import Range
from hamtarget.store.items import Item
from hamtarget.store.results import Id, Pair, StoreHit, StoreHits, StoreQueryHits, StoreReport, StoreStats
from hamtarget.store.store import Store

__all__ = [
    "Id",
    "Item",
    "Pair",
    "Range",
    "Store",
    "StoreHit",
    "StoreHits",
    "StoreQueryHits",
    "StoreReport",
    "StoreStats",
]
