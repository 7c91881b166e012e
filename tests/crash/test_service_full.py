"""A service on a disk that fills up says that it is not ready, keeps what it acknowledged, and recovers by itself."""

from small_disk import run_on_small_disk

SCRIPT = """
import json
import os
import time
import urllib.error
import urllib.request
from pathlib import Path

from hamtarget.serve import ServiceSettings, serving
from hamtarget.store import Store

disk = Path({disk!r})
store = Store.create(disk / "store", n_bits=64, radius=2)
settings = ServiceSettings(port=0, writable=True, no_token=True, disk_reserve_bytes=256 * 1024)


def call(method, path, body=None):
    content = None if body is None else json.dumps(body).encode()
    headers = {{"Content-Type": "application/json"}}
    request = urllib.request.Request(address.rstrip("/") + path, content, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def put(number):
    items = [
        {{"id": f"{{number}}-{{place}}", "code": "00" * 8, "payload": {{"text": "x" * 4000}}}} for place in range(25)
    ]
    return call("PUT", "/v1/items", {{"items": items}})[0]


with serving(store, settings) as address:
    # Room that can be given back.
    (disk / "ballast").write_bytes(os.urandom(4 * 2**20))
    assert call("GET", "/readyz")[0] == 200
    acknowledged = []
    for number in range(400):
        status = put(number)
        if status != 200:
            break
        acknowledged.append(number)
    print("put", status)
    status, body = call("GET", "/readyz")
    print("readyz", status, json.loads(body)["error"]["kind"] if status != 200 else "")
    print("healthz", call("GET", "/healthz")[0], "search", call("POST", "/v1/search", {{"code": "00" * 8}})[0])
    lost = [number for number in acknowledged if call("GET", f"/v1/items/{{number}}-24")[0] != 200]
    print("acknowledged", len(acknowledged) > 3, "lost", len(lost))
    (disk / "ballast").unlink()
    end = time.monotonic() + 30
    while put("again") != 200 or call("GET", "/readyz")[0] != 200:
        assert time.monotonic() < end
        time.sleep(0.2)
    print("again ready")
"""


def test_a_full_disk_is_told_and_got_over(tmp_path):
    told = run_on_small_disk(tmp_path, "16m", lambda disk: SCRIPT.format(disk=disk))
    assert told.splitlines() == [
        "put 507",
        "readyz 503 not_ready",
        "healthz 200 search 200",
        "acknowledged True lost 0",
        "again ready",
    ]
