"""Encoders of a set of vectors, trained once and kept in a folder."""

from __future__ import annotations

import io
import json
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._files import write_atomically
from hamtarget.errors import FileError
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import HashEncoder, Neighbors
from hamtarget.learn.fitting.arrays import torch_device
from hamtarget.learn.similarity.nearest_neighbors import nearest_neighbors
from research.datasets.vector_sets import VectorSet
from research.paper.encoder_settings import encoder_of, same_settings

NamedProgress = Callable[[str, int, int], None]

# Nearest neighbours of a vector that are similar to it (paper 3.2).
SIMILAR = 10


@dataclass(frozen=True)
class TrainedEncoder:
    """An encoder and its training.

    Attributes:
        encoder: trained on the set's `learn` only.
        seconds: seconds of training, without finding the neighbours to learn from.
        provenance: of the run that trained it.
    """

    encoder: HashEncoder
    seconds: float
    provenance: dict[str, Any]


def trained_encoder(
    vectors: VectorSet,
    setting: Mapping[str, Any],
    folder: Path,
    *,
    name: str,
    progress: NamedProgress | None = None,
) -> TrainedEncoder:
    """Return the encoder of this setting from `folder`, or train it on `vectors.learn` and put it there.

    The 10 nearest neighbours of each vector are similar. An encoder in the folder that has another setting, or learned
    from other vectors, is replaced.

    Args:
        vectors: the set to learn from.
        setting: flat settings, see `encoder_of`.
        folder: where the encoder and `training.json` are kept; beside it the neighbours to learn from.
        name: name of the model in reports.
        progress: called now and then while training, with the name, the steps done and all steps.
    """
    wanted = encoder_of(setting)
    learned_from = _fingerprint(vectors)
    kept = _kept(folder, wanted, learned_from, vectors.learn.shape[1:])
    if kept is not None:
        return kept
    told_by_fit = None if progress is None else lambda state: progress(name, state.step, state.steps)
    neighbors = _neighbors(vectors, folder.parent / "neighbors.npz", learned_from["crc32"])
    start = time.perf_counter()
    wanted.fit(np.asarray(vectors.learn), Neighbors(neighbors), progress=told_by_fit)
    seconds = time.perf_counter() - start
    wanted.save(folder)
    origin = provenance(seed=wanted.seed)
    write_json(
        folder / "training.json",
        {"learned_from": learned_from, "provenance": origin, "seconds": seconds, "setting": dict(setting)},
    )
    return TrainedEncoder(wanted, seconds, origin)


def _kept(
    folder: Path, wanted: HashEncoder, learned_from: dict[str, Any], shape: tuple[int, ...]
) -> TrainedEncoder | None:
    try:
        encoder = HashEncoder.load(folder)
        told = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    except (FileError, OSError, ValueError):
        return None
    if told.get("learned_from") != learned_from or not same_settings(encoder, wanted, shape):
        return None
    return TrainedEncoder(encoder, told["seconds"], told["provenance"])


def _neighbors(vectors: VectorSet, path: Path, learned_from: int) -> NDArray[np.int64]:
    """Return the nearest vectors of each to learn from, kept in a file, since many models use the same."""
    try:
        # Opened here, since numpy leaves a damaged file open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            if int(kept["learned_from"]) == learned_from:
                stored: NDArray[np.int64] = kept["neighbors"]
                return stored
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        pass
    found = nearest_neighbors(np.asarray(vectors.learn), SIMILAR, device=torch_device("auto")).cpu().numpy()
    content = io.BytesIO()
    np.savez(content, neighbors=found, learned_from=learned_from)
    write_atomically(path, content.getvalue())
    return found


def _fingerprint(vectors: VectorSet) -> dict[str, Any]:
    learn = np.ascontiguousarray(vectors.learn)
    return {"set": vectors.name, "shape": list(learn.shape), "crc32": zlib.crc32(learn.data)}
