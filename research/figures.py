"""Compare the figures in the documentation with the result files that they come from, or bring them up to date.

    python -m research.figures             # lists figures that differ from their files
    python -m research.figures --update    # writes the figures of the files into the pages
    python -m research.figures --unmarked  # lists numbers that look measured and name no source

A figure names its source in a comment that readers of the page do not see. One number in a sentence:

    5,921<!-- = service_small.json#/medians/this, 2 processes/requests_per_second --> requests a second

A table, in the comment before it; `{row}` and `{column}` stand for what is listed below them, and `-` for rows and
columns that hold no figures. A cell with two figures has two columns, as in `recall ; seconds`:

    <!-- = service_small.json#/medians/{row}/{column}
    row: other, 1 process | this, 1 process
    column: - | requests_per_second | p99_ms
    -->

A source is a file in `research/results`, `#`, and a JSON pointer. `rows=1000000&n_bits=64` in it is the element of a
list that has these values, `mean rows=1000000` the mean over all that have them, as over seeds, and `median rows=...`
their median. Of a list of numbers the median counts. `A / B` is the ratio of two sources, `A x 1000` a
multiple. Some files have summaries beside their content (`research.figure_summaries`): those of `neighbors` the fastest
setting of a library, `fastest/10 of 10, .95/faiss/queries_per_second`, or of all but ours, `fastest/.../other/...`;
`table1.json` means and standard deviations over seeds, `means/whole/HDT/16/database/map` and `deviations/...`.

A figure is right if it is its source, rounded to the digits that it shows: 17,800 stands for 17,763, with three digits
at least.

A number looks measured if it has decimals, or if a unit of time, speed, size or share follows it; not in code or in the
target of a link. Settings, promises and quotations look so, too. They are told apart by a comment right behind the
number, or around a part of the page:

    a request may take 30 s<!-- given -->
    <!-- given: limits that the service sets -->
    ...
    <!-- /given -->
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cache
from pathlib import Path
from typing import Any

from research.figure_summaries import summaries_of

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "research" / "results"

# Digits with or without commas, and a point; perhaps without a digit before it, as in .95.
_NUMBER = re.compile(r"(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)|\d{1,3}(?:,\d{3})+|\d+")
_IN_TEXT = re.compile(rf"(?P<number>{_NUMBER.pattern})(?P<between>[^\d<|\n]{{0,12}})<!-- = (?P<source>[^\n]+?) -->")
_OF_TABLE = re.compile(
    r"<!-- = (?P<source>[^\n]+)\nrow: (?P<rows>[^\n]+)\ncolumn: (?P<columns>[^\n]+)\n-->\n+(?P<table>(?:\|[^\n]*\n)+)"
)
_MULTIPLE = re.compile(r"(?P<what>.+) x (?P<times>[\d.e-]+)")
_SEVERAL = re.compile(r"(?P<summary>mean|median) (?P<which>.+=.*)")
_SUMMARIES = {"mean": statistics.mean, "median": statistics.median}
_SKIPPED = "-"
# What cannot be a figure.
_NO_FIGURES = re.compile(
    "|".join(
        (
            r"^```.*?^```|^ {4}[^\n]*|`[^`\n]*`",  # code
            r"<!-- given: .*?<!-- /given -->",
            r"(?:(?:\d[\d,]*)?\.)?\d[\d,]*[^\d<|\n]{0,20}<!-- given -->",
            r"\]\([^)]*\)|<!--.*?-->",  # targets of links, comments
        )
    ),
    re.MULTILINE | re.DOTALL,
)
_UNITS = (
    r"%|x\b(?! ?\d)|times\b|points?\b|[nmu]?s\b|(?:milli|micro)?seconds?\b|minutes?\b|hours?\b|[KMG]i?B\b|bytes a row\b"
    r"|(?:[a-zA-Z-]+ ){0,2}(?:a second\b|[a-zA-Z]+/s\b)"
)
_LOOKS_MEASURED = re.compile(rf"(?<![\w.,#^-])(?:(?:\d[\d,]*)?\.\d+(?![\w.]*\d)|(?:\d[\d,]*)?\d\s?(?:{_UNITS}))")
# Zeros at the end of a whole number count as digits if there are no more than so many.
_FEWEST_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Figure:
    """A number on a page, and what its source says."""

    page: Path
    line: int
    shown: str
    source: str
    expected: str

    @property
    def is_right(self) -> bool:
        """Return True if the page shows what the source says."""
        return self.shown == self.expected

    def __str__(self) -> str:
        place = f"{self.page.relative_to(ROOT)}:{self.line}"
        return f"{place}: {self.shown} is shown, and {self.source} has {self.expected}"


def pages() -> list[Path]:
    """Return the pages that may hold figures."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def value_of(source: str) -> float:
    """Return the number that a source names.

    Raises:
        KeyError: there is no such file, or nothing of that name in it.
    """
    if " / " in source:
        above, below = source.split(" / ", 1)
        return value_of(above) / value_of(below)
    multiple = _MULTIPLE.fullmatch(source)
    if multiple is not None:
        return value_of(multiple["what"]) * float(multiple["times"])
    file, _, pointer = source.partition("#")
    return _number_at(_content(file), pointer.removeprefix("/").split("/"), source)


