"""Work of a service, a batch of jobs at a time: encoding, searching, reading, writing. All of it runs in threads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes, check_finite, unpack
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import HamtargetError, InputError, ShapeError
from hamtarget.items import Id, Item
from hamtarget.search import BatchHits
from hamtarget.search.results import Costs
from hamtarget.serve import messages
from hamtarget.serve.code_sample import Sampler
from hamtarget.serve.meters import Meters
from hamtarget.serve.pictures import Picture, Pictures, read_upload
from hamtarget.serve.service_settings import ServiceSettings
from hamtarget.store import Store
from hamtarget.store.encoded_inputs import embeddings_of
from hamtarget.store.probe_defaults import is_made_for_probing

Input = bytes | list[float]
"""Bytes of an image file, or a vector."""

_NO_EMBEDDING = "rerank is asked for, and the query has no embedding; send `embedding`, or an id or input"


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Inputs of one request, encoded.

    Attributes:
        codes: (inputs, n_bits / 8).
        logits: (inputs, n_bits); None if codes were given.
        embeddings: (inputs, n_dims), if the store keeps embeddings and these are known.
        ms: milliseconds in the encoder, for the whole batch.
    """

    codes: Codes
    logits: NDArray[np.float32] | None = None
    embeddings: NDArray[Any] | None = None
    ms: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class SearchJob:
    """A request to search, and its queries."""

    asked: messages.AnySearch
    queries: Encoded


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Hits of one request.

    Attributes:
        job: the request and its queries, with the radius and the budget of the search.
        hits: hits of the queries.
        costs: costs of the queries.
        ms: milliseconds in the index, for the whole batch.
        items: items of the hits, if they were asked for; None for one that was deleted meanwhile.
        histogram: items at each distance from the query, if asked for.
    """

    job: SearchJob
    hits: BatchHits
    costs: Costs
    ms: float
    items: list[Item | None] = field(default_factory=list)
    histogram: messages.Histogram | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PutJob:
    """Items of one request, as `Store.put_rows` takes them."""

    ids: list[Id]
    codes: Codes
    embeddings: NDArray[Any] | None
    payloads: list[dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """An id to delete."""

    id: Id


@dataclass(frozen=True, slots=True)
class PictureJob:
    """The name of a picture in a payload, and the most pixels of its sides."""

    name: object
    side: int


class Work:
    """The work of a service's threads. Each method takes the jobs of a batch and answers them in order."""

    def __init__(self, store: Store, settings: ServiceSettings, meters: Meters) -> None:
        self.store = store
        self.sampler = Sampler(store)
        self.pictures = Pictures(settings.image_folders, max_pixels=settings.max_pixels)
        self.searches: list[messages.Kind] = ["search", "nearest", "probe"]
        self.advised: messages.Kind = "search"
        self._settings = settings
        self._meters = meters
        self._encoder: Encoder | None = None

    def open_encoder(self) -> None:
        """Open the encoder, so that the first request need not wait for it; see what the store can do."""
        if self.store.has_encoder:
            self._encoder = self.store.encoder
        self.advised = "probe" if is_made_for_probing(self.store) else "search"

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """Shape of one input; None where there is no encoder."""
        return None if self._encoder is None else tuple(self._encoder.input_shape)

    def encode(self, jobs: Sequence[Sequence[Input]]) -> list[Encoded | BaseException]:
        """Encode the inputs of each job; all of them go through the encoder at once."""
        arrays: list[NDArray[Any] | BaseException] = []
        for inputs in jobs:
            try:
                arrays.append(np.stack([self._array(each) for each in inputs]))
            except HamtargetError as error:
                arrays.append(error)
        good = [array for array in arrays if isinstance(array, np.ndarray)]
        if self._encoder is None or not good:
            return [error for error in arrays if isinstance(error, BaseException)]
        kind = self.store.embeddings
        if kind is not None and kind.n_dims != self.store.n_bits:
            # Then they are not the encoder's: requests bring them.
            kind = None
        began = time.perf_counter()
        logits = self._encoder.logits(np.concatenate(good))
        codes = np.packbits(logits > 0, axis=1, bitorder="little")
        embeddings = None if kind is None else embeddings_of(logits, kind)
        ms = 1000 * (time.perf_counter() - began)
        answers: list[Encoded | BaseException] = []
        start = 0
        for array in arrays:
            if isinstance(array, BaseException):
                answers.append(array)
                continue
            rows = slice(start, start + len(array))
            part = None if embeddings is None else embeddings[rows]
            answers.append(Encoded(codes[rows], logits[rows], part, ms))
            start += len(array)
        return answers

    def search(self, jobs: Sequence[SearchJob]) -> list[Found | BaseException]:
        """Search for the queries of each job; jobs that ask for the same are one search."""
        groups: dict[str, list[int]] = {}
        needs_embeddings = self.store.embeddings is not None
        for place, job in enumerate(jobs):
            if not (needs_embeddings and job.asked.rerank is not None and job.queries.embeddings is None):
                groups.setdefault(job.asked.key, []).append(place)
        answers: list[Found | BaseException] = [InputError(_NO_EMBEDDING)] * len(jobs)
        for places in groups.values():
            try:
                found = self._search_together([jobs[place] for place in places])
            except HamtargetError as error:
                found = [error] * len(places)
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
        return answers

    def read(self, jobs: Sequence[Sequence[Id]]) -> list[list[Item | None]]:
        """Read the items of each job's ids, all at once."""
        items = self.store.get([id for ids in jobs for id in ids])
        answers = []
        start = 0
        for ids in jobs:
            answers.append(items[start : start + len(ids)])
            start += len(ids)
        return answers

    def write(self, jobs: Sequence[PutJob | DeleteJob]) -> list[int | BaseException]:
        """Put or delete the items of each job in one transaction, with one wait for the disk; return their numbers."""
        answers: list[int | BaseException] = []
        with self.store.transaction():
            for job in jobs:
                try:
                    answers.append(self._write_one(job))
                except InputError as error:
                    # This job has changed nothing; the others are none the worse for it.
                    answers.append(error)
        return answers

    def draw(self, jobs: Sequence[PictureJob]) -> list[Picture | None | BaseException]:
        """Draw the picture of each job; None where there is none to show."""
        answers: list[Picture | None | BaseException] = []
        for job in jobs:
            try:
                answers.append(self.pictures.thumbnail(job.name, job.side))
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

    def _search_together(self, jobs: list[SearchJob]) -> list[Found | BaseException]:
        queries = jobs[0].queries if len(jobs) == 1 else _joined([job.queries for job in jobs])
        began = time.perf_counter()
        hits = self._find(jobs[0].asked, queries)
        ms = 1000 * (time.perf_counter() - began)
        if len(jobs) == 1:
            return [self._found(jobs[0], hits, ms)]
        answers: list[Found | BaseException] = []
        start = 0
        for job in jobs:
            stop = start + len(job.queries.codes)
            answers.append(self._found(job, _part(hits, start, stop), ms))
            start = stop
        return answers

    def _find(self, asked: messages.AnySearch, queries: Encoded) -> BatchHits:
        filter, threads = asked.payload_filter, self._settings.threads
        embedding = None if asked.rerank is None else queries.embeddings
        if isinstance(asked, messages.SearchRequest | messages.BatchSearchRequest):
            return self.store.search_batch(
                codes=queries.codes,
                radius=asked.radius,
                limit=asked.limit,
                filter=filter,
                rerank=asked.rerank,
                embedding=embedding,
                threads=threads,
                cost=True,
            )
        if isinstance(asked, messages.NearestRequest | messages.BatchNearestRequest):
            return self.store.nearest_batch(
                codes=queries.codes,
                k=asked.k,
                filter=filter,
                rerank=asked.rerank,
                embedding=embedding,
                threads=threads,
                cost=True,
            )
        return self.store.probe_batch(
            logits=_logits(queries),
            budget=asked.budget or 1,
            radius=asked.radius,
            limit=asked.hit_limit,
            filter=filter,
            rerank=asked.rerank,
            embedding=embedding,
            comparisons=asked.comparisons,
            threads=threads,
            cost=True,
        )

    def _found(self, job: SearchJob, hits: BatchHits, ms: float) -> Found:
        if hits.costs is None:
            raise TypeError("the store did not tell the costs of a search")
        # One entry for a batch, its mean: thousands of entries would take longer than the search.
        self._meters.candidates.observe(int(hits.costs.candidates.sum()) / len(hits))
        self._meters.comparisons.observe(int(hits.costs.comparisons.sum()) / len(hits))
        items: list[Item | None] = []
        histogram = None
        asked = job.asked
        if isinstance(asked, messages.OneQuery):
            if (asked.payload or asked.codes) and len(hits.rows):
                items = self.store.get(hits.ids.tolist())
            if asked.histogram:
                histogram = self.sampler.sample().histogram(job.queries.codes[:1], self.store.n_bits)
        return Found(job, hits, hits.costs, ms, items, histogram)

    def _write_one(self, job: PutJob | DeleteJob) -> int:
        if isinstance(job, DeleteJob):
            return self.store.delete([job.id])
        self.store.put_rows(job.ids, codes=job.codes, embeddings=job.embeddings, payloads=job.payloads)
        return len(job.ids)


