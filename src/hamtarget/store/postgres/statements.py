"""SQL that finds every row within a radius: one look-up for each substring, and each row once.

A code within `radius` bits of another differs from it, in one of its substrings at least, by no more than that
substring's share of the radius. So for each substring, the B-tree on (substring, code, row) is asked for the query's
own value and for those that a few flipped bits make of it. All that is needed for the distance is in the B-tree. A row
that several substrings lead to is reported by the first of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from math import comb

from hamtarget.codes import substring_bounds
from hamtarget.store.items.code_rows import ITEM_ROW_SQL
from hamtarget.store.postgres.schema import substring_of, substring_type

# A look-up takes about as long as reading so many rows in order.
_LOOK_UP_COST = 8
# Sending all rows takes the server as long as comparing them with so many queries.
FEW_QUERIES = 8
# While the server compares a row with one query, so many are compared where it was sent to.
_COMPARED_HERE = 50

_ITEM_ROW = ITEM_ROW_SQL.format("h.row")
_NAMES = f"LEFT JOIN names m ON m.row = {_ITEM_ROW}"


def shares_of(radius: int, substrings: int) -> list[int]:
    """Return how many bits each substring may differ in, for those that have to be looked at.

    If each of the first `extra + 1` differed by more than `share`, and each other by `share` or more, the whole would
    differ by more than the radius.
    """
    share, extra = divmod(radius, substrings)
    shares = [share] * (extra + 1) + [share - 1] * (substrings - extra - 1)
    return [share for share in shares if share >= 0]


@lru_cache(maxsize=256)
def look_ups(n_bits: int, substrings: int, radius: int) -> int:
    """Return how many values of substrings a search for one code asks for."""
    bounds = substring_bounds(n_bits, substrings)
    shares = shares_of(radius, substrings)
    return sum(
        sum(comb(stop - start, flipped) for flipped in range(share + 1))
        for (start, stop), share in zip(bounds, shares, strict=False)
    )


def is_scan_faster(n_bits: int, substrings: int, radius: int, n_items: int, n_queries: int) -> bool:
    """Return True if reading every row takes no longer than the look-ups of all queries.

    Up to `FEW_QUERIES`, the server compares all rows with each. More are compared where they are asked for.
    """
    readings = min(n_queries, FEW_QUERIES + n_queries / _COMPARED_HERE)
    return n_queries * look_ups(n_bits, substrings, radius) * _LOOK_UP_COST >= readings * n_items


def flips_of(n_bits: int, substrings: int, radius: int) -> list[str]:
    """Return, as arrays of PostgreSQL, what to flip in each substring that may differ in one bit or more."""
    bounds = substring_bounds(n_bits, substrings)
    shares = shares_of(radius, substrings)
    return [_flips(stop - start, share) for (start, stop), share in zip(bounds, shares, strict=False) if share]


@lru_cache(maxsize=64)
def _flips(length: int, share: int) -> str:
    return flips_as_array(
        [
            sum(1 << place for place in places)
            for flipped in range(share + 1)
            for places in combinations(range(length), flipped)
        ],
        length,
    )


def flips_as_array(masks: Sequence[int], length: int) -> str:
    """Return flips of a substring as an array of PostgreSQL; the first of its `length` bits is a mask's highest."""
    if substring_type(length).startswith("bit"):
        return "{" + ",".join(f"{mask:0{length}b}" for mask in masks) + "}"
    # The highest bit of an integer is its sign.
    sign = {"integer": 1 << 31, "bigint": 1 << 63}[substring_type(length)]
    return "{" + ",".join(str(mask - 2 * sign if mask >= sign else mask) for mask in masks) + "}"


@lru_cache(maxsize=256)
def one_sql(n_bits: int, substrings: int, radius: int, *, most: int, has_names: bool) -> str:
    """Return SQL for columns row, distance and perhaps name of the rows near one code, which is $1.

    For a radius below the number of substrings: none is looked up with flipped bits. At most `most` rows.
    """
    hits = _look_ups("$1", n_bits, substrings, radius, first=2) + f" LIMIT {most}"
    if not has_names:
        return hits
    return f"SELECT h.row, h.distance, m.name FROM ({hits}) h {_NAMES}"


