"""A service with a picture hash reads the pictures of requests in the form of that hash."""

import base64
import io

import numpy as np
import pytest
from PIL import Image
from services import service

from hamtarget import open_encoder
from hamtarget.datasets import read_images
from hamtarget.store import Store


@pytest.mark.parametrize("name", ["dhash", "pdq", "copies64"])
def test_pictures_are_put_and_found(tmp_path, name):
    random = np.random.default_rng(0)
    files = []
    for row in range(8):
        buffer = io.BytesIO()
        small = Image.fromarray(random.integers(0, 256, (8, 9, 3), np.uint8))
        small.resize((200 + row, 90), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=95)
        files.append(buffer.getvalue())
    encoder = open_encoder(name)
    codes = encoder.encode(read_images(files, encoder.picture_form))
    store = Store.create(tmp_path / "store", encoder=encoder, radius=2, durability="os")
    with service(store, writable=True) as call:
        texts = [base64.b64encode(file).decode() for file in files]
        items = [{"id": row, "image": text} for row, text in enumerate(texts)]
        assert call("PUT", "/v1/items", {"items": items}).json == {"items": 8}
        for row, text in enumerate(texts):
            by_picture = call.post("/v1/search", {"image": text, "radius": 0}).json["hits"]
            by_code = call.post("/v1/search", {"code": codes[row].tobytes().hex(), "radius": 0}).json["hits"]
            assert [hit["id"] for hit in by_picture] == [hit["id"] for hit in by_code] == [row]
