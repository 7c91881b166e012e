"""What commands write on the standard output: tables, lines and JSON; all of it can go into a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import typer

# Where no terminal tells its width, nothing is wrapped.
_WIDE = 10_000


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, and whether it holds numbers."""

    heading: str
    number: bool = False


def write_table(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, title: str | None = None) -> None:
    """Write a table: drawn on a terminal, in Markdown and unwrapped in a pipe."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout.isatty()
    table = Table(box=box.SIMPLE_HEAD if terminal else box.MARKDOWN)
    for column in columns:
        table.add_column(column.heading, justify="right" if column.number else "left", no_wrap=not terminal)
    for row in rows:
        # As text, lest a name with brackets be taken for a style.
        table.add_row(*map(Text, row))
    if title is not None:
        typer.echo(f"{title}\n")
    Console(file=sys.stdout, width=None if terminal else _WIDE, highlight=False).print(table)


def write_json(value: Any) -> None:
    """Write a value as one line of JSON."""
    typer.echo(as_line(value))


def as_line(value: Any) -> str:
    """A value as one line of JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def printable(value: object) -> str:
    """`value` as text of one line, without what a terminal would obey."""
    text = str(value)
    return text if text.isprintable() else json.dumps(text)


def note(line: str) -> None:
    """Write a line for people on the standard error, where it disturbs no pipe."""
    typer.echo(line, err=True)
