"""The service without its HTTP: it passes requests, in order, to the encoder, the index and the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request

from hamtarget.codes import Codes, check_finite, from_logits
from hamtarget.errors import HamtargetError, InputError, LimitError
from hamtarget.items import Id, Item
from hamtarget.search.limits import Limits
from hamtarget.serve import messages
from hamtarget.serve.code_map import Cartographer
from hamtarget.serve.group_messages import GroupMembersRequest, GroupsRequest
from hamtarget.serve.instruments.meters import Meters
from hamtarget.serve.lanes.askers import Asker, SlowLane, asker_of
from hamtarget.serve.lanes.coalescing import Coalescer
from hamtarget.serve.lanes.cost_book import Slices
from hamtarget.serve.lanes.grouping import Grouping, ShownGroups, ShownMembers
from hamtarget.serve.lanes.match_work import Matched, match_slowly
from hamtarget.serve.lanes.memory import MemoryAccount
from hamtarget.serve.lanes.work import (
    DeleteJob,
    Encoded,
    EncodeJob,
    Found,
    Input,
    PictureJob,
    PutJob,
    SearchJob,
    TooSlow,
    Work,
    join_encoded,
    join_found,
    needs_items,
    part_of,
    total,
)
from hamtarget.serve.match_messages import MatchRequest
from hamtarget.serve.pictures import Picture
from hamtarget.serve.problems import Problem, busy, not_found, too_much
from hamtarget.serve.puts import PreparedItems, n_codes_of, prepare_items
from hamtarget.serve.service_settings import ServiceSettings
from hamtarget.store import Store
from hamtarget.store.probe_defaults import probing_defaults

# Rows of one batch, at most, so that requests which come meanwhile need not wait long.
_ENCODED_ROWS = 64
_WRITTEN_ROWS = 10_000
_READ_ROWS = 1024
_SAMPLED_ROWS = 64
# Each picture is a request of its own, and a page asks for many at once.
_PICTURES_WAITING = 1024
# A search that takes less is done in the event loop: handing it to a thread would take longer.
_HERE_SECONDS = 0.0002
# A long search gives way to those of other clients after so many seconds.
_TURN_SECONDS = 0.1
# More numbers or items than these are converted in the slow lane, not in the event loop.
_MANY_ROWS = 64
_MANY_HITS = 2000
_MUCH_MEMORY = 2**20


_SEARCHES = (messages.SearchRequest, messages.BatchSearchRequest)
_NEAREST = (messages.NearestRequest, messages.BatchNearestRequest)


class Service:
    """A store, and the queues in front of its encoder, its index and its files.

    Searches have two queues. All are tried in the quick lane, where those of all clients that ask for the same are one
    search, unless searches of their kind took long lately. What takes longer than a few milliseconds goes to the slow
    lane, where clients take turns and long searches are done in parts.
    """

    def __init__(self, store: Store, settings: ServiceSettings) -> None:
        self.store = store
        self.settings = settings
        self.meters = Meters()
        self.memory = MemoryAccount(settings.max_held_bytes, settings.max_request_bytes)
        self.work = Work(store, settings, self.meters)
        self._grouping = Grouping(self.work, settings.threads)
        self._cartographer = Cartographer(store)
        self.is_ready = False
        # True also where another process makes the changes.
        self.takes_changes = not store.read_only
        # Limits of the requests under way; one that is answered goes by itself.
        self._running: WeakSet[Limits] = WeakSet()
        self._is_cancelled = False
        self._n_searches = 0
        self._encoding: Coalescer[EncodeJob, Encoded] = self._lane("encode", self.work.encode, _ENCODED_ROWS)
        self._searching: Coalescer[SearchJob, Found] = self._lane(
            "search", self.work.search, 1.0, weigh=self.work.weigh
        )
        self._reading: Coalescer[list[Id], list[Item | None]] = self._lane("read", self.work.read, _READ_ROWS)
        self._writing: Coalescer[PutJob | DeleteJob, int] = self._lane("write", self.work.write, _WRITTEN_ROWS)
        self._drawing: Coalescer[PictureJob, Picture | None] = Coalescer(
            "draw", self.work.draw, most_rows=1, most_waiting=_PICTURES_WAITING, meters=self.meters
        )
        self._sampling: Coalescer[Codes, messages.Histogram] = self._lane("sample", self.work.histograms, _SAMPLED_ROWS)
        self._slow: SlowLane = self._lane("slow", _call_each, 1, gives_way=True)

    def _lane(
        self,
        name: str,
        work: Callable[[Sequence[Any]], Sequence[Any]],
        most_rows: float,
        *,
        weigh: Callable[[Any], float] | None = None,
        gives_way: bool = False,
    ) -> Coalescer[Any, Any]:
        return Coalescer(
            name,
            work,
            most_rows=most_rows,
            most_waiting=self.settings.max_waiting,
            most_waiting_each=self.settings.max_waiting_each,
            meters=self.meters,
            weigh=weigh,
            gives_way=gives_way,
        )

    async def start(self) -> None:
        """Open the encoder and take requests."""
        await asyncio.to_thread(self.work.open_encoder)
        self.is_ready = True

    async def drain(self, seconds: float | None = None) -> None:
        """Take no more requests, and wait until all that were taken are answered.

        Args:
            seconds: seconds to wait, at most; None: as long as it takes.

        Raises:
            TimeoutError: some work does not end; its thread still uses the store.
        """
        self.is_ready = False
        self._grouping.end()
        lanes = (self._encoding, self._searching, self._reading, self._writing, self._drawing, self._sampling)
        async with asyncio.timeout(seconds):
            for lane in (*lanes, self._slow):
                await lane.drain()

    def cancel(self) -> None:
        """Take no more requests, and cancel what runs for those that were taken; they are refused."""
        self.is_ready = False
        self._is_cancelled = True
        self._grouping.end()
        for limits in list(self._running):
            limits.cancel()

    def asker(self, request: Request) -> Asker:
        """Return who asks, with the limits of the request; its clock starts now."""
        return asker_of(request, self.settings, self.memory, self._slow, self._note_running)

    def _note_running(self, limits: Limits) -> None:
        self._running.add(limits)
        if self._is_cancelled:
            limits.cancel()

    async def search(self, asked: messages.OneQuery, asker: Asker) -> Found:
        """Search for one query, and return its hits with their items."""
        if bounds := await self._open_bounds(asked):
            asked = asked.model_copy(update=bounds)
        self._check_hits(asked, 1)
        if (asked.payload or asked.codes) and asked.most_hits > self.settings.max_items:
            most = self.settings.max_items
            raise _refused(f"hits come with payloads or codes {most:,} at a time; ask for fewer, or without")
        query = await self._query(asked, asker)
        self._n_searches += 1
        try:
            found = await self._find(SearchJob(asked, query, asked.cost_key), asker)
        finally:
            self._n_searches -= 1
        if needs_items(found):
            found = await self._slowly(asker, partial(self.work.show_slowly, found, asker.limits))
        if asked.histogram:
            code = query.codes[:1]
            found = replace(found, histogram=await self._sampling.submit(code, client=asker.client))
        return found

    async def groups(self, asked: GroupsRequest, asker: Asker) -> ShownGroups:
        """Return a page of groups of near duplicates."""
        if asked.limit * asked.members > self.settings.max_items:
            raise _refused(
                f"{asked.limit:,} groups of up to {asked.members:,} members may give more than "
                f"{self.settings.max_items:,} items; ask for fewer"
            )
        found: ShownGroups = await self._slowly(asker, partial(self._grouping.page, asked, asker.limits))
        return found

    async def group_members(self, asked: GroupMembersRequest, asker: Asker) -> ShownMembers:
        """Return members of one group."""
        if asked.limit > self.settings.max_items:
            raise _refused(f"limit is {asked.limit:,}; ask for at most {self.settings.max_items:,} members at a time")
        found: ShownMembers = await self._slowly(asker, partial(self._grouping.members, asked, asker.limits))
        return found

    async def search_batch(self, asked: messages.ManyQueries, asker: Asker) -> Found:
        """Search for many queries, and return their hits."""
        if bounds := await self._open_bounds(asked):
            asked = asked.model_copy(update=bounds)
        queries = await self._queries(asked, asker)
        return await self._find(SearchJob(asked, queries, asked.cost_key), asker)

    async def match(self, asked: MatchRequest, asker: Asker) -> Matched:
        """Match several codes of one query, in the slow lane, and return items with their payloads."""
        if asked.limit > min(self.settings.max_hits, self.settings.max_items if asked.payload else asked.limit):
            raise _refused(f"limit is {asked.limit:,}; ask for fewer matches, or without payloads")
        queries = await self._match_queries(asked, asker)
        matched: Matched = await self._slowly(asker, partial(match_slowly, self.work, asked, queries, asker.limits))
        asker.facts.hits += len(matched.matches)
        return matched

    async def _match_queries(self, asked: MatchRequest, asker: Asker) -> Encoded:
        """Return the codes of the query of a match."""
        given = (asked.codes, asked.vectors, asked.images, asked.texts, asked.id)
        if sum(each is not None for each in given) != 1:
            raise _refused("give one of codes, vectors, images, texts and id")
        if asked.codes is not None:
            return Encoded(self._codes(asked.codes))
        if asked.id is not None:
            item = await self.item(asked.id, asker)
            return Encoded(np.asarray([item.code] if item.codes is None else item.codes, dtype=np.uint8))
        if asked.images is not None:
            # An image takes long to decode: each is a job, so that others can come between.
            jobs = (EncodeJob([image], asker.holding) for image in asked.images)
            return join_encoded(
                await asyncio.gather(*(self._encoding.submit(job, client=asker.client) for job in jobs))
            )
        return await self._encoded(asked.vectors or asked.texts or [], asker)

    async def written(self, asker: Asker, write: Callable[[], bytes], n_hits: int) -> bytes:
        """Return an answer that `write` writes: here if it is small, else in the slow lane."""
        is_small = n_hits <= _MANY_HITS and asker.holding.held <= _MUCH_MEMORY
        body: bytes = write() if is_small else await self._slowly(asker, write)
        asker.holding.take(len(body))
        return body

    async def put(self, items: list[messages.ItemIn], asker: Asker) -> int:
        """Put items, all or none; return their number once they are on disk."""
        self._check_writable()
        if len(items) > self.settings.max_items:
            raise _refused(f"there are {len(items):,} items; send at most {self.settings.max_items:,} at a time")
        n_codes = n_codes_of(items)
        if n_codes > self.settings.max_items:
            raise _refused(f"there are {n_codes:,} codes; send at most {self.settings.max_items:,} at a time")
        is_large = n_codes > _MANY_ROWS or any((item.embedding or item.embeddings) is not None for item in items)
        prepare = partial(prepare_items, items, self.store.n_bits, self._codes, self._embedding)
        job = await self._slowly(asker, prepare) if is_large else prepare()
        for start in range(0, len(job.inputs), _ENCODED_ROWS):
            places = list(job.inputs)[start : start + _ENCODED_ROWS]
            # An image takes long to decode: each is a job, so that others can come between.
            made = await asyncio.gather(
                *(
                    self._encoding.submit(EncodeJob([job.inputs[place]], asker.holding), client=asker.client)
                    for place in places
                )
            )
            for place, encoded in zip(places, made, strict=True):
                job.codes[place] = encoded.codes[0]
                if job.embeddings[place] is None and encoded.embeddings is not None:
                    job.embeddings[place] = encoded.embeddings[0]
        rows = self._rows_of_embeddings(job)
        put = PutJob(job.ids, job.codes, rows, job.payloads, job.counts if len(job.codes) > len(items) else None)
        return await self._writing.submit(put, rows=len(job.codes), client=asker.client)

    async def delete(self, id: Id, asker: Asker) -> None:
        """Delete an item; it is gone from the disk, too, on return."""
        self._check_writable()
        if await self._writing.submit(DeleteJob(id), client=asker.client) == 0:
            raise not_found("there is no item of this id")

    async def item(self, id: Id, asker: Asker) -> Item:
        """Return the item of an id."""
        try:
            (item,) = await self._reading.submit([id], client=asker.client)
        except TooSlow:
            (item,) = await self._slowly(asker, partial(self.work.read_slowly, [id], asker.limits))
        if item is None:
            raise not_found("there is no item of this id")
        return item

    async def picture(self, id: Id, side: int, asker: Asker) -> Picture:
        """Return an item's picture, at most `side` pixels wide and high."""
        item = await self.item(id, asker)
        job = PictureJob(item.payload or {}, side, asker.holding)
        drawn = await self._drawing.submit(job, client=asker.client)
        if drawn is None:
            raise not_found("this item has no image in a folder that is served (--images)")
        return drawn

    async def map(self, n: int, asker: Asker) -> bytes:
        """Return the map of `n` items as an answer."""
        draw = partial(self._cartographer.draw, n, asker.limits, asker.holding)
        body: bytes = await self._slowly(asker, lambda: draw().body())
        asker.holding.take(len(body))
        return body

    def has_image(self, item: Item) -> bool:
        """Return True if the item may have a picture."""
        return bool(self.work.pictures) and isinstance((item.payload or {}).get("image"), str)

    async def _find(self, job: SearchJob, asker: Asker) -> Found:
        """Return what is found, by the quick lane or, if it takes longer, by the slow one."""
        expected = self.work.expected_seconds(job)
        # Who has slow work waiting does not try out in the quick lane what else may be slow.
        is_quick = not self._slow.has_waiting(asker.client) if expected is None else expected <= self.work.quick_seconds
        found = None
        if expected is not None and expected <= _HERE_SECONDS:
            # Items of several requests are better read at once, but not if they would have to wait for that.
            found = self.work.search_here(job, may_read=self._n_searches == 1 or self._searching.is_busy)
        if found is None and is_quick:
            try:
                found = await self._searching.submit(job, rows=len(job.queries.codes), client=asker.client)
            except TooSlow:
                asker.is_admitted = True
        if found is None:
            found = await self._find_slowly(job, asker)
        asker.facts.rows += total(found.costs.candidates)
        asker.facts.hits += len(found.hits.rows)
        return found

    async def _find_slowly(self, job: SearchJob, asker: Asker) -> Found:
        """Search in the slow lane, in parts, so that other clients' searches can come between."""
        n_queries = len(job.queries.codes)
        expected = self.work.expected_seconds(job)
        slices = Slices(_TURN_SECONDS, None if expected is None else expected / n_queries)
        parts: list[Found] = []
        start = 0
        while start < n_queries:
            stop = min(n_queries, start + slices.size)
            part = job if stop - start == n_queries else part_of(job, start, stop)
            parts.append(await self._slowly(asker, partial(self.work.search_slowly, part, asker.limits)))
            slices.took(stop - start, parts[-1].ms / 1000)
            start = stop
        join = partial(join_found, job, parts)
        n_hits = sum(len(part.hits.rows) for part in parts)
        found: Found = join() if n_hits <= _MANY_HITS else await self._slowly(asker, join)
        return found

    async def _slowly(self, asker: Asker, work: Callable[[], Any]) -> Any:
        """Return what `work` returns in the slow lane; refuse the request if it reaches its limits."""
        try:
            return await asker.slowly(work)
        except LimitError as error:
            raise _limited(error, self.settings) from None

    def _rows_of_embeddings(self, job: PreparedItems) -> NDArray[Any] | None:
        kind = self.store.embeddings
        if kind is None:
            return None
        missing = next((place for place, each in enumerate(job.embeddings) if each is None), None)
        if missing is not None:
            item = int(np.searchsorted(np.cumsum(job.counts), missing, side="right"))
            raise _refused(f"item {item} has no embedding; this store keeps {kind.n_dims} numbers for each code")
        return np.stack(job.embeddings)

    async def _open_bounds(self, asked: messages.AnySearch) -> dict[str, int]:
        """Return the store's radius and budget as far as a request leaves them open."""
        if isinstance(asked, _SEARCHES):
            return {} if asked.radius is not None else {"radius": self.store.radius}
        if isinstance(asked, _NEAREST):
            return {}
        if asked.radius is not None and asked.budget is not None:
            return {}
        usual = await asyncio.to_thread(probing_defaults, self.store)
        radius = usual.radius if asked.radius is None else asked.radius
        return {"radius": radius, "budget": asked.budget or usual.budget}

    async def _query(self, asked: messages.OneQuery, asker: Asker) -> Encoded:
        """Return the code of a query and, as far as they are known, its logits and embedding."""
        logits = asked.logits if isinstance(asked, messages.ProbeRequest) else None
        if sum(each is not None for each in (asked.code, asked.vector, asked.image, asked.text, asked.id, logits)) != 1:
            raise _refused(f"give one of {_choices(asked, 'code, vector, image, text and id')}")
        embedding = None if asked.embedding is None else self._embedding(asked.embedding)[None]
        if logits is not None:
            return self._from_logits([logits], embedding)
        if asked.code is not None:
            return Encoded(self._codes([asked.code]), embeddings=embedding)
        if asked.id is not None:
            item = await self.item(asked.id, asker)
            if item.codes is not None:
                raise _refused(f"this item has {len(np.asarray(item.codes))} codes; search by one code, or /v1/match")
            if embedding is None and item.embedding is not None:
                embedding = np.asarray(item.embedding)[None]
            return Encoded(np.asarray(item.code, dtype=np.uint8)[None], embeddings=embedding)
        job = EncodeJob([_input_of(asked)], asker.holding)
        made = await self._encoding.submit(job, client=asker.client)
        return made if embedding is None else replace(made, embeddings=embedding)

    async def _queries(self, asked: messages.ManyQueries, asker: Asker) -> Encoded:
        """Return the codes of many queries and, as far as they are known, their logits and embeddings."""
        logits = asked.logits if isinstance(asked, messages.BatchProbeRequest) else None
        given = [
            each for each in (asked.codes, asked.codes_base64, asked.vectors, asked.texts, logits) if each is not None
        ]
        if len(given) != 1:
            raise _refused(f"give one of {_choices(asked, 'codes, codes_base64, vectors and texts')}")
        n_queries = len(given[0]) if asked.codes_base64 is None else len(asked.codes_base64) // (self.store.n_bits // 8)
        if n_queries > self.settings.max_queries:
            most = self.settings.max_queries
            raise _refused(f"there are {n_queries:,} queries; send at most {most:,} at a time")
        self._check_hits(asked, n_queries)
        embeddings = None
        if asked.embedding is not None:
            if len(asked.embedding) != n_queries:
                raise _refused(
                    f"there are {len(asked.embedding):,} embeddings for {n_queries:,} queries; send one each"
                )
            stack = partial(self._stacked, asked.embedding)
            embeddings = stack() if n_queries <= _MANY_ROWS else await self._slowly(asker, stack)
        if logits is not None:
            convert = partial(self._from_logits, logits, embeddings)
            return convert() if n_queries <= _MANY_ROWS else await self._slowly(asker, convert)
        inputs = asked.vectors if asked.vectors is not None else asked.texts
        if inputs is not None:
            made = await self._encoded(inputs, asker)
            return made if embeddings is None else replace(made, embeddings=embeddings)
        if asked.codes is not None:
            return Encoded(self._codes(asked.codes), embeddings=embeddings)
        packed = asked.codes_base64 or b""
        n_bytes = self.store.n_bits // 8
        if not packed or len(packed) % n_bytes:
            raise _refused(f"codes_base64 holds {len(packed):,} bytes; expected a multiple of {n_bytes}, one code each")
        return Encoded(np.frombuffer(packed, dtype=np.uint8).reshape(-1, n_bytes), embeddings=embeddings)

    async def _encoded(self, inputs: Sequence[Input], asker: Asker) -> Encoded:
        """Encode vectors or texts, a few at a time, so that others' can come between."""
        parts = []
        for start in range(0, len(inputs), _ENCODED_ROWS):
            part = EncodeJob(list(inputs[start : start + _ENCODED_ROWS]))
            parts.append(await self._encoding.submit(part, rows=len(part.inputs), client=asker.client))
        return join_encoded(parts)

    def _stacked(self, rows: list[list[float]]) -> NDArray[Any]:
        return np.stack([self._embedding(row) for row in rows])

    def _codes(self, texts: list[str]) -> Codes:
        n_bits = self.store.n_bits
        for text in texts:
            if len(text) * 4 != n_bits:
                raise _refused(
                    f"the code has {len(text)} hexadecimal digits; expected {n_bits // 4}, for codes of {n_bits} bits"
                )
        return np.frombuffer(bytes.fromhex("".join(texts)), dtype=np.uint8).reshape(-1, n_bits // 8)

    def _from_logits(self, rows: list[list[float]], embeddings: NDArray[Any] | None) -> Encoded:
        for row in rows:
            if len(row) != self.store.n_bits:
                raise _refused(f"there are {len(row)} logits; expected {self.store.n_bits}, one for each bit")
        with np.errstate(over="ignore"):
            logits = np.array(rows, dtype=np.float32)
        check_finite(logits, name="logits")
        return Encoded(from_logits(logits), logits, embeddings)

    def _embedding(self, numbers: list[float]) -> NDArray[Any]:
        kind = self.store.embeddings
        if kind is None:
            raise _refused("an embedding is given; this store keeps none")
        with np.errstate(all="ignore"):
            row = np.array(numbers, dtype=np.float64)
            if kind.dtype == "int8":
                if bool((row != np.rint(row)).any()) or bool((np.abs(row) > 127).any()):
                    raise _refused("the embedding holds numbers that are not int8; scale and round it first")
                row = row.astype(np.int8)
            try:
                checked = kind.check(row, n_rows=1, name="embedding")
            except InputError as error:
                raise _refused(str(error)) from error
        embedding: NDArray[Any] = checked[0]
        return embedding

    def _check_hits(self, asked: messages.AnySearch, n_queries: int) -> None:
        most = self.settings.max_hits
        if asked.most_hits * n_queries > most:
            raise _refused(
                f"{n_queries:,} {'query' if n_queries == 1 else 'queries'} of up to {asked.most_hits:,} hits may give "
                f"more than {most:,}; ask for fewer"
            )

    def _check_writable(self) -> None:
        if self.store.read_only:
            raise Problem(403, "read_only", "this service takes no changes; it was not started with --writable")


def _call_each(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    answers: list[Any] = []
    for job in jobs:
        try:
            answers.append(job())
        except (HamtargetError, Problem) as error:
            answers.append(error)
    return answers


def _limited(error: LimitError, settings: ServiceSettings) -> Problem:
    """Return the refusal of a request that reached one of its limits."""
    if error.limit == "seconds":
        seconds = settings.deadline
        return Problem(504, "deadline", f"the request took more than {seconds:g} s; ask for less, or try again")
    if error.limit == "rows":
        return too_much("rows", settings.max_rows, "use a smaller radius, or send fewer queries")
    if error.limit == "hits":
        return too_much("hits", settings.max_found, "use a smaller radius, or send fewer queries")
    if error.limit == "bytes":
        return too_much("bytes", settings.max_answer_bytes, "ask for fewer hits, or without payloads")
    return busy("the request was given up because the service is ending; try again")


def _refused(message: str) -> Problem:
    return Problem(422, "input", message)


def _input_of(given: messages.OneQuery) -> Input:
    """Return what the encoder is to take: the image, text or vector."""
    if given.image is not None:
        return given.image
    return given.text if given.text is not None else given.vector or []


def _choices(asked: messages.AnySearch, names: str) -> str:
    """Return the names of the fields that can be a query of this request."""
    return f"logits, {names}" if asked.kind == "probe" else names
