"""Warnings of a training, as notes on the standard error."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from hamtarget.cli.terminal.output import note
from hamtarget.errors import CrowdedCodesWarning


@contextmanager
def warnings_as_notes(options: str) -> Iterator[list[str]]:
    """Show warnings as notes on the standard error, after the work; yield a list that gets those of skipped images.

    Args:
        options: how the library's advice is followed on the command line.
    """
    from hamtarget.learn.fitting.part_labels import LeftOutWarning
    from hamtarget.learn.fitting.pictures import SkippedImageWarning

    skipped: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        for category in (CrowdedCodesWarning, SkippedImageWarning, LeftOutWarning):
            warnings.simplefilter("always", category)
        yield skipped
    for each in caught:
        if issubclass(each.category, SkippedImageWarning):
            skipped.append(str(each.message))
            note(f"hamtarget: {each.message}")
        elif issubclass(each.category, CrowdedCodesWarning):
            note(f"hamtarget: {each.message} {options}")
        elif issubclass(each.category, LeftOutWarning):
            note(f"hamtarget: {each.message}")
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
