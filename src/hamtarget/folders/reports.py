"""The report of a sync: all that was done, or would be done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, eq=False)
class SyncReport:
    """Changes that `sync_folder` made; or, of a dry run, would make.

    Names are paths within the folder, with "/" between the parts.

    Attributes:
        folder: name of the folder in payloads.
        added: new pictures.
        replaced: pictures whose content has changed.
        moved: former and present name of pictures that were moved or renamed; they were not encoded again.
        removed: pictures that are no longer in the folder.
        kept: pictures that are no longer found, but whose items stay: as asked, or since their folder cannot be read.
        skipped: by name, why a file or a folder was left out; an item that it had before stays as it was.
        unchanged: number of pictures that are as they were.
        items: number of items in the store afterwards.
        seconds: time that it took.
        dry_run: True if nothing was changed.
    """

    folder: str
    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    moved: list[tuple[str, str]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    unchanged: int = 0
    items: int = 0
    seconds: float = 0.0
    dry_run: bool = False

    def __str__(self) -> str:
        """Return the numbers in one line."""
        counts = [f"{len(getattr(self, name)):,} {name}" for name in ("added", "replaced", "moved", "removed")]
        counts += [f"{len(self.kept):,} kept"] if self.kept else []
        counts += [f"{len(self.skipped):,} skipped", f"{self.unchanged:,} unchanged"]
        told = "dry run, nothing changed: " if self.dry_run else ""
        return f"{told}{', '.join(counts)}; {self.items:,} in all, {self.seconds:.1f} s"

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON says it."""
        return {
            "folder": self.folder,
            "added": list(self.added),
            "replaced": list(self.replaced),
            "moved": [list(pair) for pair in self.moved],
            "removed": list(self.removed),
            "kept": list(self.kept),
            "skipped": dict(self.skipped),
            "unchanged": self.unchanged,
            "items": self.items,
            "seconds": round(self.seconds, 3),
            "dry_run": self.dry_run,
        }
