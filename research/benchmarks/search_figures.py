"""Summarise the results of search_speed.py: each figure beside the target that was set before it was measured.

A target is a speed (at least so many times a peer's) or a size (at most so many bytes). It was written down before the
first run, so that the summary shows where the index falls short, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

MULTI = "hamtarget MultiIndex"
FLAT = "hamtarget FlatIndex"
PEER_FLAT = "faiss IndexBinaryFlat"
PEER_MULTI_HASH = "faiss IndexBinaryMultiHash"
_SETS = ("L", "S", "H")
_PLAIN_HASH = "3x21"

Results = dict[str, Any]


def figures(results: Results) -> list[dict[str, Any]]:
    """Return every figure as a dictionary: figure, set, target, value, met; the last two are None if not measured."""
    rows = [
        _at_least(
            f"radius search against {PEER_MULTI_HASH} {_PLAIN_HASH}", name, target, "x", _plain_ratio(results, name)
        )
        for name, target in zip(_SETS, (20, 40, 40), strict=True)
    ]
    rows += [
        _at_least("radius search against the best exact faiss index", name, target, "x", _best_ratio(results, name))
        for name, target in zip(_SETS, (20, 20, 8), strict=True)
    ]
    scan = [_ratio(_rows(results, name, "radius_search"), _is(FLAT), _is(PEER_FLAT)) for name in _SETS]
    rows.append(_at_least(f"linear scan against {PEER_FLAT}", "worst of L, S, H", 5, "x", _worst(scan, min)))
    nearest = [_ratio(_rows(results, name, "nearest"), _is(MULTI), _is(PEER_FLAT)) for name in _SETS]
    rows.append(_at_least(f"exact nearest k=100 against {PEER_FLAT}", "worst of L, S, H", 4, "x", _worst(nearest, min)))
    build = [_build_ratio(results, name) for name in _SETS]
    rows.append(_at_least(f"build against {PEER_MULTI_HASH}", "worst of L, S, H", 4, "x", _worst(build, min)))
    for method, kind in ((MULTI, "row numbers"), (f"{MULTI} random ids", "random 63-bit numbers")):
        memory = [row["bytes_a_row"] for row in results.get("memory", []) if row["method"] == method]
        rows.append(_at_most(f"memory a row, ids are {kind}", "worst of L, S, H", 48, "bytes", _worst(memory, max)))
    rows.append(_at_least("queries a second at 10 times the rows", "L x 10", 1 / 3, "of L", _growth(results)))
    for name, target in (("128 bits", 8), ("256 bits", 5)):
        value = _ratio(_rows(results, name, "radius_search"), _is(MULTI), _is(PEER_MULTI_HASH))
        rows.append(_at_least(f"radius search against {PEER_MULTI_HASH}, best setting", name, target, "x", value))
    one = results.get("one_query", {}).get(MULTI, {}).get("median_us")
    rows.append(_at_most("one query at a time, median", "S", 8, "us", one))
    return rows


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Return the figures as lines of text."""
    lines = [f"{'figure':<66} {'set':<17} {'target':>14} {'value':>9}  met"]
    for row in rows:
        sign = ">=" if row["better"] == "more" else "<="
        wanted = f"{sign} {row['target']:.3g} {row['unit']}"
        value = "-" if row["value"] is None else f"{row['value']:.3g}"
        met = {None: "not measured", True: "yes", False: "NO"}[row["met"]]
        lines.append(f"{row['figure']:<66} {row['set']:<17} {wanted:>14} {value:>9}  {met}")
    return "\n".join(lines)


def _at_least(figure: str, of: str, target: float, unit: str, value: float | None) -> dict[str, Any]:
    met = None if value is None else value >= target
    return {"figure": figure, "set": of, "target": target, "better": "more", "unit": unit, "value": value, "met": met}


def _at_most(figure: str, of: str, target: float, unit: str, value: float | None) -> dict[str, Any]:
    met = None if value is None else value <= target
    return {"figure": figure, "set": of, "target": target, "better": "less", "unit": unit, "value": value, "met": met}


def _rows(results: Results, name: str, kind: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = results["sets"].get(name, {}).get(kind, {}).get("rows", [])
    return rows


def _is(name: str) -> Callable[[dict[str, Any]], bool]:
    return lambda row: bool(row["method"] == name)


def _speed(rows: list[dict[str, Any]], wanted: Callable[[dict[str, Any]], bool]) -> float | None:
    """Return the most queries per second of the wanted rows. Our own row with random ids does not count."""
    speeds = [row["queries_per_second"] for row in rows if wanted(row) and row["setting"] != "random ids"]
    return max(speeds, default=None)


def _ratio(
    rows: list[dict[str, Any]], ours: Callable[[dict[str, Any]], bool], theirs: Callable[[dict[str, Any]], bool]
) -> float | None:
    over, under = _speed(rows, ours), _speed(rows, theirs)
    return over / under if over is not None and under is not None else None


def _plain_ratio(results: Results, name: str) -> float | None:
    def plain(row: dict[str, Any]) -> bool:
        return bool(row["method"] == PEER_MULTI_HASH and row["setting"] == _PLAIN_HASH)

    return _ratio(_rows(results, name, "radius_search"), _is(MULTI), plain)


def _best_ratio(results: Results, name: str) -> float | None:
    def faiss(row: dict[str, Any]) -> bool:
        return row["exact"] and str(row["method"]).startswith("faiss")

    return _ratio(_rows(results, name, "radius_search"), _is(MULTI), faiss)


def _build_ratio(results: Results, name: str) -> float | None:
    speeds = {row["method"]: row["rows_per_second"] for row in results["sets"].get(name, {}).get("build", [])}
    if MULTI not in speeds or PEER_MULTI_HASH not in speeds:
        return None
    return float(speeds[MULTI] / speeds[PEER_MULTI_HASH])


def _growth(results: Results) -> float | None:
    speeds = results.get("growth", {})
    if not {"L", "L x 10"} <= speeds.keys():
        return None
    return float(speeds["L x 10"]["queries_per_second"] / speeds["L"]["queries_per_second"])


def _worst(values: Iterable[float | None], pick: Callable[[list[float]], float]) -> float | None:
    found = [value for value in values if value is not None]
    return pick(found) if found else None
