"""Codes of the pictures of a batch, by a store's encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._picture_form import form_of
from hamtarget.codes import Codes
from hamtarget.encoders.texts.text_inputs import takes_texts
from hamtarget.errors import FileError, InputError
from hamtarget.progress import Progress
from hamtarget.store import Store
from hamtarget.store.defaults import is_made_for_copies
from hamtarget.store.items.encoded_inputs import encode

# Codes of copies are kept by content as they are made, so a large batch loses nothing when it is interrupted.
_FILES_OF_COPIES = 16_384
# Others are pixels in memory first.
_FILES_OF_MODELS = 512


@dataclass(frozen=True, eq=False)
class ReadPictures:
    """Pictures that could be read.

    Attributes:
        rows: number of each among the paths that were given, ascending.
        codes: (pictures, bytes) packed.
        embeddings: where the store keeps them.
        digests: of the files' contents.
        broken: by row, why a picture could not be read.
    """

    rows: list[int]
    codes: Codes
    embeddings: NDArray[Any] | None
    digests: list[bytes]
    broken: dict[int, str]


class PictureReader:
    """Reads and encodes pictures for a store.

    Args:
        store: whose encoder takes pictures.
        workers: processes that read; 0: this one; None: one for each core, where there are enough pictures.

    Raises:
        InputError: the store has no encoder, or one of other inputs.
    """

    def __init__(self, store: Store, workers: int | None) -> None:
        if store.vectors is not None or takes_texts(store.encoder):
            kind = "texts" if store.vectors is None else "vectors"
            raise InputError(f"{store.path} keeps {kind}; expected a store whose encoder takes pictures")
        # Says what an encoder takes that takes no pictures.
        self._form = form_of(store.encoder)
        self._store = store
        self._workers = workers
        # Embeddings are not kept by content.
        self._remembers = is_made_for_copies(store) and store.embeddings is None

    @property
    def batch(self) -> int:
        """Number of pictures to give at once."""
        return _FILES_OF_COPIES if self._remembers else _FILES_OF_MODELS

    def read(self, paths: Sequence[str], progress: Progress) -> ReadPictures:
        """Return the codes of picture files, and why others cannot be read."""
        return self._by_content(paths, progress) if self._remembers else self._by_model(paths, progress)

    def _by_content(self, paths: Sequence[str], progress: Progress) -> ReadPictures:
        from hamtarget.copies.picture_codes import encode_files

        read = encode_files(paths, self._store.encoder, workers=self._workers, progress=progress)
        broken = {row: read.broken[path] for row, path in enumerate(paths) if path in read.broken}
        return ReadPictures(read.rows.tolist(), read.codes, None, [each.tobytes() for each in read.digests], broken)

    def _by_model(self, paths: Sequence[str], progress: Progress) -> ReadPictures:
        from hamtarget.datasets.content_cache import content_digest
        from hamtarget.datasets.pictures.images import decode_images

        digests: dict[int, bytes] = {}
        broken: dict[int, str] = {}
        for row, path in enumerate(paths):
            try:
                # Before the pixels: a file that changes in between has another digest the next time.
                digests[row] = content_digest(path)
            except FileError as error:
                broken[row] = str(error)
        sources = [paths[row] for row in digests]
        decoded = decode_images(sources, self._form, workers=self._workers or 0, progress=progress)
        of_source = list(digests)
        broken.update((of_source[row], reason) for row, reason in decoded.broken.items())
        rows = [of_source[row] for row in decoded.rows.tolist()]
        store = self._store
        if not rows:
            return ReadPictures([], np.zeros((0, store.n_bits // 8), np.uint8), None, [], broken)
        codes, embeddings = encode(store.encoder, decoded.images, store.embeddings)
        return ReadPictures(rows, codes, embeddings, [digests[row] for row in rows], broken)
