"""SQL that finds every row within a radius: one look-up for each substring, and each row once.

A code within `radius` bits of another differs from it, in one of its substrings at least, by no more than that
substring's share of the radius. So for each substring, the B-tree on (substring, code, row) is asked for the query's
own value and for those that a few flipped bits make of it. All that is needed for the distance is in the B-tree. A row
that several substrings lead to is reported by the first of them.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import comb

from hamtarget.codes import substring_bounds
from hamtarget.store.postgres.schema import substring_of, substring_type

# A look-up takes about as long as reading so many rows in order.
_LOOK_UP_COST = 8


def shares_of(radius: int, substrings: int) -> list[int]:
    """How many bits each substring may differ in, for those that have to be looked at.

    If each of the first `extra + 1` differed by more than `share`, and each other by `share` or more, the whole would
    differ by more than the radius.
    """
    share, extra = divmod(radius, substrings)
    shares = [share] * (extra + 1) + [share - 1] * (substrings - extra - 1)
    return [share for share in shares if share >= 0]


@lru_cache(maxsize=256)
def look_ups(n_bits: int, substrings: int, radius: int) -> int:
    """How many values of substrings are asked for by a search for one code."""
    bounds = substring_bounds(n_bits, substrings)
    shares = shares_of(radius, substrings)
    return sum(
        sum(comb(stop - start, flipped) for flipped in range(share + 1))
        for (start, stop), share in zip(bounds, shares, strict=False)
    )


def is_scan_faster(n_bits: int, substrings: int, radius: int, n_items: int) -> bool:
    """Whether reading every row takes no longer than the look-ups."""
    return look_ups(n_bits, substrings, radius) * _LOOK_UP_COST >= n_items


def flips_of(n_bits: int, substrings: int, radius: int) -> list[str]:
    """Arrays of PostgreSQL: what to flip in each substring that may differ from the query's in one bit or more."""
    bounds = substring_bounds(n_bits, substrings)
    shares = shares_of(radius, substrings)
    return [_flips(stop - start, share) for (start, stop), share in zip(bounds, shares, strict=False) if share]


@lru_cache(maxsize=64)
def _flips(length: int, share: int) -> str:
    masks = (
        sum(1 << place for place in places)
        for flipped in range(share + 1)
        for places in combinations(range(length), flipped)
    )
    if substring_type(length).startswith("bit"):
        return "{" + ",".join(f"{mask:0{length}b}" for mask in masks) + "}"
    # The highest bit of an integer is its sign.
    sign = {"integer": 1 << 31, "bigint": 1 << 63}[substring_type(length)]
    return "{" + ",".join(str(mask - 2 * sign if mask >= sign else mask) for mask in masks) + "}"


@lru_cache(maxsize=256)
def radius_sql(
    n_bits: int, substrings: int, radius: int, *, one: bool, by_scan: bool, condition: str | None, has_names: bool
) -> str:
    """Columns n (number of the query, from 1), row, distance and, if asked for, name.

    Parameters: $1 the array of the queries' codes, or the code of the one query, $2 the radius, then `flips_of`, unless
    every row is read, then those of the condition on `fields`.
    """
    queries = f"(SELECT $1::bit({n_bits}) AS code, 1::bigint AS n) AS q" if one else _queries(n_bits)
    hits = _scan(queries) if by_scan else _look_ups(queries, n_bits, substrings, radius)
    if condition is not None:
        hits = f"SELECT h.n, h.row, h.distance FROM ({hits}) h JOIN items p ON p.row = h.row WHERE {condition}"
    return _with_names(hits) if has_names else hits


@lru_cache(maxsize=256)
def nearest_sql(n_bits: int, *, condition: str | None, has_names: bool) -> str:
    """The same for the nearest rows, by reading all of them.

    Parameters: $1 codes of the queries, $2 how many rows for each, then those of the condition.
    """
    hits = f"""
        SELECT q.n, h.row, h.distance FROM {_queries(n_bits)} CROSS JOIN LATERAL (
            SELECT i.row, bit_count(i.code # q.code) AS distance FROM items i WHERE {condition or "TRUE"}
            ORDER BY 2, 1 LIMIT $2::bigint
        ) h
    """
    return _with_names(hits) if has_names else hits


def _queries(n_bits: int) -> str:
    return f"unnest($1::bit({n_bits})[]) WITH ORDINALITY AS q(code, n)"


def _scan(queries: str) -> str:
    return f"""
        SELECT q.n, i.row, bit_count(i.code # q.code) AS distance
        FROM {queries} JOIN items i ON bit_count(i.code # q.code) <= $2::bigint
    """


def _look_ups(queries: str, n_bits: int, substrings: int, radius: int) -> str:
    bounds = substring_bounds(n_bits, substrings)
    branches = []
    before: list[str] = []
    n_parameters = 2
    for number, share in enumerate(shares_of(radius, substrings)):
        start, stop = bounds[number]
        wanted = substring_of("q.code", start, stop)
        tables = queries
        if share:
            n_parameters += 1
            tables += f" CROSS JOIN unnest(${n_parameters}::{substring_type(stop - start)}[]) AS f(flips)"
            wanted = f"({wanted} # f.flips)"
        conditions = ["bit_count(i.code # q.code) <= $2::bigint", *before]
        branches.append(f"""
            SELECT q.n, i.row, bit_count(i.code # q.code) AS distance
            FROM {tables} JOIN items i ON i.substring_{number} = {wanted}
            WHERE {" AND ".join(conditions)}
        """)
        # By the code, for the other substrings' columns are not in this index.
        before.append(f"bit_count(substring(i.code # q.code from {start + 1} for {stop - start})) > {share}")
    return " UNION ALL ".join(branches)


def _with_names(hits: str) -> str:
    return f"SELECT h.n, h.row, h.distance, m.name FROM ({hits}) h LEFT JOIN names m ON m.row = h.row"
