"""Measure how well simhash64 finds altered copies of documents, beside MinHash of the package datasketch.

    python -m research.benchmarks.text_copies SENTENCES [--record]

SENTENCES is a text file with a sentence in each line, such as sentences of an encyclopedia in random order. Documents
are made of 3 to 9 sentences, each sentence in one document only; so different documents share words, but no text. Each
is stored as it is. Some are altered in every way, and searched for: a copy is found if its distance is within the
radius at which at most one pair in a million (or in 100,000) of different documents would be found, too.

MinHash takes shingles of three words, as is usual, and the share of equal values; its 128 values take 512 bytes where
simhash64 takes 8. "MinHash, a bit" keeps the lowest bit of 64 values, so that it takes 8 bytes, too. With --record, the
figures of simhash64 become those that the package has of it.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hamtarget
from hamtarget.encoders.texts.simhash import SimHash64, words_of
from hamtarget.evaluation.provenance import provenance, write_json

Words = list[str]
Alteration = Callable[[Words, np.random.Generator, Words], Words]
RATES = (1e-6, 1e-5)
# Values of a MinHash, and words of its shingles.
_VALUES, _SHINGLE = 128, 3
_NOTICE = "read more about this on our site and subscribe to the newsletter all rights reserved 2024".split()
_RECORD = Path(hamtarget.__file__).parent / "encoders" / "models" / "simhash64.json"


def _drop(words: Words, random: np.random.Generator, vocabulary: Words, share: float) -> Words:
    gone = set(random.choice(len(words), _some(words, share), replace=False).tolist())
    return [word for place, word in enumerate(words) if place not in gone]


def _insert(words: Words, random: np.random.Generator, vocabulary: Words, share: float) -> Words:
    altered = list(words)
    for _ in range(_some(words, share)):
        altered.insert(int(random.integers(len(altered) + 1)), vocabulary[random.integers(len(vocabulary))])
    return altered


def _exchange(words: Words, random: np.random.Generator, vocabulary: Words, share: float) -> Words:
    altered = list(words)
    for place in random.choice(len(words), _some(words, share), replace=False):
        altered[place] = vocabulary[random.integers(len(vocabulary))]
    return altered


def _swap(words: Words, random: np.random.Generator, vocabulary: Words, share: float) -> Words:
    altered = list(words)
    for place in random.choice(len(words) - 1, _some(words, share), replace=False):
        altered[place], altered[place + 1] = altered[place + 1], altered[place]
    return altered


def _some(words: Words, share: float) -> int:
    return max(1, round(share * len(words)))


def _shared(alteration: Callable[[Words, np.random.Generator, Words, float], Words], share: float) -> Alteration:
    return lambda words, random, vocabulary: alteration(words, random, vocabulary, share)


ALTERATIONS: dict[str, Alteration] = {
    "upper case": lambda words, random, vocabulary: [word.upper() for word in words],
    "punctuation": lambda words, random, vocabulary: [f'"{word}",' for word in words],
    **{
        f"{percent}% of the words {name}": _shared(alteration, percent / 100)
        for name, alteration in {
            "dropped": _drop,
            "inserted": _insert,
            "exchanged": _exchange,
            "swapped": _swap,
        }.items()
        for percent in (2, 5, 10)
    },
    "the last 10% cut off": lambda words, random, vocabulary: words[: len(words) - _some(words, 0.1)],
    "the last 25% cut off": lambda words, random, vocabulary: words[: len(words) - _some(words, 0.25)],
    "a notice of 15 words after it": lambda words, random, vocabulary: [*words, *_NOTICE],
    "a notice before and after it": lambda words, random, vocabulary: [*_NOTICE, *words, *_NOTICE],
}


def documents_of(sentences: list[str], seed: int) -> list[str]:
    """Return documents of 3 to 9 sentences, each sentence in one of them."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(sentences)).tolist()
    documents = []
    while len(order) >= 9:
        some = [order.pop() for _ in range(int(random.integers(3, 10)))]
        documents.append(" ".join(sentences[place] for place in some))
    return documents


def simhash_distances(texts: list[str], others: list[str]) -> NDArray[np.int64]:
    """Return the Hamming distances of all codes of texts to all codes of others."""
    encoder = SimHash64()
    a, b = (2 * np.unpackbits(encoder.encode(each), axis=1).astype(np.float32) - 1 for each in (texts, others))
    distances: NDArray[np.int64] = np.rint((encoder.n_bits - a @ b.T) / 2).astype(np.int64)
    return distances


def minhash_distances(texts: list[str], others: list[str]) -> NDArray[np.int64]:
    """Return how many of the values of MinHash differ, of all texts to all others."""
    a, b = minhashes(texts), minhashes(others)
    differ = np.zeros((len(a), len(b)), dtype=np.int64)
    for value in range(_VALUES):
        differ += a[:, value, None] != b[None, :, value]
    return differ


