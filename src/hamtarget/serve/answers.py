"""Answers as JSON: hits, items and figures of the library as documents."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.responses import Response

from hamtarget.items import Id, Item
from hamtarget.serve import messages
from hamtarget.serve.problems import Problem
from hamtarget.serve.work import Found

_JSON = "application/json"
_DECIMALS = 4


def json_response(content: object) -> Response:
    """Return an answer with this content as JSON."""
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Response(body.encode(), media_type=_JSON)


def search_response(asked: messages.OneQuery, found: Found) -> Response:
    """Return the answer to a search for one query."""
    hits = []
    for place, hit in enumerate(found.hits[0]):
        shown: dict[str, Any] = {"id": hit.id, "distance": hit.distance}
        if hit.embedding_distance is not None:
            shown["embedding_distance"] = hit.embedding_distance
        item = found.items[place] if found.items else None
        if asked.codes and item is not None:
            shown["code"] = _hex(item)
        if asked.payload:
            shown["payload"] = None if item is None else item.payload
        hits.append(shown)
    searched, queries = found.job.asked, found.job.queries
    embedding = None if asked.rerank is None or queries.embeddings is None else queries.embeddings[0].tolist()
    answer: dict[str, Any] = {
        "code": queries.codes.tobytes().hex(),
        "embedding": embedding,
        "radius": None if searched.kind == "nearest" else searched.radius,
        "budget": searched.budget if searched.kind == "probe" else None,
        "hits": hits,
        "truncated": asked.kind != "nearest" and len(hits) == asked.most_hits,
        "cost": found.costs[0]._asdict(),
        "took": _took(found),
    }
    if found.histogram is not None:
        answer["histogram"] = found.histogram.model_dump()
    return json_response(answer)


def batch_response(found: Found, *, packed: bool) -> Response:
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
    if not packed:
        lists = {name: array.tolist() for name, array in arrays.items()}
        totals = {name: array.tolist() for name, array in work.items()}
        return json_response({**lists, "costs": totals, "took": _took(found)})
    # Base64 needs no quoting: put together by hand, a large answer is not looked through once more.
    took = json.dumps(_took(found)).encode()
    return Response(b'{%s,"costs":{%s},"took":%s}' % (_packed(arrays), _packed(work), took), media_type=_JSON)


def item_response(id: Id, item: Item, *, has_image: bool) -> Response:
    """Return the answer to a request for an item."""
    return json_response(
        {
            "id": id,
            "code": _hex(item),
            "embedding": None if item.embedding is None else np.asarray(item.embedding).tolist(),
            "payload": item.payload,
            "has_image": has_image,
        }
    )


def _took(found: Found) -> dict[str, float]:
    return {"encode_ms": round(found.job.queries.ms, _DECIMALS), "index_ms": round(found.ms, _DECIMALS)}


def _hex(item: Item) -> str:
    return np.asarray(item.code, dtype=np.uint8).tobytes().hex()


def _packed(arrays: dict[str, NDArray[Any]]) -> bytes:
    return b",".join(b'"%s":"%s"' % (name.encode(), _base64(array)) for name, array in arrays.items())


def _base64(array: NDArray[Any]) -> bytes:
    if array.dtype.kind not in "iuf":
        raise Problem(422, "input", 'some ids are strings; ask with "arrays": "json"')
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
