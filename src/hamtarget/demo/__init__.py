"""The steps of `hamtarget demo` on the bundled images: learn, store, search, compare, find duplicates."""

from hamtarget.demo.duplicates import DuplicateCount, find_duplicates
from hamtarget.demo.picture import draw_demo
from hamtarget.demo.walk import (
    DemoSettings,
    Score,
    Searched,
    Stored,
    learn,
    nearest_images,
    others,
    score,
    search_store,
    shown_queries,
    store_images,
)

__all__ = [
    "DemoSettings",
    "DuplicateCount",
    "Score",
    "Searched",
    "Stored",
    "draw_demo",
    "find_duplicates",
    "learn",
    "nearest_images",
    "others",
    "score",
    "search_store",
    "shown_queries",
    "store_images",
]
