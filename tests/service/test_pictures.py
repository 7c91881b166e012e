"""Pictures come from the named folders and nowhere else, and carry nothing but pixels."""

import io
import os

import numpy as np
import pytest
from PIL import Image
from services import N_BITS, service

from hamtarget._picture_form import PictureForm
from hamtarget.errors import FileError
from hamtarget.serve import ServiceSettings
from hamtarget.serve.pictures import Pictures, read_upload
from hamtarget.store import Store

SECRET = "a place that nobody should know"


@pytest.fixture
def folders(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (inside / "deep").mkdir(parents=True)
    outside.mkdir()
    pixels = np.random.default_rng(1).integers(0, 256, (300, 200, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x010E] = SECRET
    for folder in (inside, inside / "deep", outside):
        Image.fromarray(pixels).save(folder / "photo.jpg", exif=exif)
    Image.fromarray(pixels[:20, :30]).save(inside / "small.png")
    (inside / "page.html").write_text("<script>alert(1)</script>")
    (inside / "drawing.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>")
    (inside / "link.jpg").symlink_to(outside / "photo.jpg")
    (inside / "linked").symlink_to(outside)
    (inside / "good-link.jpg").symlink_to(inside / "photo.jpg")
    os.mkfifo(inside / "pipe.jpg")
    (tmp_path / "inside-not").mkdir()
    Image.fromarray(pixels).save(tmp_path / "inside-not" / "photo.jpg")
    return inside, outside


def test_pictures_are_drawn_anew_and_small(folders):
    inside, _ = folders
    pictures = Pictures([inside], max_pixels=1_000_000)
    drawn = pictures.thumbnail("photo.jpg", 100)
    assert drawn.media_type == "image/jpeg"
    with Image.open(io.BytesIO(drawn.content)) as image:
        assert image.size == (67, 100)
        assert not image.getexif()
    assert SECRET.encode() not in drawn.content
    assert SECRET.encode() in (inside / "photo.jpg").read_bytes()
    assert pictures.thumbnail("small.png", 100).media_type == "image/png"
    assert pictures.thumbnail("deep/photo.jpg", 100) is not None
    assert pictures.thumbnail(str(inside / "photo.jpg"), 100) == drawn
    assert pictures.thumbnail("good-link.jpg", 100) is not None


@pytest.mark.parametrize(
    "name",
    [
        "../outside/photo.jpg",
        "deep/../../outside/photo.jpg",
        "link.jpg",
        "linked/photo.jpg",
        "../inside-not/photo.jpg",
        "/etc/passwd",
        "photo.jpg\0.png",
        "pipe.jpg",
        "deep",
        ".",
        "",
        "x" * 5000,
        None,
        7,
        ["photo.jpg"],
        "file:///etc/passwd",
        "http://127.0.0.1/photo.jpg",
    ],
)
def test_nothing_else_is_reached(folders, name):
    assert Pictures([folders[0]], max_pixels=1_000_000).thumbnail(name, 64) is None


def test_an_absolute_path_outside_is_not_reached(folders):
    inside, outside = folders
    assert Pictures([inside], max_pixels=1_000_000).thumbnail(str(outside / "photo.jpg"), 64) is None
    assert Pictures([], max_pixels=1_000_000).thumbnail(str(inside / "photo.jpg"), 64) is None


def test_the_service_shows_items_by_their_payload(folders, tmp_path):
    inside, outside = folders
    names = ["photo.jpg", "../outside/photo.jpg", str(outside / "photo.jpg"), "link.jpg", "page.html", "drawing.svg"]
    store = Store.create(tmp_path / "store", n_bits=N_BITS, radius=2, durability="os")
    codes = np.zeros((len(names) + 1, 8), np.uint8)
    store.put_rows([*names, "none"], codes=codes, payloads=[*({"image": name} for name in names), None])
    with service(store, image_folders=(inside,), max_pixels=100_000) as call:
        found = call("GET", "/v1/items/photo.jpg/image?size=50")
        assert (found.status, found.headers["Content-Type"]) == (200, "image/jpeg")
        assert call("GET", "/v1/items/photo.jpg").json["has_image"] is True
        for name in ("..%2Foutside%2Fphoto.jpg", str(outside / "photo.jpg").replace("/", "%2F"), "link.jpg", "none"):
            assert call("GET", f"/v1/items/{name}/image").status == 404
        for name in ("page.html", "drawing.svg"):
            refused = call("GET", f"/v1/items/{name}/image")
            assert refused.status == 422
            assert b"script" not in refused.body
        for size in ("0", "-1", "100000", "x"):
            assert call("GET", f"/v1/items/photo.jpg/image?size={size}").status == 422
    with pytest.raises(FileError, match="no folder"):
        ServiceSettings(image_folders=(tmp_path / "nothing",))


def test_answers_name_no_folder_of_the_server(folders, tmp_path):
    """Absolute paths are shown as pictures, and told without their folders."""
    inside, outside = folders
    images = {"old": str(inside / "deep" / "photo.jpg"), "new": "deep/photo.jpg", "away": str(outside / "photo.jpg")}
    store = Store.create(tmp_path / "store", n_bits=N_BITS, radius=2, durability="os")
    state = f"681 1600000000000000000 {'5a' * 20}"
    payloads = [{"image": name, "folder": "inside", "note": 1, "file": state} for name in images.values()]
    store.put_rows(list(images), codes=np.zeros((3, 8), np.uint8), payloads=payloads)
    with service(store, image_folders=(inside,), max_pixels=100_000) as call:
        hits = call.post("/v1/search", {"code": "00" * 8, "radius": 0}).json["hits"]
        told = {hit["id"]: hit["payload"] for hit in hits}
        assert {id: payload["image"] for id, payload in told.items()} == {
            "old": "deep/photo.jpg",
            "new": "deep/photo.jpg",
            "away": "photo.jpg",
        }
        assert all(payload["note"] == 1 and "file" not in payload for payload in told.values())
        for id, status in (("old", 200), ("new", 200), ("away", 404)):
            item = call("GET", f"/v1/items/{id}")
            assert (item.json["payload"], str(tmp_path) in item.body.decode()) == (told[id], False)
            assert call("GET", f"/v1/items/{id}/image").status == status


def test_pixels_are_counted_before_decoding(folders):
    with pytest.raises(Exception, match="200 x 300 pixels"):
        Pictures([folders[0]], max_pixels=1000).thumbnail("photo.jpg", 64)


class Account:
    """Memory that a request holds, and the most that it held."""

    def __init__(self):
        self.held = self.most = 0

    def take(self, n_bytes):
        self.held += n_bytes
        self.most = max(self.most, self.held)

    def give(self, n_bytes):
        self.held -= n_bytes


@pytest.mark.parametrize("kind", ["PNG", "JPEG2000", "AVIF"])
def test_decoders_that_take_more_memory_are_counted(kind):
    Image.init()
    if kind not in Image.SAVE:
        pytest.skip(f"this Pillow writes no {kind}")
    file, account = io.BytesIO(), Account()
    Image.linear_gradient("L").convert("RGB").save(file, kind)
    read = read_upload(file.getvalue(), PictureForm((16, 16)), max_pixels=100_000, holding=account)
    assert read.shape == (16, 16)
    assert account.held == 0
    assert account.most == 256 * 256 * (5 if kind == "PNG" else 17)
