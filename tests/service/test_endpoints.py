"""Every endpoint gives what a plain loop over all items gives."""

import base64
import io
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image
from services import N_BITS, N_ITEMS, SignEncoder, service

from hamtarget.codes import distances
from hamtarget.datasets import fashion_sample
from hamtarget.serve import code_sample
from hamtarget.serve.demo_store import demo_encoder
from hamtarget.store import Store


def naive(codes, query, radius=None, keep=None):
    """(id, distance) of all rows, or of those within the radius, by distance and then id."""
    far = distances(query, codes, N_BITS)[0]
    found = [(row, int(far[row])) for row in range(len(codes)) if keep is None or keep(row)]
    return sorted(((row, d) for row, d in found if radius is None or d <= radius), key=lambda hit: (hit[1], hit[0]))


def pairs(answer):
    assert answer.status == 200, answer.body
    return [(hit["id"], hit["distance"]) for hit in answer.json["hits"]]


@pytest.mark.parametrize("radius", [0, 3, 20])
def test_search_finds_everything_within_the_radius(read_only, rows, radius):
    codes, payloads = rows
    for row in (0, 17, 333):
        query = codes[row].copy()
        query[0] ^= 1
        answer = read_only.post("/v1/search", {"code": query.tobytes().hex(), "radius": radius, "limit": 1000})
        expected = naive(codes, query, radius)
        assert pairs(answer) == expected
        assert [hit["payload"] for hit in answer.json["hits"]] == [payloads[id] for id, _ in expected]
        assert answer.json["cost"]["candidates"] >= len(expected)
        assert answer.json["truncated"] is False


def test_a_limit_keeps_the_nearest_and_says_so(read_only, rows):
    codes, _ = rows
    expected = naive(codes, codes[5], 12)
    assert len(expected) > 4
    asked = {"code": codes[5].tobytes().hex(), "radius": 12, "limit": 4, "payload": False, "codes": True}
    answer = read_only.post("/v1/search", asked)
    assert pairs(answer) == expected[:4]
    assert answer.json["truncated"] is True
    assert [hit["code"] for hit in answer.json["hits"]] == [codes[id].tobytes().hex() for id, _ in expected[:4]]
    assert "payload" not in answer.json["hits"][0]


def test_nearest_and_search_by_id_agree_with_a_loop(read_only, rows):
    codes, _ = rows
    assert pairs(read_only.post("/v1/nearest", {"id": 9, "k": 25})) == naive(codes, codes[9])[:25]
    default = read_only.post("/v1/search", {"id": 9, "limit": 1000})
    assert default.json["radius"] == 4
    assert pairs(default) == naive(codes, codes[9], 4)
    assert read_only.post("/v1/nearest", {"id": "9"}).status == 404


def test_filters_are_exact(read_only, rows):
    codes, _ = rows
    by_value = {"id": 1, "k": 30, "filter": {"parity": "odd"}}
    assert pairs(read_only.post("/v1/nearest", by_value)) == naive(codes, codes[1], keep=lambda row: row % 2)[:30]
    by_range = {"id": 1, "radius": 40, "limit": 900, "filter": {"number": {"min": 100, "max": 220}, "parity": "even"}}
    expected = naive(codes, codes[1], 40, keep=lambda row: 100 <= row <= 220 and row % 2 == 0)
    assert pairs(read_only.post("/v1/search", by_range)) == expected
    assert read_only.post("/v1/search", {"id": 1, "filter": {"number": {}}}).status == 422


def test_the_histogram_counts_all_items(read_only, rows):
    codes, _ = rows
    told = read_only.post("/v1/search", {"id": 2, "histogram": True}).json["histogram"]
    expected = np.bincount(distances(codes[2], codes, N_BITS)[0], minlength=N_BITS + 1)
    assert told == {"counts": expected.tolist(), "rows": N_ITEMS, "sampled": False}


@pytest.mark.parametrize("arrays", ["json", "base64"])
def test_batches_give_what_single_queries_give(read_only, rows, arrays):
    codes, _ = rows
    wanted = codes[:50]
    texts = [code.tobytes().hex() for code in wanted]
    packed = base64.b64encode(wanted.tobytes()).decode()
    for asked in ({"codes": texts}, {"codes_base64": packed}):
        for path, how, cut in (
            ("/v1/search/batch", {"radius": 10, "limit": 700}, 10),
            ("/v1/nearest/batch", {"k": 5}, None),
        ):
            found = read_only.post(path, {**asked, **how, "arrays": arrays}).json
            if arrays == "base64":
                for name, kind in (("offsets", "<i8"), ("ids", "<i8"), ("distances", "<u2")):
                    found[name] = np.frombuffer(base64.b64decode(found[name]), kind).tolist()
            assert len(found["offsets"]) == len(wanted) + 1
            for query, code in enumerate(wanted):
                here = slice(found["offsets"][query], found["offsets"][query + 1])
                expected = naive(codes, code, cut)[: how.get("k")]
                assert list(zip(found["ids"][here], found["distances"][here], strict=True)) == expected


