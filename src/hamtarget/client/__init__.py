"""Clients of `hamtarget serve`; they need nothing but Python's standard library.

    from hamtarget.client import Client
    from hamtarget.items import Item

    with Client("http://127.0.0.1:8080") as client:
        client.put([Item("shoe-1", "shoe.jpg", payload={"price": 40})])
        for hit in client.search("shoe.jpg", radius=4):
            print(hit.id, hit.distance, hit.payload)

The calls have the names and arguments of `hamtarget.Store`, and their results the same shape. A query is an image (a
path, or the bytes of a file) or a vector; a code is bytes, hexadecimal digits, or a row of uint8. `AsyncClient` is the
same for asyncio: `await client.search(...)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hamtarget._exports import lazy_exports

if TYPE_CHECKING:
    from hamtarget.client.asyncio_client import AsyncClient
    from hamtarget.client.blocking_client import Client

# Calls return other types; whoever annotates finds them in hamtarget.client.results.
__all__ = ["AsyncClient", "Client"]

_HOMES = {
    "AsyncClient": "hamtarget.client.asyncio_client",
    "Client": "hamtarget.client.blocking_client",
}

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
