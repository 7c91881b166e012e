"""Copies among pictures: from a folder to groups, without training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hamtarget._exports import lazy_exports

if TYPE_CHECKING:
    from hamtarget.copies.finding import find_copies

__all__ = ["find_copies"]

_HOMES = {"find_copies": "hamtarget.copies.finding"}

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
