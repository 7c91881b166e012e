"""Writes the stores in `stores/` that every later version must open: `python golden_stores.py stores/version_N`.

Run it once for each version of the schema, with the release that wrote it, and never again: a store that is there is
not rewritten. `closed` was closed as usual; the writer of `crashed` died, and its last changes are in the log.
"""

import shutil
import sys
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "stores"
KINDS = ("closed", "crashed")
N_ITEMS = 120
N_BITS, RADIUS, N_DIMS = 64, 2, 3


def expected():
    """Return what each store holds, (id, code, embedding, payload), and all that was put into it."""
    codes = np.arange(N_ITEMS * 8, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(17)
    codes = codes.astype(np.uint8).reshape(N_ITEMS, 8)
    embeddings = (np.arange(N_ITEMS * N_DIMS, dtype=np.float32) / 7).reshape(N_ITEMS, N_DIMS)
    ids = [number if number % 2 else f"näme {number}" for number in range(N_ITEMS)]
    payloads = [None if number % 5 == 0 else {"n": number, "text": "ü" * (number % 40)} for number in range(N_ITEMS)]
    kept = [number for number in range(N_ITEMS) if number not in (7, 8)]
    return [(ids[number], codes[number], embeddings[number], payloads[number]) for number in kept], (
        ids,
        codes,
        embeddings,
        payloads,
    )


def expected_several():
    """Return what a store of version 3 holds: codes, embeddings and payload by id."""
    _, (ids, codes, embeddings, payloads) = expected()
    # Items of 1 to 7 codes, which follow each other.
    ends = np.cumsum([number % 7 + 1 for number in range(len(ids))])
    items = {}
    for id, end, start, payload in zip(ids, ends, [0, *ends], payloads, strict=False):
        if end <= len(codes) and id not in (7, ids[8]):
            items[id] = (codes[start:end], embeddings[start:end], payload)
    return items


def several_items(chosen):
    """Return items to put, by their ids."""
    from hamtarget.store import Item

    return [
        Item(id, codes=codes, embeddings=embeddings, payload=payload)
        for id, (codes, embeddings, payload) in chosen.items()
    ]


def make_several(made):
    """Make a store of version 3, and return it open: items of several codes, replaced and deleted ones."""
    from hamtarget.search import Embeddings
    from hamtarget.store import Item, Store

    items = expected_several()
    first, last = (dict(list(items.items())[part]) for part in (slice(0, 12), slice(12, None)))
    store = Store.create(made, n_bits=N_BITS, radius=RADIUS, embeddings=Embeddings(N_DIMS))
    _, (ids, codes, embeddings, _) = expected()
    # One that has three codes at first, and one that is deleted.
    store.put([Item(ids[1], codes=codes[:3], embeddings=embeddings[:3], payload={"old": True})])
    store.put([Item("gone", codes=codes[:64], embeddings=embeddings[:64])])
    store.put(several_items(first))
    store.compact()
    store.put(several_items(last))
    store.delete(["gone"])
    return store


def main_several(target):
    for kind in KINDS:
        path = target / kind
        if path.exists():
            continue
        made = target / "made"
        with make_several(made):
            if kind == "crashed":
                shutil.copytree(made, path)
        if kind == "closed":
            shutil.copytree(made, path)
        shutil.rmtree(made)
        for name in ("lock", "store.db-shm"):
            (path / name).unlink(missing_ok=True)


def main(target):
    from hamtarget.search import Embeddings
    from hamtarget.store import Store

    _, (ids, codes, embeddings, payloads) = expected()
    for kind in KINDS:
        path = target / kind
        if path.exists():
            continue
        made = target / "made"
        with Store.create(made, n_bits=N_BITS, radius=RADIUS, embeddings=Embeddings(N_DIMS)) as store:
            store.put_rows(ids[:100], codes=codes[:100], embeddings=embeddings[:100], payloads=payloads[:100])
            store.compact()
            store.put_rows(ids[100:], codes=codes[100:], embeddings=embeddings[100:], payloads=payloads[100:])
            store.delete([ids[7], ids[8]])
            if kind == "crashed":
                shutil.copytree(made, path)
        if kind == "closed":
            shutil.copytree(made, path)
        shutil.rmtree(made)
        # These are of the moment, and of a process that is gone.
        for name in ("lock", "store.db-shm"):
            (path / name).unlink(missing_ok=True)


if __name__ == "__main__":
    # The version is that of the folder: stores/version_1 or stores/version_3.
    (main_several if sys.argv[1].rstrip("/").endswith("3") else main)(Path(sys.argv[1]))
