"""The work itself, a batch at a time: encoding, searching, reading, writing. All of it runs in threads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes, check_finite
from hamtarget.errors import HamtargetError, InputError, ShapeError
from hamtarget.items import Id
from hamtarget.search import BatchHits, Costs
from hamtarget.serve.counting import CountingStore, Look
from hamtarget.serve.pictures import Pictures, read_upload
from hamtarget.serve.sampling import Sampler
from hamtarget.serve.settings import ServiceSettings
from hamtarget.store import Item
from hamtarget.store.inputs import encode

Input = bytes | list[float]
"""Bytes of an image file, or a vector."""


@dataclass(frozen=True, slots=True, eq=False)
class EncodedInputs:
    """Codes of one request's inputs, their embeddings if the store keeps such, and milliseconds of the batch."""

    codes: Codes
    embeddings: NDArray[Any] | None
    ms: float


@dataclass(frozen=True, slots=True, eq=False)
class SearchJob:
    """Queries of one request.

    Attributes:
        codes: (queries, n_bits / 8).
        look: what is looked for.
        key: the same for jobs that may be searched together.
        embeddings: of the queries, if hits are to be re-ranked.
        items: whether the hits' items are wanted, too.
        histogram: whether distances to all items are to be counted, for the first query.
    """

    codes: Codes
    look: Look
    key: str
    embeddings: NDArray[Any] | None = None
    items: bool = False
    histogram: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SearchOutcome:
    """Hits of one request.

    Attributes:
        hits: of its queries.
        buckets, candidates, comparisons: what all of its queries took.
        ms: in the index, for the whole batch.
        items: of the hits, if they were wanted; None for one that has gone meanwhile.
        histogram: items at each distance, if wanted; and whether they are all items.
    """

    hits: BatchHits
    buckets: int
    candidates: int
    comparisons: int
    ms: float
    items: list[Item | None] = field(default_factory=list)
    histogram: tuple[NDArray[np.int64], bool] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PutJob:
    """Items of one request, as `Store.put_rows` takes them."""

    ids: list[Id]
    codes: Codes
    embeddings: NDArray[Any] | None
    payloads: list[dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """An id to be deleted."""

    id: Id


class Work:
    """What the threads of a service do. Each method takes the jobs of a batch and answers them in order."""

    def __init__(self, store: CountingStore, settings: ServiceSettings) -> None:
        self.store = store
        self.sampler = Sampler(store)
        self.pictures = Pictures(settings.image_folders, max_pixels=settings.max_pixels)
        self._settings = settings
        self._encoder: Any = None

    def open_encoder(self) -> None:
        """Nothing; the first request need not wait for the encoder."""
        if self.store.has_encoder:
            self._encoder = self.store.encoder

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """Shape of one input; None where there is no encoder."""
        return None if self._encoder is None else tuple(self._encoder.input_shape)

    def encode(self, jobs: Sequence[Sequence[Input]]) -> list[EncodedInputs | BaseException]:
        """Codes of each job's inputs; all of them go through the encoder at once."""
        arrays: list[NDArray[Any] | BaseException] = []
        for inputs in jobs:
            try:
                arrays.append(np.stack([self._array(each) for each in inputs]))
            except HamtargetError as error:
                arrays.append(error)
        good = [array for array in arrays if isinstance(array, np.ndarray)]
        if not good:
            return [error for error in arrays if isinstance(error, BaseException)]
        kind = self.store.embeddings
        if kind is not None and kind.n_dims != self.store.n_bits:
            # Then they are not the encoder's: whoever puts items brings them.
            kind = None
        began = time.perf_counter()
        codes, embeddings = encode(self._encoder, np.concatenate(good), kind)
        ms = 1000 * (time.perf_counter() - began)
        answers: list[EncodedInputs | BaseException] = []
        start = 0
        for array in arrays:
            if isinstance(array, BaseException):
                answers.append(array)
                continue
            rows = slice(start, start + len(array))
            answers.append(EncodedInputs(codes[rows], None if embeddings is None else embeddings[rows], ms))
            start += len(array)
        return answers

    def search(self, jobs: Sequence[SearchJob]) -> list[SearchOutcome | BaseException]:
        """Hits of each job; those that look for the same are searched at once."""
        groups: dict[str, list[int]] = {}
        for place, job in enumerate(jobs):
            groups.setdefault(job.key, []).append(place)
        answers: list[SearchOutcome | BaseException] = [InputError("not searched")] * len(jobs)
        for places in groups.values():
            try:
                found = self._search_together([jobs[place] for place in places])
            except HamtargetError as error:
                found = [error] * len(places)
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
        return answers

    def read(self, jobs: Sequence[Sequence[Id]]) -> list[list[Item | None]]:
        """Items of each job's ids, looked up at once."""
        items = self.store.get([id for ids in jobs for id in ids])
        answers = []
        start = 0
        for ids in jobs:
            answers.append(items[start : start + len(ids)])
            start += len(ids)
        return answers

    def write(self, jobs: Sequence[PutJob | DeleteJob]) -> list[int | BaseException]:
        """How many items each job put or deleted, all of them in one transaction: one wait for the disk."""
        answers: list[int | BaseException] = []
        with self.store.transaction():
            for job in jobs:
                try:
                    answers.append(self._write_one(job))
                except InputError as error:
                    # This job has changed nothing; the others are none the worse for it.
                    answers.append(error)
        return answers

    def draw(self, jobs: Sequence[tuple[object, int]]) -> list[tuple[bytes, str] | None | BaseException]:
        """A picture of each (name, side), and its media type; None where there is none to show."""
        answers: list[tuple[bytes, str] | None | BaseException] = []
        for name, side in jobs:
            try:
                answers.append(self.pictures.thumbnail(name, side))
            except HamtargetError as error:
                answers.append(error)
        return answers

    def _array(self, given: Input) -> NDArray[Any]:
        shape = self.input_shape
        if shape is None:
            raise InputError("this store has no encoder; search by code or id, and put codes")
        if isinstance(given, bytes):
            if len(shape) < 2:
                raise InputError(f"an image is given; this encoder takes vectors of {shape[0]} numbers")
            return read_upload(given, shape, max_pixels=self._settings.max_pixels)
        if len(shape) != 1:
            raise InputError(f"a vector is given; this encoder takes images of shape {shape}")
        if len(given) != shape[0]:
            raise ShapeError(f"the vector has {len(given)} numbers; this encoder takes {shape[0]}")
        with np.errstate(over="ignore"):
            array = np.array(given, dtype=np.float32)
        check_finite(array[None], name="vector")
        return array

    def _search_together(self, jobs: list[SearchJob]) -> list[SearchOutcome | BaseException]:
        one = len(jobs) == 1
        codes = jobs[0].codes if one else np.concatenate([job.codes for job in jobs])
        embeddings = jobs[0].embeddings
        if embeddings is not None and not one:
            embeddings = np.concatenate([job.embeddings for job in jobs if job.embeddings is not None])
        began = time.perf_counter()
        hits, costs = self.store.look(codes, jobs[0].look, embeddings=embeddings, threads=self._settings.threads)
        ms = 1000 * (time.perf_counter() - began)
        if one:
            return [self._outcome(jobs[0], hits, costs, ms)]
        answers: list[SearchOutcome | BaseException] = []
        start = 0
        for job in jobs:
            part = slice(start, start + len(job.codes))
            answers.append(self._outcome(job, _hits_of(hits, part), _costs_of(costs, part), ms))
            start = part.stop
        return answers

    def _outcome(self, job: SearchJob, hits: BatchHits, costs: Costs, ms: float) -> SearchOutcome:
        items = self.store.get(hits.ids.tolist()) if job.items and len(hits.rows) else []
        histogram = None
        if job.histogram:
            sample = self.sampler.sample()
            histogram = sample.histogram(job.codes[:1], self.store.n_bits), sample.is_whole
        return SearchOutcome(
            hits,
            int(costs.buckets.sum()),
            int(costs.candidates.sum()),
            int(costs.comparisons.sum()),
            ms,
            items,
            histogram,
        )

    def _write_one(self, job: PutJob | DeleteJob) -> int:
        if isinstance(job, DeleteJob):
            return self.store.delete([job.id])
        self.store.put_rows(job.ids, codes=job.codes, embeddings=job.embeddings, payloads=job.payloads)
        return len(job.ids)


def _hits_of(hits: BatchHits, queries: slice) -> BatchHits:
    offsets = hits.offsets[queries.start : queries.stop + 1]
    here = slice(int(offsets[0]), int(offsets[-1]))
    closeness = hits.embedding_distances
    return replace(
        hits,
        offsets=offsets - offsets[0],
        rows=hits.rows[here],
        distances=hits.distances[here],
        embedding_distances=None if closeness is None else closeness[here],
    )


def _costs_of(costs: Costs, queries: slice) -> Costs:
    return Costs(costs.buckets[queries], costs.candidates[queries], costs.comparisons[queries])