def test_vectors_are_encoded_and_hits_ranked_by_embedding(writable, vectors):
    encoder = SignEncoder()
    query = np.random.default_rng(8).normal(size=8).astype(np.float32)
    codes, logits = encoder.encode(vectors), encoder.logits(vectors)
    near = naive(codes, encoder.encode(query[None])[0], 25)
    answer = writable.post("/v1/search", {"vector": query.tolist(), "radius": 25, "limit": 800, "rerank": 800})
    own = encoder.logits(query[None])[0]
    cosine = logits @ own / np.linalg.norm(logits, axis=1) / np.linalg.norm(own)
    told = {hit["id"]: hit["embedding_distance"] for hit in answer.json["hits"]}
    assert set(told) == {f"v{row}" for row, _ in near}
    assert list(told.values()) == sorted(told.values())
    for row, _ in near:
        assert told[f"v{row}"] == pytest.approx(1 - cosine[row], abs=1e-4)
    assert answer.json["cost"]["comparisons"] == len(near)
    # What the answer says of the query is enough to ask the same again without the encoder.
    again = {"code": answer.json["code"], "embedding": answer.json["embedding"], "radius": 25, "limit": 800}
    assert writable.post("/v1/search", {**again, "rerank": 800}).json["hits"] == answer.json["hits"]


def test_batches_of_vectors_are_encoded(writable, vectors):
    codes = SignEncoder().encode(vectors)
    found = writable.post("/v1/nearest/batch", {"vectors": vectors[:70].tolist(), "k": 3}).json
    for query in range(70):
        here = slice(found["offsets"][query], found["offsets"][query + 1])
        expected = [(f"v{row}", far) for row, far in naive(codes, codes[query])[:3]]
        assert list(zip(found["ids"][here], found["distances"][here], strict=True)) == expected
    refused = writable.post("/v1/nearest/batch", {"vectors": vectors[:2].tolist(), "arrays": "base64"})
    assert (refused.status, refused.kind) == (422, "input")
    assert writable.post("/v1/search/batch", {"vectors": [[1.0]], "codes": ["00" * 8]}).status == 422


def test_ranked_queries_at_the_same_time_get_their_own_answers(writable, vectors):
    def ask(row):
        asked = {"vector": vectors[row].tolist(), "radius": 20, "limit": 30, "rerank": 30}
        return writable.post("/v1/search", asked).json["hits"]

    alone = [ask(row) for row in range(24)]
    with ThreadPoolExecutor(12) as pool:
        together = list(pool.map(ask, range(24)))
    for one, other in zip(alone, together, strict=True):
        assert [(hit["id"], hit["distance"]) for hit in other] == [(hit["id"], hit["distance"]) for hit in one]
        # Queries that arrive together are encoded together, and a matrix product may round otherwise for more rows.
        ranked = [hit["embedding_distance"] for hit in other]
        assert ranked == pytest.approx([hit["embedding_distance"] for hit in one], abs=1e-6)
        assert min(ranked) >= 0
    assert [hits[0]["id"] for hits in alone] == [f"v{row}" for row in range(24)]


def test_images_are_put_and_searched_with_as_files_and_as_text(tmp_path):
    encoder = demo_encoder()
    images = 255 - fashion_sample(40).query_images
    store = Store.create(tmp_path / "store", encoder=encoder, radius=4, durability="os")
    with service(store, writable=True) as call:
        files = []
        for image in images:
            file = io.BytesIO()
            Image.fromarray(image).save(file, "PNG")
            files.append(file.getvalue())
        items = [{"id": row, "image": base64.b64encode(file).decode()} for row, file in enumerate(files)]
        assert call("PUT", "/v1/items", {"items": items}).json == {"items": 40}
        codes = encoder.encode(images)
        for row in (0, 13, 39):
            assert call("GET", f"/v1/items/{row}?kind=integer").json["code"] == codes[row].tobytes().hex()
            as_text = call.post("/v1/nearest", {"image": items[row]["image"], "k": 40})
            body = (
                b'--x\r\nContent-Disposition: form-data; name="request"\r\n\r\n{"k": 40}\r\n'
                b'--x\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'
                + files[row]
                + b"\r\n--x--\r\n"
            )
            as_file = call("POST", "/v1/nearest", body, {"Content-Type": "multipart/form-data; boundary=x"})
            assert pairs(as_text) == pairs(as_file) == naive(codes, codes[row])


def test_a_large_store_is_sampled(tmp_path, rows, monkeypatch):
    monkeypatch.setattr(code_sample, "SAMPLE_ROWS", 200)
    codes, _ = rows
    store = Store.create(tmp_path / "store", n_bits=N_BITS, radius=2, durability="os")
    store.put_rows(list(range(N_ITEMS)), codes=codes)
    with service(store) as call:
        told = call.post("/v1/search", {"id": 0, "histogram": True}).json["histogram"]
        assert (told["rows"], told["sampled"]) == (200, True)
        stats = call("GET", "/v1/stats").json
        assert stats["sample_rows"] == 200
        assert len(set(stats["examples"])) == 24
        share = np.unpackbits(codes, axis=1, bitorder="little").mean(axis=0)
        # Five standard errors of a share among 200.
        assert np.abs(np.array(stats["bit_balance"]) - share).max() < 5 * 0.5 / 200**0.5


