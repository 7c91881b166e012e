"""Learning an encoder of texts: codes of the features that a sentence model gives."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.datasets.content_cache import ContentCache, digest_of
from hamtarget.encoders.sentence.text_encoder import TextEncoder
from hamtarget.errors import InputError, ShapeError
from hamtarget.learn.encoder import HashEncoder
from hamtarget.learn.fitting.pictures import one_thread
from hamtarget.learn.training.checkpoint import TrainingProgress
from hamtarget.progress import Progress

# Texts between two reports; what is computed is kept as often.
_BLOCK = 1024


def fit_texts(
    texts: Sequence[str],
    similar: Any = None,
    *,
    sentence_model: TextEncoder,
    encoder: HashEncoder,
    progress: Callable[[TrainingProgress], None] | None = None,
    features_progress: Progress | None = None,
    neighbors_progress: Progress | None = None,
    checkpoint: str | Path | None = None,
) -> TextEncoder:
    """Learn codes of texts, and return an encoder that needs no torch.

    The sentence model sees each text once; its features are kept in the content cache. What is learned is a head of
    the features.

    Args:
        texts: to learn from.
        similar: which texts are similar: labels, or another similarity that `HashEncoder.fit` takes. None: each text
            and its nearest neighbours by the sentence model.
        sentence_model: gives features; it is not changed.
        encoder: learns the head.
        progress: called with a `TrainingProgress` now and then.
        features_progress: called with (done, total) while the sentence model reads texts.
        neighbors_progress: called with (done, total) while nearest neighbours are sought.
        checkpoint: file to resume from if it exists, and to save to.

    Raises:
        InputError: the sentence model has a head already.
        ShapeError: there are fewer than two texts.
        MissingExtraError: onnx is not installed.
    """
    if sentence_model.has_head:
        raise InputError("the sentence model has learned codes already; expected one as it was published")
    if len(texts) < 2:
        raise ShapeError(f"there are {len(texts)} texts; learning needs at least 2")
    features = text_features(texts, sentence_model, progress=features_progress)
    with one_thread(True):
        encoder.fit(features, similar, progress=progress, neighbors_progress=neighbors_progress, checkpoint=checkpoint)
    with tempfile.TemporaryDirectory() as folder:
        head = encoder.export_onnx(folder).read_bytes()
    return sentence_model.with_head(head, n_bits=encoder.n_bits, radius=encoder.radius)


def text_features(
    texts: Sequence[str], sentence_model: TextEncoder, *, progress: Progress | None = None
) -> NDArray[np.float32]:
    """Return the features of texts, (texts, n_features), from the content cache where they are there.

    Args:
        texts: any texts.
        sentence_model: gives features.
        progress: called with the number of texts done and of all texts.
    """
    values = np.empty((len(texts), sentence_model.n_features), dtype=np.float32)
    maker = f"text features {sentence_model.fingerprint}"
    with closing(ContentCache(maker, value_bytes=4 * sentence_model.n_features)) as cache:
        for start in range(0, len(texts), _BLOCK):
            block = list(texts[start : start + _BLOCK])
            digests = [digest_of(text.encode("utf-8", "surrogatepass")) for text in block]
            kept = cache.get(digests)
            missing = [place for place, digest in enumerate(digests) if digest not in kept]
            if missing:
                computed = sentence_model.features([block[place] for place in missing]).astype("<f4")
                fresh = {digests[place]: row.tobytes() for place, row in zip(missing, computed, strict=True)}
                cache.put(fresh)
                kept |= fresh
            for place, digest in enumerate(digests):
                values[start + place] = np.frombuffer(kept[digest], dtype="<f4")
            if progress is not None:
                progress(start + len(block), len(texts))
    return values
