"""Models of table 2 in one file, from which anybody who has the vectors can compute their figures again, untrained.

    results=research/results/sift1m
    python -m research.trials.sift_models --learn sift1m/learn.npz --set sift1m --models models
    python -m research.paper.model_archive pack models $results/models.tar.xz --data sift1m
    python -m research.paper.model_archive rescore $results/models.tar.xz --data sift1m

`pack` keeps the models that are for look-up within a radius, and what each finds of the set's queries. `rescore`
measures that again and compares. The exit status is 1 if a figure differs. The file is an artefact
(`research.artefact`): its manifest has the SHA-256 of each part, and the scores name the vectors by a checksum.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hamtarget._files import write_atomically
from hamtarget.datasets.content_cache import digest_of
from hamtarget.errors import CorruptFileError, HamtargetError, InputError
from hamtarget.evaluation.provenance import provenance
from hamtarget.learn import HashEncoder
from research import artefact
from research.datasets.vector_sets import VectorSet, open_vector_set
from research.paper.lookup import exact_lookup

KIND = "vector models"
SCORES = "scores.json"
_PARTS = ("model.safetensors", "training.json")
# Another processor adds in another order, and the sign of a logit near 0 may flip.
_TOLERANCE, _SHARE_TOLERANCE = 0.01, 0.002


def pack_models(models: Path, vectors: VectorSet) -> bytes:
    """Return an artefact of the models in a folder that are for look-up, and of what they find.

    Raises:
        InputError: there is no such model.
    """
    files, scores = {}, {}
    for folder in sorted(path.parent for path in models.glob("*/training.json")):
        if "radius" not in json.loads((folder / "training.json").read_text(encoding="utf-8"))["setting"]:
            continue
        for part in _PARTS:
            files[f"{folder.name}/{part}"] = (folder / part).read_bytes()
        scores[folder.name] = scores_of(HashEncoder.load(folder, device="cpu"), vectors)
    if not scores:
        raise InputError(f"{models} has no model for look-up; expected folders as `sift_models` writes them")
    told = {"vectors": checksum(vectors), "provenance": provenance(seed=0), "scores": scores}
    files[SCORES] = (json.dumps(told, indent=2, sort_keys=True) + "\n").encode()
    return artefact.pack(files, {"kind": KIND})


def differences(
    content: tuple[dict[str, Any], dict[str, bytes]], vectors: VectorSet, *, only: Sequence[str] = ()
) -> Iterator[tuple[str, list[str]]]:
    """Score each model of an artefact again, and yield its name and how its figures differ from the kept ones.

    Args:
        content: the artefact, as `artefact.read` returns it.
        vectors: the set that the scores are of.
        only: names of the models to score. None named: all.

    Raises:
        CorruptFileError: it is no artefact of models.
        InputError: the vectors are others.
    """
    about, files = content
    try:
        if about["kind"] != KIND:
            raise ValueError(f"it holds {about['kind']}")
        kept = json.loads(files[SCORES])
        scores: dict[str, dict[str, float]] = kept["scores"]
        wanted = kept["vectors"]
        parts = {name: {part: files[f"{name}/{part}"] for part in _PARTS} for name in scores}
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(f"the artefact holds no models of vectors: {error}; fetch it again") from error
    found = checksum(vectors)
    if found != wanted:
        raise InputError(f"the vectors are {found}; expected those that were scored, {wanted}")
    for name, expected in scores.items():
        if only and name not in only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            for part, data in parts[name].items():
                write_atomically(Path(folder) / part, data)
            again = scores_of(HashEncoder.load(folder, device="cpu"), vectors)
        yield name, [f"{figure}: {again[figure]} here, {value} kept" for figure, value in _apart(expected, again)]


def scores_of(encoder: HashEncoder, vectors: VectorSet) -> dict[str, float]:
    """Return what an encoder finds within its radius, without the speed, which is the machine's."""
    radius = encoder.radius
    if not isinstance(radius, int):
        raise InputError(f"the model's radius is {radius}; expected one number")
    found = exact_lookup(encoder, vectors, radius)
    del found["queries_per_second"]
    return found


def checksum(vectors: VectorSet) -> dict[str, Any]:
    """Return what tells a set from others: its sizes, and a digest of base, queries and truth."""
    parts = (np.ascontiguousarray(part) for part in (vectors.base, vectors.queries, vectors.neighbors[:, :1]))
    together = b"".join(digest_of(part.tobytes()) for part in parts)
    return {
        "rows": len(vectors.base),
        "queries": len(vectors.queries),
        "digest": digest_of(together).hex(),
    }


def _apart(expected: dict[str, float], found: dict[str, float]) -> list[tuple[str, float]]:
    return [
        (name, value)
        for name, value in expected.items()
        if not math.isclose(found[name], value, rel_tol=_TOLERANCE, abs_tol=0.0 if value > 1 else _SHARE_TOLERANCE)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    packing = verbs.add_parser("pack", help="pack the models of a folder, and what they find")
    packing.add_argument("models", type=Path)
    rescoring = verbs.add_parser("rescore", help="measure what each model finds, and compare")
    rescoring.add_argument("--only", nargs="*", default=(), metavar="NAME", help="only these models")
    for verb in (packing, rescoring):
        verb.add_argument("file", type=Path)
        verb.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder of the set of vectors")
    given = parser.parse_args(arguments)
    try:
        vectors = open_vector_set(given.data)
        if given.verb == "pack":
            write_atomically(given.file, pack_models(given.models, vectors))
            print(f"{given.file}: {given.file.stat().st_size:,} bytes")
            return 0
        wrong = models = 0
        for name, found in differences(artefact.read(given.file), vectors, only=given.only):
            print(f"{name}: {'; '.join(found) if found else 'as it was kept'}", flush=True)
            models, wrong = models + 1, wrong + bool(found)
    except HamtargetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{models} models, {wrong} of them not as they were kept")
    return 1 if wrong or not models else 0


if __name__ == "__main__":
    raise SystemExit(main())