def test_items_are_put_replaced_read_and_deleted(writable, vectors):
    encoder = SignEncoder()
    odd = "a/b ü?#%"
    items = [
        {"id": odd, "vector": vectors[3].tolist(), "payload": {"text": "née", "deep": [1, {"x": None}]}},
        {"id": 7, "code": "00" * 8, "embedding": [0.5] * N_BITS},
        {"id": "7", "code": "ff" * 8, "embedding": [0.25] * N_BITS},
    ]
    assert writable("PUT", "/v1/items", {"items": items}).json == {"items": 3}
    found = writable("GET", "/v1/items/a%2Fb%20%C3%BC%3F%23%25").json
    assert (found["id"], found["payload"]) == (odd, items[0]["payload"])
    assert found["code"] == encoder.encode(vectors[3:4])[0].tobytes().hex()
    assert writable("GET", "/v1/items/7?kind=integer").json["code"] == "00" * 8
    assert writable("GET", "/v1/items/7").json["code"] == "ff" * 8
    writable("PUT", "/v1/items", {"items": [{"id": "7", "code": "0f" * 8, "embedding": [1.0] * N_BITS}]})
    assert writable("GET", "/v1/items/7").json["code"] == "0f" * 8
    assert pairs(writable.post("/v1/nearest", {"code": "0f" * 8, "k": 1})) == [("7", 0)]
    assert writable("DELETE", "/v1/items/7").json == {"deleted": 1}
    assert writable("DELETE", "/v1/items/7").status == 404
    assert writable("GET", "/v1/items/7?kind=integer").status == 200
    assert writable("GET", "/v1/stats").json["items"] == N_ITEMS + 2


def test_a_put_is_all_or_nothing(writable):
    good = {"id": "new", "code": "00" * 8, "embedding": [1.0] * N_BITS}
    for bad in (
        {"id": "bad", "code": "00" * 8},
        {"id": "bad", "code": "00"},
        {"id": "bad", "vector": [1.0]},
        {"id": "bad"},
        {"id": "x" * 2000, "code": "00" * 8, "embedding": [1.0] * N_BITS},
    ):
        assert writable("PUT", "/v1/items", {"items": [good, bad]}).status == 422
        assert writable("GET", "/v1/items/new").status == 404


def test_a_read_only_service_takes_no_changes(read_only):
    refused = read_only("PUT", "/v1/items", {"items": [{"id": 1, "code": "00" * 8}]})
    assert (refused.status, refused.kind) == (403, "read_only")
    assert read_only("DELETE", "/v1/items/1?kind=integer").status == 403


def test_health_stats_metrics_and_documents(read_only):
    assert read_only("GET", "/healthz").body == b"ok\n"
    assert read_only("GET", "/readyz").body == b"ready\n"
    stats = read_only("GET", "/v1/stats").json
    assert (stats["items"], stats["n_bits"], stats["substrings"], stats["writable"]) == (N_ITEMS, N_BITS, 5, False)
    assert len(stats["bit_balance"]) == N_BITS
    read_only.post("/v1/search", {"id": 2})
    read_only.post("/v1/search", {"id": 1e999})
    metrics = read_only("GET", "/metrics").body.decode()
    values = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    assert float(values["hamtarget_rows"]) == N_ITEMS
    assert float(values['hamtarget_requests_total{endpoint="/v1/search",status="200"}']) >= 1
    assert float(values['hamtarget_request_seconds_count{endpoint="/v1/search"}']) >= 2
    assert float(values["hamtarget_query_candidates_count"]) >= 1
    assert any(name.startswith("hamtarget_errors_total") for name in values)
    paths = read_only("GET", "/openapi.json").json["paths"]
    expected = ["/v1/search", "/v1/nearest", "/v1/search/batch", "/v1/items", "/v1/items/{id}", "/v1/items/{id}/image"]
    assert set(expected) <= set(paths)


def test_the_page_asks_nobody_else(read_only):
    page = read_only("GET", "/")
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
    for path in (
        "/",
        "/docs",
        "/page/page.js",
        "/page/api.js",
        "/page/draw.js",
        "/page/docs.js",
        "/page/parts.js",
        "/page/page.css",
    ):
        text = read_only("GET", path).body.decode()
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text
        assert "<script>" not in text
        assert "style=" not in text


def test_a_form_with_an_image_is_refused_where_vectors_are_taken(writable):
    parts = [b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\nabc\r\n--x--\r\n']
    answer = writable("POST", "/v1/search", b"".join(parts), {"Content-Type": "multipart/form-data; boundary=x"})
    assert (answer.status, answer.kind) == (422, "input")
    assert json.loads(answer.body)["error"]["message"].startswith("an image is given")
