"""What someone may send to break a service: each is refused, memory stays bounded, and the service lives on."""

import base64
import hmac
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image
from services import N_BITS, Caller, service

from hamtarget.errors import InputError
from hamtarget.serve import ServiceSettings
from hamtarget.serve.access import tokens as tokens_module
from hamtarget.serve.demo_store import demo_encoder
from hamtarget.serve.instruments.machine import resident_bytes
from hamtarget.store import Store

MIB = 2**20
# More than any of the attacks may cost, and far less than what they pretend to need.
MEMORY_BOUND = 96 * MIB
TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A writable service of images, with short limits on time."""
    path = tmp_path_factory.mktemp("images") / "store"
    store = Store.create(path, encoder=demo_encoder(), radius=2, durability="os")
    store.put_rows([1, 2], inputs=np.zeros((2, 28, 28), np.uint8), payloads=[{"image": "../../etc/passwd"}, None])
    with service(store, writable=True, read_seconds=1.0, deadline=10.0) as call:
        yield call


@pytest.fixture(autouse=True)
def _alive_and_small(request):
    """After each attack: the service answers, and this process, in which it runs, has not grown."""
    call = request.getfixturevalue("target")
    before = resident_bytes()
    yield
    assert call("GET", "/healthz").status == 200
    assert call.post("/v1/search", {"code": "00" * 8}).status == 200
    grown = resident_bytes() - before
    assert grown < MEMORY_BOUND, f"grew by {grown / MIB:.0f} MiB"


def status_of(answer):
    assert answer.startswith(b"HTTP/1.1 "), answer[:100]
    assert b"Traceback" not in answer
    return int(answer[9:12])


def head(method="POST", path="/v1/search", host="127.0.0.1", **headers):
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def png(width, height, pixels=b"", extra=b""):
    """A PNG that says it is so large, whatever it holds."""

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    size = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + size + extra + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def by_image(call, content):
    return call.post("/v1/search", {"image": base64.b64encode(content).decode()})


def test_ten_gigabytes_are_refused_by_their_length(target):
    length = 10 * 1024**3
    assert status_of(target.raw(head(Content_Type="application/json", Content_Length=length) + b"{")) == 413


@pytest.mark.parametrize("length", ["-5", "1e3", "99999999999999999999999999", "5, 6", "0x10"])
def test_lengths_that_are_none_are_refused(target, length):
    assert 400 <= status_of(target.raw(head(Content_Length=length) + b"{}")) < 500


def test_a_flood_of_chunks_is_cut_off(target):
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    sent = [head(Content_Type="application/json", Transfer_Encoding="chunked"), *[chunk] * 400]
    assert status_of(target.raw(sent)) == 413


def test_a_length_and_chunks_at_once_are_no_way_in(target):
    smuggled = (
        head(Content_Length=4, Transfer_Encoding="chunked") + b"0\r\n\r\nGET /v1/stats HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    assert 400 <= status_of(target.raw(smuggled)) < 500


def test_a_body_that_never_comes_is_given_up(target):
    assert status_of(target.raw(head(Content_Type="application/json", Content_Length=100) + b"{")) == 408


def test_a_head_that_never_ends_is_given_up(target):
    assert target.raw(b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ") == b""


def test_floods_of_headers_are_refused(target):
    many = "".join(f"X-{number}: {'y' * 100}\r\n" for number in range(5000))
    assert status_of(target.raw(f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n{many}\r\n".encode())) in (400, 431)
    one = "z" * 5_000_000
    answer = target.raw(f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: {one}\r\n\r\n".encode())
    assert status_of(answer) in (400, 431)


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8080", "", "[::2]", "@127.0.0.1"]
)
def test_other_names_are_not_answered(target, host):
    assert status_of(target.raw(head("GET", "/v1/stats", host=host, Connection="close"))) == 421


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://[::"}],
)
def test_pages_of_other_sites_are_not_answered(target, headers):
    answer = target("POST", "/v1/search", {"code": "00" * 8}, headers)
    assert (answer.status, answer.kind) == (403, "origin")
    assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "gzip, identity"])
def test_compressed_bodies_are_refused(target, encoding):
    bomb = zlib.compress(b" " * 50_000_000)
    assert target.post("/v1/search", bomb, **{"Content-Encoding": encoding}).status == 415


@pytest.mark.parametrize("sides", [(2**31 - 1, 2**31 - 1), (100_000, 100_000), (30_000, 1000), (5001, 5001)])
def test_pixel_bombs_are_refused_by_their_header(target, sides):
    answer = by_image(target, png(*sides, pixels=zlib.compress(bytes(1000))))
    assert (answer.status, answer.kind) == (422, "input")


def test_zip_bombs_inside_images_are_refused(target):
    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    bomb = zlib.compress(bytes(200 * MIB), 9)
    for extra in (chunk(b"zTXt", b"a\0\0" + bomb), chunk(b"iCCP", b"a\0\0" + bomb)):
        pixels = zlib.compress(bytes(28 * 29))
        answer = by_image(target, png(28, 28, pixels, extra))
        # Whether it is refused or the bomb is left alone: nothing grows.
        assert answer.status in (200, 422)
    assert by_image(target, png(28, 28, bomb)).status in (200, 422)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GIF89a",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"\x89PNG\r\n\x1a\n" + b"\0" * 64,
        b"\xff\xd8\xff\xe0" + b"\xff" * 1000,
        b"PK\x03\x04" + b"\0" * 100,
        b"II*\0\x08\0\0\0\xff\xff" + b"\xff" * 500,
    ],
)
def test_files_that_are_no_images_are_refused(target, content):
    answer = by_image(target, content)
    assert (answer.status, answer.kind) == (422, "input")


def test_a_truncated_image_is_refused(target):
    whole = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(whole, "PNG")
    assert by_image(target, whole.getvalue()).status == 200
    assert by_image(target, whole.getvalue()[:-500]).status == 422


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"code": "\xff\xfe"}', 400),
        (b'{"id": "\\ud800"}', (400, 404, 422)),
        (b"[" * 1_000_000, (400, 413)),
        (b'{"filter":' * 100_000, (400, 413)),
        (b'{"vector": [NaN]}', 422),
        (b'{"vector": [1e999]}', 422),
        (b'{"vector": [Infinity]}', 422),
        (b'{"code": "' + b"0" * 5_000_000 + b'"}', 422),
        (b'{"limit": 1' + b"0" * 4000 + b', "code": "0000000000000000"}', (400, 422)),
        (b'{"radius": -1, "code": "0000000000000000"}', 422),
        (b'{"radius": 64, "code": "0000000000000000"}', 422),
        (b'{"limit": 0, "code": "0000000000000000"}', 422),
        (b'{"limit": 1000000, "code": "0000000000000000"}', 422),
        (b'{"limit": 20000, "codes": true, "code": "0000000000000000"}', 422),
        (b'{"limit": true, "code": "0000000000000000"}', 422),
        (b'{"code": "0000000000000000", "unknown": 1}', 422),
        (b'{"code": "0000000000000000", "id": 1}', 422),
        (b'{"image": "http://169.254.169.254/latest/meta-data"}', 422),
        (b'{"image": "file:///etc/passwd"}', 422),
        (b'{"id": 99999999999999999999}', 422),
        (b'{"code": "0000000000000000", "filter": {"a\\"b": 1}}', 422),
        (b'{"code": "0000000000000000", "filter": {"a": {"min": 1, "max": "b"}}}', 422),
        (b'{"code": "0000000000000000", "filter": {"$": [1]}}', 422),
        (b"", 400),
        (b"null", 422),
        (b'"code"', 422),
    ],
)
def test_bodies_that_say_nothing_good_are_refused(target, body, status):
    answer = target("POST", "/v1/search", body, {"Content-Type": "application/json"})
    assert answer.status in (status if isinstance(status, tuple) else (status,)), answer.body
    assert b"Traceback" not in answer.body
    assert b"/hamtarget/" not in answer.body


def test_bad_payloads_change_nothing(target):
    deep = b'{"a":' * 150 + b"1" + b"}" * 150
    for payload in (deep, b'{"a": NaN}', b'{"a": "\\ud800"}', b"[1]", b"3"):
        body = b'{"items": [{"id": "p", "code": "0000000000000000", "payload": ' + payload + b"}]}"
        assert target("PUT", "/v1/items", body, {"Content-Type": "application/json"}).status in (400, 422)
    assert target("GET", "/v1/items/p").status == 404


@pytest.mark.parametrize(
    "form",
    [
        b"",
        b"--x\r\n\r\n\r\n--x--\r\n",
        b'--x\r\nContent-Disposition: form-data; name="image"\r\n\r\nabc\r\n--x--\r\n',
        b'--x\r\nContent-Disposition: form-data; name="image"; filename="\xff\xfe"\r\n\r\nabc\r\n--x--\r\n',
        b"--x\r\n" + b"A: b\r\n" * 5000,
        b"".join(
            b'--x\r\nContent-Disposition: form-data; name="f%d"; filename="f"\r\n\r\n1\r\n' % n for n in range(999)
        ),
        b'--x\r\nContent-Disposition: form-data; name="request"\r\n\r\n' + b"[" * 100_000 + b"\r\n--x--\r\n",
    ],
)
def test_broken_forms_are_refused(target, form):
    for kind in (
        "multipart/form-data; boundary=x",
        "multipart/form-data",
        "multipart/form-data; boundary=x; charset=none",
    ):
        answer = target("POST", "/v1/search", form, {"Content-Type": kind})
        assert 400 <= answer.status < 500


def test_other_media_types_are_refused(target):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/xml"):
        assert target("POST", "/v1/search", b"{}", {"Content-Type": kind}).status == 415


@pytest.mark.parametrize("text", ["%ff%fe", "%00", "..%2f..%2fetc%2fpasswd", "%c3%28", "x" * 5000, "%", "%zz"])
def test_odd_ids_in_paths_are_only_ids(target, text):
    for path in (f"/v1/items/{text}", f"/v1/items/{text}/image"):
        assert target("GET", path).status in (400, 404, 422)
    assert target("DELETE", f"/v1/items/{text}").status in (400, 404, 422)


@pytest.mark.parametrize(
    "path", ["/page/../app.py", "/page/..%2fapp.py", "/page/%2e%2e/app.py", "//etc/passwd", "/page/"]
)
def test_only_files_of_the_page_are_served(target, path):
    answer = target.raw(head("GET", path, Connection="close"))
    assert status_of(answer) == 404
    assert b"import" not in answer


def test_queries_and_items_have_a_cap(target):
    many = base64.b64encode(bytes(8 * 9000)).decode()
    assert target.post("/v1/search/batch", {"codes_base64": many}).status == 422
    assert target.post("/v1/nearest/batch", {"codes": ["00" * 8] * 1001, "k": 100}).status == 422
    item = {"id": 1, "code": "00" * 8}
    assert target("PUT", "/v1/items", {"items": [item] * 10_001}).status == 422


def test_answers_tell_browsers_to_be_careful(target):
    for answer in (target("GET", "/"), target("GET", "/nothing"), target.post("/v1/search", {})):
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "server" not in answer.headers


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    store = Store.create(tmp_path_factory.mktemp("token") / "store", n_bits=N_BITS, radius=2)
    with service(store, token=TOKEN, writable=True) as call:
        yield call


WRONG = [
    "",
    "Bearer",
    "Bearer ",
    f"Bearer {TOKEN[:-1]}",
    f"Bearer {TOKEN}x",
    f"Basic {TOKEN}",
    TOKEN,
    "Bearer \xe9\xe9",
]


@pytest.mark.parametrize("authorization", WRONG)
def test_wrong_tokens_are_refused(guarded, authorization):
    for method, path in (
        ("GET", "/v1/stats"),
        ("GET", "/metrics"),
        ("GET", "/openapi.json"),
        ("DELETE", "/v1/items/1"),
    ):
        answer = guarded(method, path, headers={"Authorization": authorization})
        assert (answer.status, answer.kind) == (401, "token")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert guarded("GET", "/healthz").status == 200
    assert guarded("GET", "/").status == 200


def test_every_token_is_compared_in_constant_time(guarded, monkeypatch):
    compared = []

    class Watched:
        @staticmethod
        def compare_digest(left, right):
            compared.append((left, right))
            return hmac.compare_digest(left, right)

    monkeypatch.setattr(tokens_module, "hmac", Watched)
    for authorization in (*WRONG, f"Bearer {TOKEN}"):
        guarded("GET", "/v1/stats", headers={"Authorization": authorization})
    assert len(compared) == len(WRONG) + 1
    assert guarded("GET", "/v1/stats", headers={"Authorization": f"bearer {TOKEN}"}).status == 200


def test_an_open_address_needs_a_token():
    with pytest.raises(InputError, match="no token"):
        ServiceSettings(host="0.0.0.0")
    with pytest.raises(InputError, match="no token"):
        ServiceSettings(host="example.org")
    with pytest.raises(InputError, match="at least 16"):
        ServiceSettings(host="0.0.0.0", token="short")
    assert ServiceSettings(host="0.0.0.0", token=TOKEN).allowed_hosts is None
    assert TOKEN not in repr(ServiceSettings(token=TOKEN))
    assert Caller("http://127.0.0.1:1/").port == 1
