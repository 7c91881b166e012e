"""Writing results on the standard output as tables, lines and JSON; all of it can go into a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import typer


@dataclass(frozen=True)
class Column:
    """A column of a table, with its heading; numbers are aligned to the right."""

    heading: str
    number: bool = False


def write_table(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, title: str | None = None) -> None:
    """Write a table: drawn on a terminal, in Markdown and unwrapped in a pipe."""
    if title is not None:
        typer.echo(f"{title}\n")
    if sys.stdout.isatty():
        _draw_table(columns, rows)
    else:
        typer.echo("\n".join(_markdown(columns, list(rows))))


def _draw_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column.heading, justify="right" if column.number else "left")
    for row in rows:
        # As text, so that a name with brackets is not taken for a style.
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)


def _markdown(columns: Sequence[Column], rows: list[Sequence[str]]) -> Iterator[str]:
    cells = [[column.heading for column in columns], *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    rule = [
        f"{'-' * (width - 1)}{':' if column.number else '-'}" for column, width in zip(columns, widths, strict=True)
    ]
    for row in (cells[0], rule, *cells[1:]):
        aligned = [
            cell.rjust(width) if column.number else cell.ljust(width)
            for cell, column, width in zip(row, columns, widths, strict=True)
        ]
        yield f"| {' | '.join(aligned)} |"


def write_json(value: Any) -> None:
    """Write a value as one line of JSON."""
    typer.echo(as_line(value))


def as_line(value: Any) -> str:
    """Return a value as one line of JSON."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        # A file's name that is no UTF-8 has halves of characters, which can only be escaped.
        return json.dumps(value, allow_nan=False)
    return line


def printable(value: object) -> str:
    """Return a value as text of one line; control characters are quoted, so that a terminal does not obey them."""
    text = str(value)
    return text if text.isprintable() else json.dumps(text)


def note(line: str) -> None:
    """Write a line on the standard error, where it disturbs no pipe."""
    typer.echo(line, err=True)
