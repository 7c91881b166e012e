"""Work of a service: encoding, searching, reading, writing. All of it runs in threads, and all of it is bounded."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._picture_form import form_of
from hamtarget.answer import Answer
from hamtarget.codes import Codes, check_finite
from hamtarget.encoders.protocol import Encoder
from hamtarget.encoders.texts.text_inputs import takes_texts
from hamtarget.errors import HamtargetError, InputError, LimitError, ShapeError
from hamtarget.items import Id, Item
from hamtarget.query import Asked, Bounds, Query, RunningBounds, Work
from hamtarget.serve.code_sample import Sampler
from hamtarget.serve.instruments.machine import n_cores
from hamtarget.serve.instruments.meters import Meters
from hamtarget.serve.lanes.coalescing import LATER
from hamtarget.serve.lanes.cost_book import CostBook
from hamtarget.serve.lanes.jobs import (
    DeleteJob,
    Encoded,
    EncodeJob,
    Found,
    Input,
    PictureJob,
    PutJob,
    SearchJob,
    asks_for_items,
    join_encoded,
    logits_of,
    needs_items,
    part_of_hits,
    total,
)
from hamtarget.serve.lanes.memory import Holding
from hamtarget.serve.lanes.showing import Shown, shown_item
from hamtarget.serve.lanes.ties import mixed_ties
from hamtarget.serve.messages.search_messages import (
    AnySearch,
    BatchNearestRequest,
    BatchSearchRequest,
    Histogram,
    Kind,
    NearestRequest,
    SearchRequest,
)
from hamtarget.serve.pictures import Picture, Pictures, read_upload
from hamtarget.serve.problems import Problem
from hamtarget.serve.service_settings import ServiceSettings
from hamtarget.store import Store
from hamtarget.store.defaults import is_made_for_probing
from hamtarget.store.items.encoded_inputs import embeddings_of
from hamtarget.store.vectors.kept_vectors import query_rows, restored_vectors

QUICK_SECONDS = 0.01
"""Time of a batch of quick searches: a search that is expected to take longer goes to the slow lane."""

# A quick search is given up after so many times as long as it was expected to take at most: the machine may be busy.
_PATIENCE = 10
# One that is given up without having worked for long, on a busy machine, is tried again so many times.
_TRIES = 3
# A search in a database waits for the network, and is worth sharing with others for longer.
_DATABASE_FACTOR = 4
# Bytes of payloads that are read at once; larger answers are read in pieces, in the slow lane.
_QUICK_BYTES = 256 * 2**10
# Items are read in the event loop only as long as no read takes longer, as one from a slow disk does.
_HERE_READ_SECONDS = 0.001
# A batch of images that takes longer to decode leaves the rest to the next one.
_DECODING_SECONDS = 0.05

# Unions that were written where they are used would be made anew for each request.
_SEARCHES = (SearchRequest, BatchSearchRequest)
_NEAREST = (NearestRequest, BatchNearestRequest)
_TIED = (SearchRequest, NearestRequest)

_NO_EMBEDDING = "rerank is asked for, and the query has no embedding; send `embedding`, or an id or input"


class TooSlow(Exception):
    """In the place of an answer: the work takes too long for the quick lane."""


_TOO_SLOW = TooSlow()


class ServiceWork:
    """The work of a service's threads. Each method takes the jobs of a batch and answers them in order."""

    def __init__(self, store: Store, settings: ServiceSettings, meters: Meters) -> None:
        self.store = store
        self.sampler = Sampler(store)
        self.pictures = Pictures(settings.image_folders, max_pixels=settings.max_pixels)
        self.searches: list[Kind] = ["search", "nearest", "probe"]
        self.advised: Kind = "search"
        self._settings = settings
        self._meters = meters
        self._encoder: Encoder | None = None
        self._costs = CostBook()
        self._read_seconds = 0.0
        self._tuning = threading.Lock()
        is_folder = isinstance(store.path, Path)
        self.quick_seconds = QUICK_SECONDS * (1 if is_folder else _DATABASE_FACTOR)
        # A core is left to the event loop and to quick searches.
        self.slow_threads = min(settings.threads, max(1, n_cores() - 1))

    def open_encoder(self) -> None:
        """Open the encoder, so that the first request need not wait for it; see what the store can do."""
        if self.store.has_encoder:
            self._encoder = self.store.encoder
        self.advised = "probe" if is_made_for_probing(self.store) else "search"
        if self.store.vectors is not None:
            self.advised = "nearest"
        self._tune_if_grown()

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """Shape of one input; None where there is no encoder."""
        return None if self._encoder is None else tuple(self._encoder.input_shape)

    def encode(self, jobs: Sequence[EncodeJob]) -> list[Encoded | BaseException]:
        """Encode the inputs of each job; all of them go through the encoder at once."""
        arrays: list[NDArray[Any] | BaseException] = []
        late = time.perf_counter() + _DECODING_SECONDS
        for job in jobs:
            if arrays and time.perf_counter() > late:
                arrays.append(LATER)
                continue
            try:
                arrays.append(np.stack([self._array(each, job.holding) for each in job.inputs]))
            except (HamtargetError, Problem) as error:
                arrays.append(error)
        good = [array for array in arrays if isinstance(array, np.ndarray)]
        if self._encoder is None or not good:
            return [error for error in arrays if isinstance(error, BaseException)]
        kind = self.store.embeddings
        keeps_vectors = self.store.vectors is not None
        if kind is not None and not keeps_vectors and kind.n_dims != self.store.n_bits:
            # Then they are not the encoder's: requests bring them.
            kind = None
        began = time.perf_counter()
        inputs = np.concatenate(good)
        logits = self._encoder.logits(inputs)
        codes = np.packbits(logits > 0, axis=1, bitorder="little")
        embeddings = None
        if kind is not None:
            embeddings = query_rows(inputs, kind) if keeps_vectors else embeddings_of(logits, kind)
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

    def expected_seconds(self, job: SearchJob) -> float | None:
        """Return the seconds that a search will take, judged by others like it; None: there was none yet."""
        return self._costs.expected(job.cost_key, len(job.queries.codes))

    def weigh(self, job: SearchJob) -> float:
        """Return the share of a batch of quick searches that a search takes: 1 is all of it."""
        seconds = self.expected_seconds(job)
        if seconds is None:
            return 1.0
        # One that turns out to be slow by now is not searched for at all.
        return 0.0 if seconds > self.quick_seconds else seconds / self.quick_seconds

    def search(self, jobs: Sequence[SearchJob]) -> list[Found | BaseException]:
        """Search for the queries of each job, all that ask for the same at once, as long as it is quick.

        A job that takes longer is answered by `TooSlow`.
        """
        groups: dict[tuple[object, ...], list[int]] = {}
        needs_embeddings = self.store.embeddings is not None
        answers: list[Found | BaseException] = [_TOO_SLOW] * len(jobs)
        for place, job in enumerate(jobs):
            if needs_embeddings and job.asked.rerank is not None and job.queries.embeddings is None:
                answers[place] = InputError(_NO_EMBEDDING)
            elif (self.expected_seconds(job) or 0.0) <= self.quick_seconds:
                # The radius of the second search for ties depends on what the first one finds.
                key = (*job.asked.key, place) if _mixes_ties(job.asked) else job.asked.key
                groups.setdefault(key, []).append(place)
        for places in groups.values():
            found: Sequence[Found | BaseException]
            try:
                found = self._search_together([jobs[place] for place in places])
            except LimitError as error:
                found = [self._given_up(jobs[place], error) for place in places]
            except HamtargetError as error:
                found = [error] * len(places)
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
        self._show_quickly(answers)
        return answers

    def search_here(self, job: SearchJob, *, may_read: bool) -> Found | None:
        """Search for the queries of a job in the caller's thread; None if it might have to wait.

        Args:
            job: the search.
            may_read: True if items may be read as well, where this was quick lately.
        """
        reads = asks_for_items(job.asked)
        if reads and not (may_read and self._read_seconds <= _HERE_READ_SECONDS):
            return None
        if not self.store.is_settled:
            return None
        (answer,) = self.search([job])
        return answer if isinstance(answer, Found) else None

    def search_slowly(self, job: SearchJob, bounds: RunningBounds) -> Found:
        """Search for the queries of a job within the bounds of its request.

        Raises:
            LimitError: it reached one of them.
        """
        if self.store.embeddings is not None and job.asked.rerank is not None and job.queries.embeddings is None:
            raise InputError(_NO_EMBEDDING)
        hits, ms = self._find(job, job.queries, Work(bounds, self.slow_threads, costs=True))
        return self._found(job, hits, ms)

    def show_slowly(self, found: Found, bounds: RunningBounds) -> Found:
        """Add what is told of the hits of one query, whose payloads may be large: they are read in pieces.

        Raises:
            LimitError: they are larger than an answer may be, or it took too long.
        """
        pieces = self.shown_in_pieces(found.hits.ids.tolist(), bounds)
        return replace(found, shown=[shown for piece in pieces for shown in piece])

    def payloads(self, ids: list[Id], bounds: RunningBounds) -> list[str]:
        """Return the payloads of items as JSON, "null" where there is none; they are read in pieces.

        Raises:
            LimitError: they are larger than an answer may be, or it took too long.
        """
        pieces = self.shown_in_pieces(ids, bounds) if ids else ()
        return ["null" if shown is None else shown.payload for piece in pieces for shown in piece]

    def read(self, jobs: Sequence[Sequence[Id]]) -> list[list[Item | None] | BaseException]:
        """Read the items of each job's ids, all at once; one that reads much is answered by `TooSlow`."""
        began = time.perf_counter()
        try:
            items = self.store.get([id for ids in jobs for id in ids], work=Work(Bounds(bytes=_QUICK_BYTES)))
        except LimitError:
            if len(jobs) == 1:
                return [_TOO_SLOW]
            return [answer for job in jobs for answer in self.read([job])]
        # The longest of the last reads, which is forgotten after some dozens of quick ones.
        self._read_seconds = max(time.perf_counter() - began, 0.95 * self._read_seconds)
        answers: list[list[Item | None] | BaseException] = []
        start = 0
        for ids in jobs:
            answers.append(list(items[start : start + len(ids)]))
            start += len(ids)
        return answers

    def read_slowly(self, ids: Sequence[Id], bounds: RunningBounds) -> list[Item | None]:
        """Read items that may be large.

        Raises:
            LimitError: they are larger than an answer may be.
        """
        return self.store.get(ids, work=Work(bounds))

    def histograms(self, jobs: Sequence[Codes]) -> list[Histogram]:
        """Count, for the code of each job, the items at each distance from it, or those of a sample."""
        sample = self.sampler.sample()
        return [sample.histogram(code, self.store.n_bits) for code in jobs]

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
        self._tune_if_grown()
        return answers

    def draw(self, jobs: Sequence[PictureJob]) -> list[Picture | None | BaseException]:
        """Draw the picture of each job; None where there is none to show."""
        answers: list[Picture | None | BaseException] = []
        for job in jobs:
            try:
                name, folder = job.payload.get("image"), job.payload.get("folder")
                answers.append(self.pictures.thumbnail(name, job.side, job.holding, folder=folder))
            except (HamtargetError, Problem) as error:
                answers.append(error)
        return answers

    def _array(self, given: Input, holding: Holding | None) -> NDArray[Any]:
        encoder, shape = self._encoder, self.input_shape
        if encoder is None or shape is None:
            raise InputError("this store has no encoder; search by code or id, and put codes")
        if isinstance(given, str) or takes_texts(encoder):
            if not takes_texts(encoder):
                raise InputError(f"a text is given; this encoder takes inputs of shape {shape}")
            if not isinstance(given, str):
                raise InputError("an image or vector is given; this encoder takes texts")
            return np.array(given, dtype=object)
        if isinstance(given, bytes):
            if len(shape) < 2:
                raise InputError(f"an image is given; this encoder takes vectors of {shape[0]} numbers")
            return read_upload(given, form_of(encoder), max_pixels=self._settings.max_pixels, holding=holding)
        if len(shape) != 1:
            raise InputError(f"a vector is given; this encoder takes images of shape {shape}")
        if len(given) != shape[0]:
            raise ShapeError(f"the vector has {len(given)} numbers; this encoder takes {shape[0]}")
        with np.errstate(over="ignore"):
            array = np.array(given, dtype=np.float32)
        check_finite(array[None], name="vector")
        if self.store.vectors == "cosine" and not array.any():
            raise InputError("the vector is all zeros, which has no cosine; this store compares vectors by cosine")
        return array

    def _search_together(self, jobs: list[SearchJob]) -> list[Found]:
        first = jobs[0]
        queries = first.queries if len(jobs) == 1 else join_encoded([job.queries for job in jobs])
        bounds = Bounds(
            seconds=_PATIENCE * self.quick_seconds, rows=self._settings.max_rows, hits=self._settings.max_found
        )
        hits, ms = self._find(first, queries, Work(bounds, self._settings.threads, costs=True).started())
        if len(jobs) == 1:
            return [self._found(first, hits, ms)]
        answers: list[Found] = []
        start = 0
        for job in jobs:
            stop = start + len(job.queries.codes)
            answers.append(self._found(job, part_of_hits(hits, start, stop), ms))
            start = stop
        return answers

    def _find(self, job: SearchJob, queries: Encoded, work: Work) -> tuple[Answer, float]:
        """Return the hits of queries, and the milliseconds that they took; remember what they cost."""
        began = time.perf_counter()
        asked = job.asked
        if _mixes_ties(asked) and not (isinstance(asked, _NEAREST) and self._finds_vectors(asked, queries)):
            hits = self._ask_mixed(asked, queries, work)
        else:
            hits = self.store.answer(*self._question(asked, queries), work)
        seconds = time.perf_counter() - began
        self._costs.saw(job.cost_key, len(queries.codes), seconds)
        return hits, 1000 * seconds

    def _given_up(self, job: SearchJob, error: LimitError) -> BaseException:
        """Return the answer to a quick search that was given up: later, if the machine was only busy, or too slow."""
        job.n_tries += 1
        expected = self.expected_seconds(job)
        if error.limit == "seconds" and expected is not None and job.n_tries < _TRIES:
            return LATER
        self._costs.gave_up(job.cost_key, _PATIENCE * self.quick_seconds)
        return _TOO_SLOW

    def _question(self, asked: AnySearch, queries: Encoded) -> tuple[Asked, Query]:
        """Return a request as what is asked, and what is wanted."""
        filter = asked.payload_filter
        by_code = Asked(queries.codes, embeddings=None if asked.rerank is None else queries.embeddings)
        if isinstance(asked, _SEARCHES):
            radius = self.store.radius if asked.radius is None else asked.radius
            return by_code, Query(radius, asked.limit, filter=filter, rerank=asked.rerank)
        if isinstance(asked, _NEAREST):
            if self._finds_vectors(asked, queries):
                by_code = Asked(logits=self._vector_logits(queries), embeddings=queries.embeddings)
            return by_code, Query(limit=asked.k, recall=asked.recall, filter=filter, rerank=asked.rerank)
        return Asked(logits=logits_of(queries), embeddings=by_code.embeddings), Query(
            self.store.radius if asked.radius is None else asked.radius,
            asked.hit_limit,
            budget=asked.budget or 1,
            comparisons=asked.comparisons,
            filter=filter,
            rerank=asked.rerank,
        )

    def _ask_mixed(self, asked: AnySearch, queries: Encoded, work: Work) -> Answer:
        """Return the hits of one query, those at equal distance mixed."""
        embedding = None if self.store.embeddings is None else queries.embeddings
        if embedding is not None:
            asked = asked.model_copy(update={"rerank": asked.most_hits})
        hits = self.store.answer(*self._question(asked, queries), work)
        first = Query(limit=asked.most_hits, filter=asked.payload_filter)
        return mixed_ties(self.store, hits, Asked(queries.codes, embeddings=embedding), first, work)

    def _finds_vectors(self, asked: NearestRequest | BatchNearestRequest, queries: Encoded) -> bool:
        """Return True if the nearest vectors are asked for, and not the nearest codes."""
        return (
            self.store.vectors is not None
            and asked.rerank is None
            and asked.form != "code"
            and queries.embeddings is not None
        )

    def _vector_logits(self, queries: Encoded) -> NDArray[np.float32]:
        """Return the logits of vectors; those of items are made anew, since only their signs are kept."""
        kind = self.store.embeddings
        if queries.logits is not None or kind is None or queries.embeddings is None or self._encoder is None:
            return logits_of(queries)
        return self._encoder.logits(restored_vectors(queries.embeddings, kind))

    def _tune_if_grown(self) -> None:
        """Let a thread of its own measure how to search a store of vectors that has grown; writers do not wait."""
        if self._tuning.locked() or not self.store.needs_tuning:
            return
        threading.Thread(target=self._tune, name="tuning", daemon=True).start()

    def _tune(self) -> None:
        # The service may end meanwhile: the next one tunes the store then.
        if self._tuning.acquire(blocking=False):
            try:
                with contextlib.suppress(HamtargetError):
                    self.store.tune(work=Work(threads=self.slow_threads))
            finally:
                self._tuning.release()

    def _found(self, job: SearchJob, hits: Answer, ms: float) -> Found:
        if hits.costs is None:
            raise TypeError("the store did not tell the costs of a search")
        # One entry for a batch, its mean: thousands of entries would take longer than the search.
        self._meters.candidates.observe(total(hits.costs.candidates) / len(hits))
        self._meters.comparisons.observe(total(hits.costs.comparisons) / len(hits))
        return Found(job, hits, hits.costs, ms)

    def _show_quickly(self, answers: list[Found | BaseException]) -> None:
        """Add what is told of the hits, of all answers at once; `TooSlow` in place of an answer that is large."""
        places = [place for place, answer in enumerate(answers) if isinstance(answer, Found) and needs_items(answer)]
        wanted = [answers[place].hits.ids.tolist() for place in places]  # type: ignore[union-attr]
        if not places:
            return
        for place, items in zip(places, self.read(wanted), strict=True):
            answer = answers[place]
            if isinstance(items, BaseException):
                # Its hits are known; only its payloads are read in the slow lane.
                continue
            if isinstance(answer, Found):
                answers[place] = replace(answer, shown=[shown_item(item, self.pictures) for item in items])

    def shown_in_pieces(self, ids: list[Id], bounds: RunningBounds) -> Iterator[list[Shown | None]]:
        """Yield what is told of items, few at a time; a single item may be as large as the bounds allow."""
        bounds.check()
        if len(ids) == 1:
            yield [shown_item(item, self.pictures) for item in self.store.get(ids, work=Work(bounds))]
            return
        small = Work(Bounds(seconds=max(0.0, bounds.seconds_left), bytes=_QUICK_BYTES))
        try:
            shown = [shown_item(item, self.pictures) for item in self.store.get(ids, work=small)]
        except LimitError as error:
            if error.limit != "bytes":
                raise
        else:
            # They are in memory already, but they are few.
            bounds.take(bytes=sum(len(each.payload) for each in shown if each is not None))
            yield shown
            return
        middle = len(ids) // 2
        yield from self.shown_in_pieces(ids[:middle], bounds)
        yield from self.shown_in_pieces(ids[middle:], bounds)

    def _write_one(self, job: PutJob | DeleteJob) -> int:
        if isinstance(job, DeleteJob):
            return self.store.delete([job.id])
        if job.counts is not None:
            return self.store.put(job.items())
        self.store.put_rows(job.ids, codes=job.codes, embeddings=job.embeddings, payloads=job.payloads)
        return len(job.ids)


def _mixes_ties(asked: AnySearch) -> bool:
    return isinstance(asked, _TIED) and asked.ties == "mixed" and asked.rerank is None
