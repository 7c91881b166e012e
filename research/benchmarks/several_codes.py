"""Time `Store.match` among items of 4 codes each, beside searches for the same codes among as many plain items.

    python -m research.benchmarks.several_codes --items 1000000 --out research/results/several_codes.json

Two stores hold the same codes of 256 bits: one as items of 4 codes, one as items of one code each. A query is the 4
codes of an item, each with 0 to 31 flipped bits; or 4 codes far from everything; or the codes of an item of which there
are 100 copies. What is compared: `match` for 4 codes and at least 3 of them; and in the plain store `search_batch` for
the 4 codes, or 4 calls of `search`. Each query is asked once of each store, so that none finds the rows or the names of
the other's in memory: every second query by `search_batch`, and the others by `search`. Times are CPU times of the
process. Answers are checked: the item must be found by all 4 of its codes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hamtarget.codes import Codes
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.store import Store
from research.benchmarks.wide_look_ups import N_BITS, RADIUS, flipped

N_CODES = 4
AT_LEAST = 3
_COPIES = 100
_AT_ONCE = 100_000


def fill(folder: Path, codes: Codes, names: str) -> tuple[Store, Store, dict[str, float]]:
    """Return a store of items with several codes, one of the same codes as items, and the seconds that filling took."""
    seconds = {}
    stores = []
    n_items = len(codes)
    for kind, rows in (("items", codes), ("plain", codes.reshape(-1, N_BITS // 8))):
        store = Store.create(folder / kind, n_bits=N_BITS, radius=RADIUS, durability="os")
        began = time.perf_counter()
        step = _AT_ONCE if kind == "items" else _AT_ONCE * N_CODES
        for start in range(0, len(rows), step):
            numbers = range(start, min(start + step, len(rows)))
            ids = [f"{number}" for number in numbers] if names == "strings" else list(numbers)
            store.put_rows(ids, codes=rows[start : start + step])
        store.compact()
        seconds[f"fill_{kind}_seconds"] = time.perf_counter() - began
        stores.append(store)
    print(f"{n_items:,} items of {N_CODES} codes: filled in {seconds}", flush=True)
    return stores[0], stores[1], seconds


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a call, and its CPU time in microseconds."""
    began = time.process_time()
    result = call()
    return result, 1e6 * (time.process_time() - began)


def _batch(store: Store, codes: Codes) -> list[Any]:
    return list(store.search_batch(codes=codes))


def _one_by_one(store: Store, codes: Codes) -> list[Any]:
    return [store.search(code=code) for code in codes]


def measure(items: Store, plain: Store, queries: Codes, expected: list[Any] | None) -> dict[str, Any]:
    """Return medians and means for queries, (queries, codes, bytes), and their ratios."""
    took: dict[str, list[float]] = {"match": [], "search_batch": [], "search": []}
    n_hits = n_matches = 0
    for number, codes in enumerate(queries):
        is_batch = number % 2 == 0
        hits, took_plain = timed(partial(_batch if is_batch else _one_by_one, plain, codes))
        matches, took_match = timed(partial(items.match, codes=codes, at_least=AT_LEAST))
        took["search_batch" if is_batch else "search"].append(took_plain)
        took["match"].append(took_match)
        n_hits += sum(map(len, hits))
        n_matches += len(matches)
        if expected is not None:
            found = {match.id: match for match in matches}[expected[number]]
            if (found.n_query_matched, found.n_item_codes) != (N_CODES, N_CODES):
                raise RuntimeError(f"item {expected[number]} was matched by {found}")
    result: dict[str, Any] = {
        "queries": len(queries),
        "hits_per_query": n_hits / len(queries),
        "matches_per_query": n_matches / len(queries),
    }
    for name, values in took.items():
        result[f"{name}_us"] = {"median": float(np.median(values)), "mean": float(np.mean(values))}
    for name in ("search_batch", "search"):
        ratio = result["match_us"]["median"] / result[f"{name}_us"]["median"]
        result[f"match_over_{name}"] = ratio
    return result


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000, help="items of 4 codes (default: %(default)s)")
    parser.add_argument("--queries", type=int, default=300, help="of each kind (default: %(default)s)")
    parser.add_argument(
        "--names", choices=("strings", "integers"), default="strings", help="ids (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=Path("research/results/several_codes.json"), help="JSON file")
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    codes = random.integers(0, 256, (arguments.items, N_CODES, N_BITS // 8), dtype=np.uint8)
    # The last items are copies of a few others, 100 of each.
    n_copied = max(1, min(arguments.queries, arguments.items // (10 * _COPIES)))
    copied = np.repeat(codes[:n_copied], _COPIES, axis=0)
    codes[-len(copied) :] = copied
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        items, plain, filled = fill(Path(folder), codes, arguments.names)
        chosen = random.choice(arguments.items - len(copied) - n_copied, arguments.queries, replace=False) + n_copied
        kinds: dict[str, tuple[Codes, list[Any] | None]] = {
            "one item": (
                flipped(codes[chosen].reshape(-1, N_BITS // 8), RADIUS, random).reshape(-1, N_CODES, N_BITS // 8),
                [f"{each}" if arguments.names == "strings" else int(each) for each in chosen],
            ),
            "nothing": (random.integers(0, 256, (arguments.queries, N_CODES, N_BITS // 8), dtype=np.uint8), None),
            "100 copies": (codes[:n_copied], None),
        }
        measure(items, plain, kinds["nothing"][0][:20], None)
        for kind, (queries, expected) in kinds.items():
            results[kind] = measure(items, plain, queries, expected)
            print(f"{kind}: {results[kind]}", flush=True)
        items.close()
        plain.close()
    settings = {"items": arguments.items, "codes": N_CODES, "n_bits": N_BITS, "radius": RADIUS, "at_least": AT_LEAST}
    write_json(
        arguments.out,
        {"provenance": provenance(seed=0), **settings, "ids": arguments.names, **filled, "queries": results},
    )


if __name__ == "__main__":
    main()
