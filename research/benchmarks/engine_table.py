"""Write the results of engine_peers.py as the part of docs/search-benchmark.md that shows them.

Each table follows a comment that names the places of its figures in the result file, for `research.figures`.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from research.figures import written_like

SETS = ("L", "S", "H", "uniform 2", "uniform 31", "pHash 4", "pHash 8", "dHash 4", "PDQ 31")
"""The sets in the order of the page; a set of words and a number is searched within that many bits."""

# A place in the result, the heading of its column, and how its figures are written.
_COLUMNS = (
    ("rows", "rows", "0"),
    ("recall", "recall", "0.000"),
    ("queries_per_second", "batch, q/s", "0"),
    ("one_us", "one code, us", "0.0"),
    ("first_of_turn_us", "first of a turn, us", "0"),
    ("own_codes_per_second", "own codes, rows/s", "0"),
    ("build_seconds", "build, s", "0.0"),
    ("bytes_a_row", "bytes/row", "0"),
)
_LOADS = ("lowest", "highest")
_BEGIN, _END = "<!-- tables of engine_peers -->\n", "<!-- /tables of engine_peers -->\n"


def table(results: dict[str, Any], file: str) -> str:
    """Return the results as Markdown: a table for each set, one of all pairs, and how they were measured.

    Args:
        results: content of the result file.
        file: its path below research/results.
    """
    parts = [_of_set(name, results["sets"][name], file) for name in SETS if name in results["sets"]]
    joins = {name: results["joins"][name] for name in SETS if results.get("joins", {}).get(name)}
    if joins:
        parts.append(_of_joins(joins, file))
    if "provenance" in results:
        parts.append(_conditions(results, file))
    return "\n\n".join(parts)


def in_page(page: str, tables: str) -> str:
    """Return the text of a page with these tables instead of those that it has between its two comments.

    Raises:
        ValueError: the page does not have the comments.
    """
    if page.count(_BEGIN) != 1 or page.count(_END) != 1:
        raise ValueError(
            f"the page has no place for the tables; expected the lines {_BEGIN.strip()} and {_END.strip()}"
        )
    before, _, rest = page.partition(_BEGIN)
    return f"{before}{_BEGIN}\n{tables}\n\n{_END}{rest.partition(_END)[2]}"


def _of_set(name: str, found: dict[str, Any], file: str) -> str:
    # Speeds with fewer rows do not compare with the others.
    order = sorted(found["peers"], key=lambda peer: _rank(found["peers"][peer]))
    lines = [
        f"**{name}**: {found['rows']:,} x {found['n_bits']} bits, within {found['radius']}",
        "",
        f"<!-- = {file}#/sets/{name}/peers/{{row}}/{{column}}",
        f"row: {' | '.join(order)}",
        f"column: {' | '.join(['-', *(place for place, _, _ in _COLUMNS)])}",
        "-->",
        "",
        f"| {' | '.join(['library', *(heading for _, heading, _ in _COLUMNS)])} |",
        f"|{(len(_COLUMNS) + 1) * '---|'}",
    ]
    for peer in order:
        row = found["peers"][peer]
        cells = [written_like(digits, row[place]) for place, _, digits in _COLUMNS]
        library = f"{peer} {row['setting']}".rstrip()
        lines.append(f"| {' | '.join([library, *cells])} |")
    if found["skipped"]:
        reasons = "; ".join(f"{peer}, {why}" for peer, why in found["skipped"].items())
        lines += ["", "<!-- given: reasons -->", "", f"Left out of {name}: {reasons}.", "", "<!-- /given -->"]
    return "\n".join(lines)


def _rank(row: dict[str, Any]) -> tuple[int, float]:
    return -row["rows"], -row["queries_per_second"]


def _of_joins(joins: dict[str, Any], file: str) -> str:
    rows = [
        (f"{name}/{n_rows}", found[n_rows]) for name, found in joins.items() for n_rows in sorted(found, key=int)[::-1]
    ]
    # What nobody found has no figures.
    rows = [(place, each) for place, each in rows if each["libraries"]]
    libraries = sorted({name for _, each in rows for name in [*each["libraries"], *each["skipped"]]}, key=_ours_first)
    places, headings = ["-", "radius", "rows", "found/pairs"], ["set", "within", "rows", "pairs"]
    for name in libraries:
        places += [f"libraries/{name}/seconds", f"libraries/{name}/peak_gb"]
        headings += [f"{name}, s", "memory, GB"]
    lines = [
        "**All pairs of a set**, each once",
        "",
        f"<!-- = {file}#/joins/{{row}}/{{column}}",
        f"row: {' | '.join(place for place, _ in rows)}",
        f"column: {' | '.join(places)}",
        "-->",
        "",
        f"| {' | '.join(headings)} |",
        f"|{len(headings) * '---|'}",
    ]
    for place, each in rows:
        cells = [place.split("/")[0], str(each["radius"]), f"{each['rows']:,}", f"{each['found']['pairs']:,}"]
        for name in libraries:
            cells += _cells_of_join(each, name)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _ours_first(name: str) -> tuple[bool, str]:
    return not name.startswith("hamtarget"), name


def _cells_of_join(each: dict[str, Any], name: str) -> list[str]:
    if name not in each["libraries"]:
        return [_short(each["skipped"].get(name, "not asked")), ""]
    row = each["libraries"][name]
    seconds = median(row["seconds"])
    shown = written_like("0.00" if seconds < 10 else "0.0", seconds)
    function = f" (`{row['setting']}`)" if row["setting"] else ""
    return [shown + function, written_like("0.0", row["peak_gb"])]


def _short(reason: str) -> str:
    """Return a reason in words alone: digits in the cell would be taken for a figure."""
    for part, short in (
        ("memory", "out of memory"),
        ("took more than", "too slow"),
        ("not installed", "not installed"),
    ):
        if part in reason:
            return short
    return "failed"


def _conditions(results: dict[str, Any], file: str) -> str:
    run = results["provenance"]
    machine = run["machine"]
    text = f"Commit {run['commit']}, one thread on a machine with {machine['cores']} cores ({machine['cpu']})"
    if "turns" in results:
        text += f", {results['turns']} turns"
    if "load" in results:
        lowest, highest = (_cited(results["load"][which], "0.0", f"{file}#/load/{which}") for which in _LOADS)
        text += f". The load of the machine was {lowest} to {highest} at the beginning of the turns"
    lines = [f"{text}."]
    if "libraries" in results:
        versions = ", ".join(f"{name} {version}" for name, version in results["libraries"].items())
        lines += ["", "<!-- given: versions -->", "", f"Versions: {versions}.", "", "<!-- /given -->"]
    return "\n".join(lines)


def _cited(value: float, digits: str, source: str) -> str:
    return f"{written_like(digits, value)}<!-- = {source} -->"