def _number_at(found: Any, pointer: list[str], source: str) -> float:
    for place, part in enumerate(pointer):
        key = part.replace("~1", "/").replace("~0", "~")
        several = _SEVERAL.fullmatch(key)
        try:
            if several is not None and isinstance(found, list):
                numbers = [
                    _number_at(each, pointer[place + 1 :], source) for each in _matching(found, several["which"])
                ]
                return float(_SUMMARIES[several["summary"]](numbers))
            found = _element(found, key)
        except (KeyError, IndexError, ValueError, TypeError):
            has = sorted(found) if isinstance(found, dict) else type(found).__name__
            raise KeyError(f"{source}: there is no {key!r}; there is {has}") from None
    if isinstance(found, list):
        found = statistics.median(found)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise KeyError(f"{source} is {found!r}; expected a number or a list of numbers")
    return float(found)


def written_like(shown: str, value: float) -> str:
    """Return a number with as many digits as another one shows.

    Example:
        >>> written_like(".95", 0.9512), written_like("5,921", 12345.6), written_like("17,800", 17763)
        ('.95', '12,346', '17,800')
    """
    whole, _, decimals = shown.replace(",", "").partition(".")
    zeros = 0 if decimals else min(len(whole) - len(whole.rstrip("0")), max(0, len(whole) - _FEWEST_DIGITS))
    unit = Decimal(1).scaleb(zeros or -len(decimals))
    rounded = (Decimal(repr(value)) / unit).quantize(Decimal(1), rounding=ROUND_HALF_EVEN) * unit
    text = f"{rounded:,f}"
    return text.removeprefix("0") if shown.startswith(".") and text.startswith("0.") else text


@dataclass(frozen=True, slots=True)
class Unmarked:
    """A number on a page that looks measured and names no source."""

    page: Path
    line: int
    shown: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}: {self.shown} looks measured, and names no source"


def figures_of(page: Path) -> list[Figure]:
    """Return all figures of a page that name their source."""
    found: list[Figure] = []

    def see(figure: Figure) -> str:
        found.append(figure)
        return figure.shown

    _rewritten(page, page.read_text(), see)
    return found


def updated(page: Path) -> str:
    """Return the text of a page with the figures of its sources."""
    return _rewritten(page, page.read_text(), lambda figure: figure.expected)


def unmarked_of(page: Path) -> list[Unmarked]:
    """Return all numbers of a page that look measured and name no source."""
    text = _rewritten(page, page.read_text(), lambda figure: "_" * len(figure.shown), _blank)
    text = _NO_FIGURES.sub(lambda match: _blank(match.group()), text)
    return [
        Unmarked(page, text.count("\n", 0, match.start()) + 1, " ".join(match.group().split()))
        for match in _LOOKS_MEASURED.finditer(text)
    ]


