"""Answers as JSON: hits, items and figures of the library as documents."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hamtarget.items import Id, Item
from hamtarget.serve.lanes.grouping import ShownGroups, ShownMembers
from hamtarget.serve.lanes.jobs import Found
from hamtarget.serve.lanes.match_work import Matched
from hamtarget.serve.lanes.showing import hex_codes, payload_json
from hamtarget.serve.messages.match_messages import MatchRequest
from hamtarget.serve.messages.search_messages import OneQuery
from hamtarget.serve.pictures import Pictures
from hamtarget.serve.problems import Problem
from hamtarget.store.groups.results import Member

_JSON = "application/json"
_DECIMALS = 4
# A larger answer is sent in parts, so that what the client has not read yet stays here, where it is counted.
_PART_BYTES = 256 * 2**10
# Numbers of a list that are written at once: the interpreter is not held up for longer than by a small request.
_NUMBERS_AT_ONCE = 1024

# `json.dumps` would make an encoder for each call.
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class AnswerBody(Response):
    """An answer that is at hand as bytes; a large one is sent as fast as the client reads it."""

    def __init__(self, body: bytes, media_type: str = _JSON, headers: dict[str, str] | None = None) -> None:
        super().__init__(body, media_type=media_type, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        body = self.body
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for start in range(0, max(len(body), 1), _PART_BYTES):
            stop = start + _PART_BYTES
            await send({"type": "http.response.body", "body": bytes(body[start:stop]), "more_body": stop < len(body)})


def json_response(content: object) -> Response:
    """Return an answer with this content as JSON."""
    return AnswerBody(_json(content).encode())


def search_body(asked: OneQuery, found: Found) -> bytes:
    """Return the answer to a search for one query."""
    hits = ",".join(_hits(asked, found))
    searched, queries, cost = found.job.asked, found.job.queries, found.costs[0]
    is_ranked = asked.rerank is not None or (asked.kind != "probe" and asked.ties == "mixed")
    embedding = None if not is_ranked or queries.embeddings is None else queries.embeddings[0].tolist()
    radius = None if searched.kind == "nearest" else searched.radius
    budget = searched.budget if searched.kind == "probe" else None
    is_truncated = asked.kind != "nearest" and len(found.hits.rows) == asked.most_hits
    histogram = "" if found.histogram is None else f',"histogram":{_json(found.histogram.model_dump())}'
    # Put together by hand: for a search of one code, json would take as long as the index.
    return (
        f'{{"code":"{queries.codes.tobytes().hex()}","embedding":{_or_null(embedding)},"radius":{_or_null(radius)},'
        f'"budget":{_or_null(budget)},"hits":[{hits}],"truncated":{"true" if is_truncated else "false"},'
        f'"cost":{{"buckets":{cost.buckets},"candidates":{cost.candidates},"comparisons":{cost.comparisons}}},'
        f'"took":{_took(found)}{histogram}}}'
    ).encode()


def match_body(asked: MatchRequest, matched: Matched) -> bytes:
    """Return the answer to a match."""
    written = []
    for place, match in enumerate(matched.matches):
        text = _json(match._asdict())
        if asked.payload:
            shown = matched.shown[place]
            text = f'{text[:-1]},"payload":{"null" if shown is None else shown.payload}}}'
        written.append(text)
    head = {"codes": [code.tobytes().hex() for code in matched.queries.codes], "radius": matched.radius}
    is_truncated = len(matched.matches) == asked.limit
    return (
        f'{_json(head)[:-1]},"matches":[{",".join(written)}],"truncated":{"true" if is_truncated else "false"},'
        f'"took":{_took_ms(matched.queries.ms, matched.ms)}}}'
    ).encode()


def batch_body(found: Found, *, packed: bool) -> bytes:
    """Return the answer to a search for many queries.

    Args:
        found: their hits.
        packed: True to write arrays as base64 of their numbers, False to write lists.

    Raises:
        Problem: arrays are to be packed, and some ids are strings.
    """
    hits, costs = found.hits, found.costs
    arrays = {"offsets": hits.offsets, "ids": hits.ids, "distances": hits.distances}
    if hits.embedding_distances is not None:
        arrays["embedding_distances"] = hits.embedding_distances
    work = {"buckets": costs.buckets, "candidates": costs.candidates, "comparisons": costs.comparisons}
    written = _packed if packed else _listed
    # Put together by hand: a large answer is not looked through once more.
    return b'{%s,"costs":{%s},"took":%s}' % (written(arrays), written(work), _took(found).encode())


def item_body(id: Id, item: Item, *, has_image: bool, pictures: Pictures) -> bytes:
    """Return the answer to a request for an item."""
    content: dict[str, Any] = {"id": id}
    if item.codes is None:
        content["code"], content["embedding"] = hex_codes(item)[0], _numbers(item.embedding)
    else:
        content["codes"], content["embeddings"] = hex_codes(item), _numbers(item.embeddings)
    head = _json(content)
    return b'%s,"payload":%s,"has_image":%s}' % (
        head[:-1].encode(),
        payload_json(item, pictures).encode(),
        b"true" if has_image else b"false",
    )


def groups_body(shown: ShownGroups) -> bytes:
    """Return the answer to a request for groups."""
    found = shown.groups
    members = iter(_members([member for group in found.groups for member in group.members], shown.payloads))
    groups = ",".join(
        f'{{"id":{group.id},"size":{group.size},"representative":{_json(group.representative)},'
        f'"is_capped":{"true" if group.is_capped else "false"},'
        f'"members":[{",".join(islice(members, len(group.members)))}]}}'
        for group in found.groups
    )
    return (
        f'{{"radius":{found.radius},"linkage":{_json(found.linkage)},"n_groups":{found.n_groups},'
        f'"n_items":{found.n_items},"groups":[{groups}],"next":{_or_null(found.next)}}}'
    ).encode()


def members_body(shown: ShownMembers) -> bytes:
    """Return the answer to a request for the members of a group."""
    return f'{{"members":[{",".join(_members(shown.members, shown.payloads))}]}}'.encode()


def _members(members: Sequence[Member], payloads: list[str] | None) -> list[str]:
    """Return each member as JSON."""
    heads = [f'{{"id":{_json(id)},"distance":{distance}' for id, distance in members]
    if payloads is None:
        return [head + "}" for head in heads]
    return [f'{head},"payload":{payload}}}' for head, payload in zip(heads, payloads, strict=True)]


def _hits(asked: OneQuery, found: Found) -> list[str]:
    """Return each hit as JSON."""
    hits = found.hits
    ids, distances = hits.ids.tolist(), hits.distances.tolist()
    close = None if hits.embedding_distances is None else hits.embedding_distances.tolist()
    written = []
    for place, (id, distance) in enumerate(zip(ids, distances, strict=True)):
        text = f'{{"id":{id if type(id) is int else _json(id)},"distance":{distance}'
        if close is not None:
            text += f',"embedding_distance":{_json(close[place])}'
        shown = found.shown[place] if found.shown else None
        if asked.codes and shown is not None:
            text += f',"code":"{shown.codes[0]}"' if len(shown.codes) == 1 else f',"codes":{_json(shown.codes)}'
        if asked.payload:
            text += f',"payload":{"null" if shown is None else shown.payload}'
        written.append(text + "}")
    return written


def _numbers(array: Any) -> list[Any] | None:
    return None if array is None else np.asarray(array).tolist()


def _took(found: Found) -> str:
    return _took_ms(found.job.queries.ms, found.ms)


def _took_ms(encode_ms: float, index_ms: float) -> str:
    return f'{{"encode_ms":{round(encode_ms, _DECIMALS)},"index_ms":{round(index_ms, _DECIMALS)}}}'


def _or_null(value: int | list[float] | None) -> str:
    return "null" if value is None else _json(value) if isinstance(value, list) else str(value)


def _packed(arrays: dict[str, NDArray[Any]]) -> bytes:
    return b",".join(b'"%s":"%s"' % (name.encode(), _base64(array)) for name, array in arrays.items())


def _base64(array: NDArray[Any]) -> bytes:
    if array.dtype == np.object_ and all(type(each) is int for each in array):
        # Integers of items with several codes are names, too.
        array = array.astype(np.int64)
    if array.dtype.kind not in "iuf":
        raise Problem(422, "input", 'some ids are strings; ask with "arrays": "json"')
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())


def _listed(arrays: dict[str, NDArray[Any]]) -> bytes:
    return b",".join(b'"%s":[%s]' % (name.encode(), _list(array)) for name, array in arrays.items())


def _list(array: NDArray[Any]) -> bytes:
    starts = range(0, len(array), _NUMBERS_AT_ONCE)
    return b",".join(_json(array[start : start + _NUMBERS_AT_ONCE].tolist())[1:-1].encode() for start in starts)