@lru_cache(maxsize=256)
def radius_sql(
    n_bits: int, substrings: int, radius: int, *, by_scan: bool, condition: str | None, has_names: bool, is_sorted: bool
) -> str:
    """Return SQL for columns n (number of the query, from 1), and of its hits: rows, distances and perhaps names.

    Rows and distances are bytes, 8 of each hit, or NULL. Parameters: $1 the array of the queries' codes, $2 most hits
    of each query, which are its nearest if they are sorted, then `flips_of`, unless every row is read, then those of
    the condition: as of `where`, or of `where_item` if every row is read.
    """
    if by_scan:
        hits = f"""
            SELECT i.row, bit_count(i.code # q.code) AS distance FROM items i
            WHERE bit_count(i.code # q.code) <= {radius} AND {condition or "TRUE"}
        """
    else:
        hits = _passing(_look_ups("q.code", n_bits, substrings, radius, first=3), condition)
    hits = f"SELECT l.* FROM ({hits}) l {'ORDER BY l.distance, l.row' if is_sorted else ''} LIMIT $2::bigint"
    packed = _packed(hits, has_names)
    return f"SELECT q.n, p.* FROM {_queries(n_bits)} CROSS JOIN LATERAL (SELECT {packed}) p"


@lru_cache(maxsize=256)
def block_sql(condition: str | None) -> str:
    """Return SQL for columns last row, rows and codes of a block of items in the order of rows, as bytes or NULL.

    Parameters: $1 the first row that may be in it, $2 most rows, then those of the condition, as of `where_item`.
    """
    rows = (
        "SELECT i.row, i.code FROM items i "
        f"WHERE i.row >= $1::bigint AND {condition or 'TRUE'} ORDER BY i.row LIMIT $2::bigint"
    )
    return f"SELECT max(row), string_agg(int8send(row), ''), string_agg(bit_send(code), '') FROM ({rows}) b"


@lru_cache(maxsize=256)
def count_sql(n_bits: int, substrings: int, radius: int) -> str:
    """Return SQL for columns n (number of the query, from 1), and rows that its look-ups lead to, per substring.

    Parameters: $1 the array of the queries' codes, then `flips_of`.
    """
    counts = []
    n_parameters = 1
    for number, ((start, stop), share) in enumerate(
        zip(substring_bounds(n_bits, substrings), shares_of(radius, substrings), strict=False)
    ):
        wanted, tables = substring_of("q.code", start, stop), "items i"
        if share:
            n_parameters += 1
            tables += f" CROSS JOIN unnest(${n_parameters}::{substring_type(stop - start)}[]) AS f(flips)"
            wanted = f"({wanted} # f.flips)"
        counts.append(f"(SELECT count(*) FROM {tables} WHERE i.substring_{number} = {wanted})")
    return f"SELECT q.n, {' + '.join(counts)} FROM {_queries(n_bits)}"


def _queries(n_bits: int) -> str:
    # What unnest gives is packed, and would be unpacked for every row that it is compared with; what an operator gives
    # is not. OFFSET 0 keeps the planner from putting the operator there as well.
    unnested = f"unnest($1::bit({n_bits})[]) WITH ORDINALITY AS u(code, n)"
    return f"(SELECT code | code AS code, n FROM {unnested} OFFSET 0) q"


def _look_ups(code: str, n_bits: int, substrings: int, radius: int, *, first: int) -> str:
    """Return SQL for rows and distances of what is near a code; arrays of flips are parameters from $`first` on."""
    branches = []
    before: list[str] = []
    n_parameters = first - 1
    for number, ((start, stop), share) in enumerate(
        zip(substring_bounds(n_bits, substrings), shares_of(radius, substrings), strict=False)
    ):
        wanted = substring_of(code, start, stop)
        tables = "items i"
        if share:
            n_parameters += 1
            tables += f" CROSS JOIN unnest(${n_parameters}::{substring_type(stop - start)}[]) AS f(flips)"
            wanted = f"({wanted} # f.flips)"
        conditions = [f"i.substring_{number} = {wanted}", f"bit_count(i.code # {code}) <= {radius}", *before]
        branches.append(
            f"SELECT i.row, bit_count(i.code # {code}) AS distance FROM {tables} WHERE {' AND '.join(conditions)}"
        )
        # By the code, for the other substrings' columns are not in this index.
        before.append(f"bit_count(substring(i.code # {code} from {start + 1} for {stop - start})) > {share}")
    return " UNION ALL ".join(branches)


def _passing(hits: str, condition: str | None) -> str:
    if condition is None:
        return hits
    return f"SELECT h.* FROM ({hits}) h JOIN items p ON p.row = {_ITEM_ROW} WHERE {condition}"


def _packed(hits: str, has_names: bool) -> str:
    """Return SQL that packs all hits into one row: a row for each takes longer to send, and far longer to read."""
    columns = "string_agg(int8send(h.row), ''), string_agg(int8send(h.distance), '')"
    return f"{columns}, array_agg(m.name) FROM ({hits}) h {_NAMES}" if has_names else f"{columns} FROM ({hits}) h"
