"""Groups of near copies among texts, as they are found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hamtarget.copies.results import counted


@dataclass(frozen=True, slots=True)
class TextCopy:
    """A text of a group.

    Attributes:
        id: what the file's id column says, or the number of its line.
        line: number of the line on which it begins, from 1 on.
        n_characters: its length.
        distance: bits in which its code differs from that of the group's best text; 0 for the best itself.
        is_identical: True if it is the best text, character by character; so is the best itself.
        excerpt: its beginning, in one line.
    """

    id: str | int
    line: int
    n_characters: int
    distance: int
    is_identical: bool
    excerpt: str

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by the names that files have for them."""
        return {
            "id": self.id,
            "line": self.line,
            "characters": self.n_characters,
            "distance": self.distance,
            "identical": self.is_identical,
            "excerpt": self.excerpt,
        }


@dataclass(frozen=True, eq=False, repr=False)
class FoundTextCopies(Sequence["tuple[TextCopy, ...]"]):
    """Groups of near copies, largest and closest first; tuples of `TextCopy`, the longest text of a group first.

    Attributes:
        groups: the groups.
        n_texts: texts that were compared.
        encoder: name of the encoder that made the codes.
        radius: bits in which a copy's code may differ from that of its group's best text.
        reason: why this radius.
        n_broken: rows that could not be read.
        broken: why, of the first of them.
    """

    groups: tuple[tuple[TextCopy, ...], ...]
    n_texts: int
    encoder: str
    radius: int
    reason: str
    n_broken: int
    broken: tuple[str, ...]

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.groups)

    def __getitem__(self, number: Any) -> Any:
        """Return a group."""
        return self.groups[number]

    def __iter__(self) -> Iterator[tuple[TextCopy, ...]]:
        """Yield the groups."""
        return iter(self.groups)

    def __repr__(self) -> str:
        """Return the numbers in a line."""
        unread = f", {self.n_broken:,} not readable" if self.n_broken else ""
        return (
            f"FoundTextCopies({counted(len(self), 'group')} with {self.n_grouped:,} of {self.n_texts:,} texts, "
            f"{self.encoder} within {self.radius} bits{unread})"
        )

    @property
    def n_grouped(self) -> int:
        """Texts in groups."""
        return sum(map(len, self.groups))
