"""Writes the stores in `stores/` that are missing: `python golden_stores.py`.

A golden store is written once, when its format is new, and not again: see golden_files.py. `closed` was closed as
usual; the writer of `crashed` died, and its last changes are in the log.
"""

import shutil
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "stores"
KINDS = ("closed", "crashed")
N_ITEMS = 120
N_BITS, RADIUS, N_DIMS = 64, 2, 3


def expected():
    """Return what the stores "one" hold, (id, code, embedding, payload), and all that was put into them."""
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
    """Return what the stores "several" hold: codes, embeddings and payload by id."""
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


def new_store(path):
    from hamtarget.search import Embeddings
    from hamtarget.store import Store

    return Store.create(path, n_bits=N_BITS, radius=RADIUS, embeddings=Embeddings(N_DIMS))


def make_one_code(path):
    """Make a store of items with one code each, and return it open: some of them are only in the log."""
    _, (ids, codes, embeddings, payloads) = expected()
    store = new_store(path)
    store.put_rows(ids[:100], codes=codes[:100], embeddings=embeddings[:100], payloads=payloads[:100])
    store.compact()
    store.put_rows(ids[100:], codes=codes[100:], embeddings=embeddings[100:], payloads=payloads[100:])
    store.delete([ids[7], ids[8]])
    return store


def make_several_codes(path):
    """Make a store of items with several codes, and return it open: some were replaced, and one was deleted."""
    from hamtarget.store import Item

    items = expected_several()
    first, last = (dict(list(items.items())[part]) for part in (slice(0, 12), slice(12, None)))
    store = new_store(path)
    _, (ids, codes, embeddings, _) = expected()
    # One that has three codes at first, and one that is deleted.
    store.put([Item(ids[1], codes=codes[:3], embeddings=embeddings[:3], payload={"old": True})])
    store.put([Item("gone", codes=codes[:64], embeddings=embeddings[:64])])
    store.put(several_items(first))
    store.compact()
    store.put(several_items(last))
    store.delete(["gone"])
    return store


MAKERS = {"one": make_one_code, "several": make_several_codes}


def main():
    for name, make in MAKERS.items():
        for kind in KINDS:
            path = FOLDER / name / kind
            if path.exists():
                continue
            made = FOLDER / "made"
            with make(made):
                if kind == "crashed":
                    shutil.copytree(made, path)
            if kind == "closed":
                shutil.copytree(made, path)
            shutil.rmtree(made)
            # These are of the moment, and of a process that is gone.
            for left in ("lock", "store.db-shm"):
                (path / left).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
