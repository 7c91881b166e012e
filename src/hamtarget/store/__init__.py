"""A durable collection of items (id, code, embedding, payload), found by the distance of their codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hamtarget._exports import lazy_exports

if TYPE_CHECKING:
    from hamtarget.filters import Range
    from hamtarget.items import Item
    from hamtarget.store.postgres.mirror import Mirror
    from hamtarget.store.store import Store

__all__ = ["Item", "Mirror", "Range", "Store"]

_HOMES = {
    "Item": "hamtarget.items",
    "Mirror": "hamtarget.store.postgres.mirror",
    "Range": "hamtarget.filters",
    "Store": "hamtarget.store.store",
}

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