def _blank(text: str) -> str:
    # Line ends stay, so that lines can be counted.
    return re.sub(r"[^\n]", " ", text)


def _rewritten(
    page: Path, text: str, write: Callable[[Figure], str], write_skipped: Callable[[str], str] = lambda cell: cell
) -> str:
    def expected(shown: str, source: str, start: int) -> str:
        line = text.count("\n", 0, start) + 1
        return write(Figure(page, line, shown, source, written_like(shown, value_of(source))))

    def in_text(match: re.Match[str]) -> str:
        number = expected(match["number"], match["source"], match.start())
        return f"{number}{match['between']}<!-- = {match['source']} -->"

    def in_cell(cell: str, sources: list[str], start: int) -> str:
        left = iter(sources)
        return _NUMBER.sub(lambda number: expected(number.group(), next(left), start), cell, count=len(sources))

    def in_table(match: re.Match[str]) -> str:
        head = match.group(0)[: match.start("table") - match.start()]
        lines = match["table"].splitlines()
        start = match.start("table") + sum(len(line) + 1 for line in lines[:2])
        filled = lines[:2]
        for line, row in zip(lines[2:], _listed(match["rows"], len(lines) - 2), strict=True):
            cells = line.strip().strip("|").split("|")
            for place, columns in enumerate(_listed(match["columns"], len(cells))):
                if _SKIPPED in (row, columns):
                    cells[place] = write_skipped(cells[place])
                else:
                    sources = [
                        match["source"].replace("{column}", column.strip()).replace("{row}", row)
                        for column in columns.split(";")
                    ]
                    cells[place] = in_cell(cells[place], sources, start)
            filled.append(f"|{'|'.join(cells)}|")
            start += len(line) + 1
        return head + "\n".join(filled) + "\n"

    text = _OF_TABLE.sub(in_table, text)
    return _IN_TEXT.sub(in_text, text)


def _element(found: Any, key: str) -> Any:
    """Return what a part of a pointer names.

    Raises:
        LookupError, ValueError, TypeError: there is none, or not just one.
    """
    if not isinstance(found, list):
        return found[key]
    if "=" not in key:
        return found[int(key)]
    (only,) = _matching(found, key)
    return only


def _matching(found: list[Any], conditions: str) -> list[Any]:
    wanted = [condition.split("=", 1) for condition in conditions.split("&")]
    return [each for each in found if all(str(each[name]) == value for name, value in wanted)]


def _listed(text: str, count: int) -> list[str]:
    names = [name.strip() for name in text.split("|")]
    if len(names) != count:
        raise ValueError(f"{len(names)} names are listed, and the table has {count}: {text}")
    return names


@cache
def _content(file: str) -> Any:
    path = RESULTS / file
    if not path.is_file():
        raise KeyError(f"there is no file {file} in research/results")
    content = json.loads(path.read_text())
    return content | summaries if (summaries := summaries_of(file, content)) else content


def main() -> None:
    """Compare, or update."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, help="pages (default: README.md and all of docs)")
    parser.add_argument("--update", action="store_true", help="write the figures of the sources into the pages")
    parser.add_argument("--unmarked", action="store_true", help="list numbers that look measured and name no source")
    arguments = parser.parse_args()
    wrong = 0
    for page in [path.resolve() for path in arguments.pages] or pages():
        if arguments.unmarked:
            for number in unmarked_of(page):
                print(number)
            continue
        for figure in _wrong(page):
            print(figure)
            wrong += 1
        if arguments.update:
            page.write_text(updated(page))
    if wrong and not arguments.update:
        sys.exit(f"{wrong} figures differ from their sources; python -m research.figures --update writes them")


def _wrong(page: Path) -> Iterator[Figure]:
    return (figure for figure in figures_of(page) if not figure.is_right)


if __name__ == "__main__":
    main()
