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

from hamtarget.codes import Codes
from hamtarget.errors import HamtargetError, LimitError
from hamtarget.items import Id, Item
from hamtarget.query import RunningBounds
from hamtarget.serve.code_map import Cartographer
from hamtarget.serve.instruments.meters import Meters
from hamtarget.serve.lanes.askers import Asker, SlowLane, asker_of
from hamtarget.serve.lanes.coalescing import Coalescer
from hamtarget.serve.lanes.cost_book import Slices
from hamtarget.serve.lanes.grouping import Grouping, ShownGroups, ShownMembers
from hamtarget.serve.lanes.jobs import (
    DeleteJob,
    Encoded,
    EncodeJob,
    Found,
    PictureJob,
    PutJob,
    SearchJob,
    join_found,
    needs_items,
    part_of,
    total,
)
from hamtarget.serve.lanes.match_work import Matched, match_slowly
from hamtarget.serve.lanes.memory import MemoryAccount
from hamtarget.serve.lanes.work import ServiceWork, TooSlow
from hamtarget.serve.messages.group_messages import GroupMembersRequest, GroupsRequest
from hamtarget.serve.messages.item_messages import ItemIn
from hamtarget.serve.messages.match_messages import MatchRequest
from hamtarget.serve.messages.search_messages import (
    AnySearch,
    BatchNearestRequest,
    BatchSearchRequest,
    Histogram,
    ManyQueries,
    NearestRequest,
    OneQuery,
    SearchRequest,
)
from hamtarget.serve.pictures import Picture
from hamtarget.serve.problems import Problem, busy, not_found, refused, too_much
from hamtarget.serve.puts import PreparedItems, n_codes_of, prepare_items
from hamtarget.serve.queries import ENCODED_ROWS, MANY_ROWS, Queries
from hamtarget.serve.service_settings import ServiceSettings
from hamtarget.store import Store
from hamtarget.store.defaults import probing_defaults

# Rows of one batch, at most, so that requests which come meanwhile need not wait long.
_WRITTEN_ROWS = 10_000
_READ_ROWS = 1024
_SAMPLED_ROWS = 64
# Each picture is a request of its own, and a page asks for many at once.
_PICTURES_WAITING = 1024
# A search that takes less is done in the event loop: handing it to a thread would take longer.
_HERE_SECONDS = 0.0002
# A long search gives way to those of other clients after so many seconds.
_TURN_SECONDS = 0.1
# More hits, or more memory, than these are converted in the slow lane, not in the event loop.
_MANY_HITS = 2000
_MUCH_MEMORY = 2**20