def short_minhash_distances(texts: list[str], others: list[str]) -> NDArray[np.int64]:
    """Return the Hamming distances of codes of 64 bits: the lowest bit of each of the first 64 values of MinHash."""
    a, b = (2 * (minhashes(each)[:, :64] & np.uint32(1)).astype(np.float32) - 1 for each in (texts, others))
    distances: NDArray[np.int64] = np.rint((64 - a @ b.T) / 2).astype(np.int64)
    return distances


def minhashes(texts: list[str]) -> NDArray[np.uint32]:
    """Return the values of MinHash by datasketch, (texts, values), of the same words that simhash64 takes."""
    from datasketch import MinHash

    rows = []
    for text in texts:
        words = words_of(text)
        shingles = {" ".join(words[k : k + _SHINGLE]).encode() for k in range(max(1, len(words) - _SHINGLE + 1))}
        sketch = MinHash(num_perm=_VALUES, seed=1)
        sketch.update_batch(list(shingles))
        rows.append(sketch.hashvalues)
    return np.stack(rows).astype(np.uint32)


Distances = Callable[[list[str], list[str]], NDArray[np.int64]]
# Distances of texts to others, the largest distance, and the codes that take time.
METHODS: dict[str, tuple[Distances, int, Callable[[list[str]], NDArray[Any]]]] = {
    "simhash64": (simhash_distances, 64, lambda texts: SimHash64().encode(texts)),
    "MinHash": (minhash_distances, _VALUES, minhashes),
    "MinHash, a bit": (
        short_minhash_distances,
        64,
        lambda texts: np.packbits(minhashes(texts)[:, :64] & np.uint32(1), axis=1),
    ),
}


def measure(documents: list[str], n_queries: int, seed: int, methods: list[str]) -> dict[str, Any]:
    """Return the recall of every method for every alteration, at each rate of false pairs and by radius."""
    random = np.random.default_rng(seed)
    vocabulary = sorted({word for document in documents for word in words_of(document)})
    queries = np.sort(random.choice(len(documents), min(n_queries, len(documents)), replace=False))
    altered = {
        name: [" ".join(alteration(documents[query].split(), random, vocabulary)) for query in queries]
        for name, alteration in ALTERATIONS.items()
    }
    pairs = np.triu_indices(len(documents), 1)
    results: dict[str, Any] = {}
    for method in methods:
        distances_of, most, codes_of = METHODS[method]
        different = distances_of(documents, documents)[pairs]
        shares = np.bincount(different, minlength=most + 1).cumsum() / len(different)
        of_copies = {}
        for name, texts in altered.items():
            near = distances_of(texts, [documents[query] for query in queries]).diagonal()
            of_copies[name] = np.bincount(near, minlength=most + 1).cumsum() / len(near)
        at_rates = {}
        for rate in RATES:
            radius = int(np.searchsorted(shares, rate, side="right")) - 1
            recall = {name: float(curve[radius]) if radius >= 0 else 0.0 for name, curve in of_copies.items()}
            mean = float(np.mean(list(recall.values())))
            at_rates[f"{rate:g}"] = {"radius": radius, "mean": mean, "recall": recall}
        began = time.process_time()
        codes_of(documents)
        seconds = time.process_time() - began
        results[method] = {
            "bytes": codes_of(documents[:1]).nbytes,
            "documents_per_cpu_second": round(len(documents) / seconds),
            "megabytes_per_cpu_second": round(sum(map(len, documents)) / seconds / 1e6, 2),
            "at_rates": at_rates,
            "share_within": shares.tolist(),
            "recall_within": np.mean(list(of_copies.values()), axis=0).round(5).tolist(),
        }
    words = float(np.mean([len(words_of(document)) for document in documents]))
    return {
        "documents": len(documents),
        "words": round(words, 1),
        "queries": len(queries),
        "pairs": len(pairs[0]),
        "methods": results,
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sentences", type=Path, help="file with a sentence in each line")
    parser.add_argument("--queries", type=int, default=300, help="documents that are altered (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="keep the figures of simhash64 in the package")
    parser.add_argument("--out", type=Path, default=Path("research/results/text_copies.json"), help="JSON file")
    asked = parser.parse_args()
    sentences = [line for each in asked.sentences.read_text(encoding="utf-8").splitlines() if (line := each.strip())]
    methods = [name for name in METHODS if "MinHash" not in name or importlib.util.find_spec("datasketch") is not None]
    if "MinHash" not in methods:
        print("MinHash is left out: datasketch is not installed")
    results = measure(documents_of(sentences, asked.seed), asked.queries, asked.seed, methods)
    results["provenance"] = provenance(seed=asked.seed)
    write_json(asked.out, results)
    for name, facts in results["methods"].items():
        at_rates = ", ".join(
            f"{at['mean']:.3f} within {at['radius']} at {rate}" for rate, at in facts["at_rates"].items()
        )
        speed = facts["documents_per_cpu_second"]
        print(f"{name}: {at_rates}; {facts['bytes']} bytes; {speed:,} documents a second of one core")
    if asked.record:
        own = results["methods"]["simhash64"]
        curves = {name: own[name] for name in ("recall_within", "share_within")}
        write_json(_RECORD, {"measured": results["provenance"], "name": "simhash64", **curves})


if __name__ == "__main__":
    main()