def _joined(parts: list[Encoded]) -> Encoded:
    """Return the queries of several jobs as one batch."""
    embeddings = [part.embeddings for part in parts if part.embeddings is not None]
    return Encoded(
        np.concatenate([part.codes for part in parts]),
        None if all(part.logits is None for part in parts) else np.concatenate([_logits(part) for part in parts]),
        np.concatenate(embeddings) if len(embeddings) == len(parts) else None,
    )


def _logits(queries: Encoded) -> NDArray[np.float32]:
    """Return the logits of queries; each bit of a code that was given counts alike."""
    if queries.logits is not None:
        return queries.logits
    bits = unpack(queries.codes, 8 * queries.codes.shape[1])
    return 2 * bits.astype(np.float32) - 1


def _part(hits: BatchHits, start: int, stop: int) -> BatchHits:
    """Return the hits of some queries of a batch."""
    offsets = hits.offsets[start : stop + 1]
    here = slice(int(offsets[0]), int(offsets[-1]))
    closeness, costs = hits.embedding_distances, hits.costs
    return replace(
        hits,
        offsets=offsets - offsets[0],
        rows=hits.rows[here],
        distances=hits.distances[here],
        embedding_distances=None if closeness is None else closeness[here],
        costs=None
        if costs is None
        else Costs(costs.buckets[start:stop], costs.candidates[start:stop], costs.comparisons[start:stop]),
    )