_SEARCHES = (SearchRequest, BatchSearchRequest)
_NEAREST = (NearestRequest, BatchNearestRequest)


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
        self.work = ServiceWork(store, settings, self.meters)
        self._grouping = Grouping(self.work, settings.threads)
        self._cartographer = Cartographer(store)
        self.is_ready = False
        # True also where another process makes the changes.
        self.takes_changes = not store.read_only
        # Bounds of the requests under way; one that is answered goes by itself.
        self._running: WeakSet[RunningBounds] = WeakSet()
        self._is_cancelled = False
        self._n_searches = 0
        self._encoding: Coalescer[EncodeJob, Encoded] = self._lane("encode", self.work.encode, ENCODED_ROWS)
        self._searching: Coalescer[SearchJob, Found] = self._lane(
            "search", self.work.search, 1.0, weigh=self.work.weigh
        )
        self._reading: Coalescer[list[Id], list[Item | None]] = self._lane("read", self.work.read, _READ_ROWS)
        self._writing: Coalescer[PutJob | DeleteJob, int] = self._lane("write", self.work.write, _WRITTEN_ROWS)
        self._drawing: Coalescer[PictureJob, Picture | None] = Coalescer(
            "draw", self.work.draw, most_rows=1, most_waiting=_PICTURES_WAITING, meters=self.meters
        )
        self._sampling: Coalescer[Codes, Histogram] = self._lane("sample", self.work.histograms, _SAMPLED_ROWS)
        self._slow: SlowLane = self._lane("slow", _call_each, 1, gives_way=True)
        self._queries = Queries(store, settings, self._encoding, self.item, self._slowly)

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
        for bounds in list(self._running):
            bounds.cancel()

    def asker(self, request: Request) -> Asker:
        """Return who asks, with the limits of the request; its clock starts now."""
        return asker_of(request, self.settings, self.memory, self._slow, self._note_running)

    def _note_running(self, bounds: RunningBounds) -> None:
        self._running.add(bounds)
        if self._is_cancelled:
            bounds.cancel()

    async def search(self, asked: OneQuery, asker: Asker) -> Found:
        """Search for one query, and return its hits with their items."""
        if bounds := await self._open_bounds(asked):
            asked = asked.model_copy(update=bounds)
        self._queries.check_hits(asked, 1)
        if (asked.payload or asked.codes) and asked.most_hits > self.settings.max_items:
            most = self.settings.max_items
            raise refused(f"hits come with payloads or codes {most:,} at a time; ask for fewer, or without")
        query = await self._queries.of_one(asked, asker)
        self._n_searches += 1
        try:
            found = await self._find(SearchJob(asked, query, asked.cost_key), asker)
        finally:
            self._n_searches -= 1
        if needs_items(found):
            found = await self._slowly(asker, partial(self.work.show_slowly, found, asker.bounds))
        if asked.histogram:
            code = query.codes[:1]
            found = replace(found, histogram=await self._sampling.submit(code, client=asker.client))
        return found

    async def groups(self, asked: GroupsRequest, asker: Asker) -> ShownGroups:
        """Return a page of groups of near duplicates."""
        if asked.limit * asked.members > self.settings.max_items:
            raise refused(
                f"{asked.limit:,} groups of up to {asked.members:,} members may give more than "
                f"{self.settings.max_items:,} items; ask for fewer"
            )
        found: ShownGroups = await self._slowly(asker, partial(self._grouping.page, asked, asker.bounds))
        return found

    async def group_members(self, asked: GroupMembersRequest, asker: Asker) -> ShownMembers:
        """Return members of one group."""
        if asked.limit > self.settings.max_items:
            raise refused(f"limit is {asked.limit:,}; ask for at most {self.settings.max_items:,} members at a time")
        found: ShownMembers = await self._slowly(asker, partial(self._grouping.members, asked, asker.bounds))
        return found

    async def search_batch(self, asked: ManyQueries, asker: Asker) -> Found:
        """Search for many queries, and return their hits."""
        if bounds := await self._open_bounds(asked):
            asked = asked.model_copy(update=bounds)
        queries = await self._queries.of_many(asked, asker)
        return await self._find(SearchJob(asked, queries, asked.cost_key), asker)

    async def match(self, asked: MatchRequest, asker: Asker) -> Matched:
        """Match several codes of one query, in the slow lane, and return items with their payloads."""
        if asked.limit > min(self.settings.max_hits, self.settings.max_items if asked.payload else asked.limit):
            raise refused(f"limit is {asked.limit:,}; ask for fewer matches, or without payloads")
        queries = await self._queries.of_match(asked, asker)
        matched: Matched = await self._slowly(asker, partial(match_slowly, self.work, asked, queries, asker.bounds))
        asker.facts.hits += len(matched.matches)
        return matched

    async def written(self, asker: Asker, write: Callable[[], bytes], n_hits: int) -> bytes:
        """Return an answer that `write` writes: here if it is small, else in the slow lane."""
        is_small = n_hits <= _MANY_HITS and asker.holding.held <= _MUCH_MEMORY
        body: bytes = write() if is_small else await self._slowly(asker, write)
        asker.holding.take(len(body))
        return body

    async def put(self, items: list[ItemIn], asker: Asker) -> int:
        """Put items, all or none; return their number once they are on disk."""
        self._check_writable()
        if len(items) > self.settings.max_items:
            raise refused(f"there are {len(items):,} items; send at most {self.settings.max_items:,} at a time")
        n_codes = n_codes_of(items)
        if n_codes > self.settings.max_items:
            raise refused(f"there are {n_codes:,} codes; send at most {self.settings.max_items:,} at a time")
        is_large = n_codes > MANY_ROWS or any((item.embedding or item.embeddings) is not None for item in items)
        prepare = partial(prepare_items, items, self.store.n_bits, self._queries.codes, self._queries.embedding)
        job = await self._slowly(asker, prepare) if is_large else prepare()
        for start in range(0, len(job.inputs), ENCODED_ROWS):
            places = list(job.inputs)[start : start + ENCODED_ROWS]
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
            (item,) = await self._slowly(asker, partial(self.work.read_slowly, [id], asker.bounds))
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
        draw = partial(self._cartographer.draw, n, asker.bounds, asker.holding)
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
            parts.append(await self._slowly(asker, partial(self.work.search_slowly, part, asker.bounds)))
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
            raise refused(f"item {item} has no embedding; this store keeps {kind.n_dims} numbers for each code")
        return np.stack(job.embeddings)

    async def _open_bounds(self, asked: AnySearch) -> dict[str, int]:
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
