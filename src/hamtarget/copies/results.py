"""Groups of copies, as they are found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Copy:
    """A picture of a group.

    Attributes:
        path: of its file.
        width: in pixels, upright.
        height: in pixels, upright.
        n_bytes: size of its file.
        distance: bits in which its code differs from that of the group's best picture; 0 for the best itself.
        is_identical: True if its file has the very bytes of the best picture's file; so has the best itself.
    """

    path: str
    width: int
    height: int
    n_bytes: int
    distance: int
    is_identical: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by the names that files have for them."""
        return {
            "path": self.path,
            "width": self.width,
            "height": self.height,
            "bytes": self.n_bytes,
            "distance": self.distance,
            "identical": self.is_identical,
        }


@dataclass(frozen=True, eq=False, repr=False)
class FoundCopies(Sequence["tuple[Copy, ...]"]):
    """Groups of copies, largest and closest first; a sequence of tuples of `Copy`, the best picture of a group first.

    Attributes:
        groups: the groups.
        n_pictures: pictures that were compared.
        broken: by path, why a picture could not be read.
        encoder: name of the encoder that made the codes.
        radius: bits in which a copy's code may differ from that of its group's best picture.
        reason: why this radius.
    """

    groups: tuple[tuple[Copy, ...], ...]
    n_pictures: int
    encoder: str
    radius: int
    reason: str
    broken: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.groups)

    def __getitem__(self, number: Any) -> Any:
        """Return a group."""
        return self.groups[number]

    def __iter__(self) -> Iterator[tuple[Copy, ...]]:
        """Yield the groups."""
        return iter(self.groups)

    def __repr__(self) -> str:
        """Return the numbers in a line."""
        unread = f", {len(self.broken):,} not readable" if self.broken else ""
        return (
            f"FoundCopies({counted(len(self), 'group')} with {self.n_grouped:,} of {self.n_pictures:,} pictures, "
            f"{self.encoder} within {self.radius} bits{unread})"
        )

    @property
    def n_grouped(self) -> int:
        """Pictures in groups."""
        return sum(map(len, self.groups))

    @property
    def copied_bytes(self) -> int:
        """Bytes of the files of all pictures in groups, without the best of each."""
        return sum(copy.n_bytes for group in self.groups for copy in group[1:])


def counted(number: int, noun: str) -> str:
    """Return a number and what it counts: 1 group, 2 groups."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
