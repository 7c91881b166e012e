"""Folders of pictures that change, and the stores that follow them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hamtarget._exports import lazy_exports

if TYPE_CHECKING:
    from hamtarget.folders.syncing import sync_folder

__all__ = ["sync_folder"]

_HOMES = {"sync_folder": "hamtarget.folders.syncing"}

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
