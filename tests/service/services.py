"""Services that run for a test, and how tests call them."""

import json
import socket
import urllib.error
import urllib.request
from contextlib import contextmanager
from urllib.parse import urlsplit

import numpy as np

from hamtarget.serve import ServiceSettings, serving

N_ITEMS = 600
N_BITS = 64


class SignEncoder:
    """Codes by the signs of random projections: an encoder without training or files."""

    def __init__(self, columns=8, n_bits=N_BITS):
        self.n_bits = n_bits
        self.radius = 3
        self.input_shape = (columns,)
        self._planes = np.random.default_rng(7).normal(size=(columns, n_bits)).astype(np.float32)

    def logits(self, inputs):
        return np.asarray(inputs, dtype=np.float32) @ self._planes

    def encode(self, inputs):
        return np.packbits(self.logits(inputs) > 0, axis=1, bitorder="little")

    def embedding(self, inputs):
        logits = self.logits(inputs)
        return logits / np.linalg.norm(logits, axis=1, keepdims=True)

    def save(self, folder):
        folder.mkdir()


class ProbingEncoder(SignEncoder):
    """An encoder that was trained for probing: it has no radius."""

    def __init__(self):
        super().__init__()
        self.radius = None


class Answer:
    """What a service answered."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def kind(self):
        return self.json["error"]["kind"]


class Caller:
    """Calls a service as any program would."""

    def __init__(self, address):
        self.address = address
        parts = urlsplit(address)
        self.host, self.port = parts.hostname, parts.port

    def __call__(self, method, path, body=None, headers=None):
        headers = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        request = urllib.request.Request(self.address.rstrip("/") + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return Answer(response.status, response.headers, response.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.headers, error.read())

    def post(self, path, body, **headers):
        return self("POST", path, body, headers)

    def raw(self, content, *, timeout=10.0):
        """The whole answer to these bytes, as bytes; what cannot be sent any more is not."""
        with socket.create_connection((self.host, self.port), timeout=timeout) as connection:
            try:
                for part in [content] if isinstance(content, bytes) else content:
                    connection.sendall(part)
            except (BrokenPipeError, ConnectionResetError):
                pass
            answer = b""
            try:
                while part := connection.recv(65536):
                    answer += part
            except (ConnectionResetError, TimeoutError):
                pass
            return answer


@contextmanager
def service(store, **settings):
    has_token = "token" in settings or "tokens_file" in settings
    settings.setdefault("no_token", settings.get("writable", False) and not has_token)
    with serving(store, ServiceSettings(port=0, **settings)) as address:
        yield Caller(address)
