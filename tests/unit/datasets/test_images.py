"""Any source gives the same pixels; what cannot be an image is refused by name, and never decoded."""

import io
import multiprocessing
import os
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from PIL import Image

from hamtarget.datasets import ImageSet, read_images
from hamtarget.datasets.pictures import images
from hamtarget.datasets.pictures.image_sets import PackedImages, image_files
from hamtarget.datasets.pictures.images import decode_images, read_image
from hamtarget.errors import CorruptFileError, FileError, HamtargetError, ImageError, InputError, ShapeError


def photo(height=40, width=60, seed=0):
    """Smooth colours and some noise, (height, width, 3)."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    smooth = np.stack([255 * y / height, 255 * x / width, 128 + 80 * np.sin((x + y) / 7)], axis=2)
    return (smooth + random.normal(0, 8, smooth.shape)).clip(0, 255).astype(np.uint8)


def encoded(array, kind="PNG", **options):
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, kind, **options)
    return stream.getvalue()


def naive_fit(array, height, width):
    """Short side resized, then the middle cut out: two steps, by Pillow."""
    image = Image.fromarray(array)
    scale = max(height / image.height, width / image.width)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return np.asarray(image.crop((left, top, left + width, top + height)))


@pytest.mark.parametrize(("height", "width"), [(40, 60), (20, 20), (20, 30), (10, 30), (80, 60), (120, 120)])
def test_an_image_is_its_middle_at_the_size_asked_for(height, width):
    array = photo()
    found = read_image(array, (3, height, width))
    assert found.shape == (3, height, width)
    assert found.dtype == np.uint8
    expected = naive_fit(array, height, width).transpose(2, 0, 1).astype(int)
    # Resize and cut are one here; at these sizes the naive way, in two steps, has no half pixels to round in between.
    assert np.abs(found - expected).max() <= 1


def test_every_kind_of_source_gives_the_same_pixels(tmp_path):
    array = photo()
    path = tmp_path / "photo.png"
    path.write_bytes(encoded(array))
    sources = [path, str(path), path.read_bytes(), Image.fromarray(array), array, array.transpose(2, 0, 1).copy()]
    found = read_images(sources, (3, 16, 24))
    assert found.shape == (6, 3, 16, 24)
    for image in found:
        np.testing.assert_array_equal(image, found[0])


def test_grey_shapes_are_those_of_encoders():
    array = photo()
    grey = read_image(array, (16, 24))
    assert grey.shape == (16, 24)
    np.testing.assert_array_equal(read_image(array, (1, 16, 24))[0], grey)
    expected = naive_fit(np.asarray(Image.fromarray(array).convert("L")), 16, 24)
    assert np.abs(grey.astype(int) - expected).mean() < 2
    np.testing.assert_array_equal(read_image(grey, (16, 24)), grey)
    np.testing.assert_array_equal(read_image(grey, (3, 16, 24)), np.stack([grey] * 3))


@pytest.mark.parametrize("shape", [(3,), (2, 8, 8), (3, 0, 8), (3, 8, 8, 8), (8, -1), ()])
def test_other_shapes_are_refused(shape):
    with pytest.raises(InputError, match="shape is"):
        read_image(photo(), shape)


def test_a_large_jpeg_that_is_decoded_small_looks_the_same():
    array = photo(800, 1200)
    file = encoded(array, "JPEG", quality=95)
    found = read_image(file, (3, 64, 64)).astype(int)
    expected = naive_fit(np.asarray(Image.open(io.BytesIO(file))), 64, 64).transpose(2, 0, 1)
    assert np.abs(found - expected).mean() < 1.5


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_is_honoured(orientation):
    upright = photo(24, 40)
    # How the camera stored what it saw, by the EXIF standard.
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: upright.transpose(1, 0, 2)[::-1],
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: upright.transpose(1, 0, 2)[:, ::-1],
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = encoded(np.ascontiguousarray(stored), "PNG", exif=exif)
    np.testing.assert_array_equal(read_image(file, (3, 24, 40)), upright.transpose(2, 0, 1))


def test_transparent_parts_are_white():
    array = np.dstack([photo(8, 8), np.zeros((8, 8), dtype=np.uint8)])
    array[:, :4, 3] = 255
    found = read_image(encoded(array), (3, 8, 8))
    np.testing.assert_array_equal(found[:, :, :4], array[:, :4, :3].transpose(2, 0, 1))
    assert (found[:, :, 4:] == 255).all()


def test_sixteen_bits_are_brought_to_eight():
    deep = (np.arange(64, dtype=np.uint16).reshape(8, 8) * 1040).astype(np.uint16)
    found = read_image(encoded(deep), (8, 8))
    np.testing.assert_array_equal(found, deep // 257)


def test_of_an_animation_the_first_picture_is_read():
    pictures = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    stream = io.BytesIO()
    pictures[0].save(stream, "GIF", save_all=True, append_images=pictures[1:])
    assert read_image(stream.getvalue(), (3, 8, 8)).mean(axis=(1, 2)).tolist() == [255, 0, 0]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "CMYK", "YCbCr", "RGBA", "F"])
def test_every_mode_is_read(mode):
    image = Image.new("L", (8, 8), 255).convert(mode)
    assert read_image(image, (3, 8, 8)).min() >= 254
    assert read_image(image, (8, 8)).min() >= 254


@pytest.mark.parametrize("kind", ["JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_every_format_is_read(kind):
    array = np.full((8, 8, 3), 200, dtype=np.uint8)
    assert np.abs(read_image(encoded(array, kind), (3, 8, 8)).astype(int) - 200).max() <= 2


def test_a_format_that_would_start_another_program_is_not_opened(tmp_path):
    path = tmp_path / "drawing.eps"
    Image.fromarray(photo()).save(path)
    with pytest.raises(ImageError, match=r"drawing\.eps: not an image of a known format"):
        read_image(path, (3, 8, 8))


def bomb(width, height):
    """A PNG of a few bytes whose header promises so many pixels."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")


def test_too_many_pixels_are_refused_before_they_are_decoded(tmp_path):
    path = tmp_path / "bomb.png"
    path.write_bytes(bomb(8_000, 10_001))
    with pytest.raises(ImageError, match=r"bomb\.png: 8,000 x 10,001 pixels; expected at most 80,000,000"):
        read_image(path, (3, 8, 8))
    # Pillow itself refuses these.
    path.write_bytes(bomb(60_000, 60_000))
    with pytest.raises(
        ImageError, match=r"bomb\.png: more than .* pixels; expected at most 80,000,000: make it smaller"
    ):
        read_image(path, (3, 8, 8))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(ImageError, match=r"pipe\.jpg: is no ordinary file; expected an image file"):
        read_image(tmp_path / "pipe.jpg", (3, 8, 8))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "TIFF"])
def test_every_truncation_fails_cleanly_or_reads_the_whole(kind):
    array = photo(24, 24)
    whole = encoded(array, kind)
    expected = read_image(whole, (3, 24, 24))
    failures = {}
    for length in range(0, len(whole), max(1, len(whole) // 60)):
        try:
            # What can be left out at the end without harm (trailing metadata) leaves the pixels as they are.
            np.testing.assert_array_equal(read_image(whole[:length], (3, 24, 24)), expected)
        except ImageError as error:
            failures[length] = str(error)
    assert len(failures) > 30
    assert all(f"image ({length:,} bytes)" in message for length, message in failures.items())


def test_random_damage_is_an_image_error_or_an_image():
    whole = np.frombuffer(encoded(photo(24, 24), "JPEG"), dtype=np.uint8)
    random = np.random.default_rng(0)
    for _ in range(200):
        damaged = whole.copy()
        damaged[random.integers(0, len(whole), 8)] = random.integers(0, 256, 8)
        try:
            assert read_image(damaged.tobytes(), (3, 24, 24)).shape == (3, 24, 24)
        except ImageError:
            continue


def test_what_is_no_image_is_named(tmp_path):
    (tmp_path / "text.jpg").write_text("not an image")
    for path, reason in [("text.jpg", "not an image of a"), ("absent.jpg", "No such file"), (".", "directory")]:
        with pytest.raises(ImageError, match=reason) as caught:
            read_image(tmp_path / path, (3, 8, 8))
        assert str(tmp_path / path) in str(caught.value)
    with pytest.raises(ImageError, match=r"image \(NoneType\): expected a path"):
        read_image(None, (3, 8, 8))
    with pytest.raises(ImageError, match="float64; expected uint8"):
        read_image(np.zeros((4, 4)), (3, 8, 8))
    with pytest.raises(ImageError, match=r"shape \(4, 4, 5\)"):
        read_image(np.zeros((4, 4, 5), dtype=np.uint8), (3, 8, 8))


def test_a_broken_image_stops_reading_but_not_decoding():
    sources = [photo(seed=0), b"broken", photo(seed=1), b"", photo(seed=2)]
    with pytest.raises(ImageError, match=r"image 1 of 5 cannot be read \(2 in total\)"):
        read_images(sources, (3, 8, 8))
    found = decode_images(sources, (3, 8, 8))
    assert found.rows.tolist() == [0, 2, 4]
    assert list(found.broken) == [1, 3]
    assert "image 1 (6 bytes)" in found.broken[1]
    np.testing.assert_array_equal(found.images, read_images([sources[row] for row in found.rows], (3, 8, 8)))


def test_no_images_are_an_empty_array():
    assert read_images([], (3, 8, 8)).shape == (0, 3, 8, 8)


def test_workers_give_the_same_and_tell_how_far_they_are(monkeypatch):
    monkeypatch.setattr(images, "_TASK_ROWS", 4)
    sources = [encoded(photo(seed=seed)) if seed != 7 else b"broken" for seed in range(30)]
    alone = decode_images(sources, (3, 8, 8))
    seen = []
    together = decode_images(sources, (3, 8, 8), workers=2, progress=lambda *state: seen.append(state))
    np.testing.assert_array_equal(together.images, alone.images)
    np.testing.assert_array_equal(together.rows, alone.rows)
    assert together.broken == alone.broken
    assert list(together.broken) == [7]
    assert seen == [(min(done, 30), 30) for done in range(4, 33, 4)]


def test_an_interrupt_ends_the_workers(monkeypatch):
    monkeypatch.setattr(images, "_TASK_ROWS", 4)

    def interrupted(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decode_images([photo()] * 40, (3, 8, 8), workers=2, progress=interrupted)
    assert multiprocessing.active_children() == []


def test_workers_that_cannot_start_are_an_error(tmp_path):
    """A script without a main guard starts itself again in its workers; it must end, and say why."""
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\n"
        "from hamtarget.datasets import read_images\n"
        "from hamtarget.errors import ImageError\n"
        "try:\n"
        "    read_images([np.zeros((8, 8), np.uint8)] * 200, (8, 8), workers=1)\n"
        "except ImageError as error:\n"
        "    print(error)\n"
    )
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=60)
    assert "__main__" in run.stdout


def test_missing_pillow_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(HamtargetError, match=r"hamtarget\[vision\]"):
        read_image(photo(), (3, 8, 8))


# Sets


@pytest.fixture
def class_folder(tmp_path):
    for seed, name in enumerate(["cat/b.png", "cat/deep/a.PNG", "dog/1.jpg", "dog/0.jpg", "dog/.hidden.jpg"]):
        path = tmp_path / "set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photo(seed=seed)).save(path)
    (tmp_path / "set" / ".cache").mkdir()
    (tmp_path / "set" / "dog" / "notes.txt").write_text("no image")
    return tmp_path / "set"


def test_a_class_folder_is_a_set(class_folder):
    found = ImageSet.from_folder(class_folder)
    assert found.class_names == ("cat", "dog")
    assert [os.path.relpath(path, class_folder) for path in found.sources] == [
        "cat/b.png",
        "cat/deep/a.PNG",
        "dog/0.jpg",
        "dog/1.jpg",
    ]
    assert found.labels.tolist() == [0, 0, 1, 1]
    assert image_files(class_folder) == list(found.sources)
    decoded = found.decode((3, 8, 8))
    np.testing.assert_array_equal(decoded.images, read_images(found.sources, (3, 8, 8)))


def test_folders_that_are_no_sets_are_named(tmp_path, class_folder):
    with pytest.raises(FileError, match="nowhere does not exist"):
        ImageSet.from_folder(tmp_path / "nowhere")
    (tmp_path / "empty" / "emu").mkdir(parents=True)
    with pytest.raises(FileError, match="empty holds no image; expected images, or a folder of images for each class"):
        ImageSet.from_folder(tmp_path / "empty")


def test_a_folder_without_images_is_no_class(class_folder):
    (class_folder / "bee").mkdir()
    found = ImageSet.from_folder(class_folder)
    assert (found.class_names, found.labels.tolist()) == (("cat", "dog"), [0, 0, 1, 1])


def test_a_folder_of_images_alone_has_no_labels(class_folder):
    found = ImageSet.from_folder(class_folder / "dog")
    assert [path.name for path in found.sources] == ["0.jpg", "1.jpg"]
    assert found.labels is None
    assert repr(found) == "ImageSet(2 images, no labels)"


def test_a_csv_gives_one_label_or_several(class_folder):
    single = class_folder / "one.csv"
    single.write_text("\ufeffpath,label\ncat/b.png,cat\ndog/0.jpg,dog\n\n", encoding="utf-8")
    found = ImageSet.from_csv(single)
    assert found.class_names == ("cat", "dog")
    assert found.labels.tolist() == [0, 1]
    assert len(found.decode((3, 8, 8)).images) == 2
    several = class_folder / "several.csv"
    several.write_text("cat/b.png,pet; cat\ndog/0.jpg,pet\n" + f"{class_folder / 'dog' / '1.jpg'},\n")
    found = ImageSet.from_csv(several)
    assert found.class_names == ("cat", "pet")
    assert found.labels.tolist() == [[1, 1], [0, 1], [0, 0]]
    assert found.labels.dtype == np.uint8


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("cat/b.png\n", CorruptFileError, "line 1"),
        ("path,label\ncat/b.png,cat,dog\n", CorruptFileError, "line 2"),
        (",cat\n", CorruptFileError, "line 1"),
        ("cat/b.png,cat;;dog\n", CorruptFileError, "line 1"),
        ("", CorruptFileError, "is empty"),
        ("cat/b.png,\xff\n", CorruptFileError, "UTF-8"),
        ("cat/b.png,cat\n" + "".join(f"x{row}.jpg,dog\n" for row in range(12)), FileError, "12 of 13 .* and 2 more"),
    ],
)
def test_a_csv_that_is_none_says_where(class_folder, text, kind, message):
    path = class_folder / "list.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(kind, match=message):
        ImageSet.from_csv(path)


def write_packed(path, files, labels):
    offsets = np.cumsum([0, *map(len, files)])
    np.savez(path, jpegs=np.frombuffer(b"".join(files), dtype=np.uint8), offsets=offsets, labels=np.array(labels))


def test_packed_images_are_cut_out_as_they_are_asked_for(tmp_path):
    files = [encoded(photo(seed=seed), "JPEG") for seed in range(5)]
    write_packed(tmp_path / "packed.npz", files, [0, 1, 0, 1, 2])
    found = ImageSet.from_packed(tmp_path / "packed.npz", class_names=["a", "b", "c"])
    assert list(found.sources) == files
    assert found.sources[-1] == files[-1]
    assert list(found.sources[1:3]) == files[1:3]
    with pytest.raises(IndexError):
        found.sources[5]
    assert len(found.take([])) == 0
    assert list(found.take(found.labels == 1).sources) == [files[1], files[3]]
    for rows in ([5], [0.5], [True]):
        with pytest.raises(InputError, match="rows do not fit a set of 5 images"):
            found.take(rows)
    taken = found.take([3, 0])
    assert list(taken.sources) == [files[3], files[0]]
    assert taken.labels.tolist() == [1, 0]
    assert taken.class_names == found.class_names
    np.testing.assert_array_equal(taken.decode((3, 8, 8)).images, read_images([files[3], files[0]], (3, 8, 8)))


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0, 4, 9], "from 0 to 9; expected 0 to 10"),
        ([1, 4, 10], "from 1 to 10"),
        ([0, 6, 4, 10], "image 1 no bytes"),
        ([0, 4, 4, 10], "image 1 no bytes"),
        ([0.0, 10.0], "float64"),
        ([], "shape"),
        ([[0, 10]], "shape"),
    ],
)
def test_offsets_that_do_not_divide_the_bytes_are_refused(offsets, message):
    with pytest.raises(CorruptFileError, match=message):
        PackedImages(np.zeros(10, dtype=np.uint8), np.array(offsets))


def test_labels_must_fit(tmp_path):
    with pytest.raises(ShapeError, match=r"labels have shape \(3,\); expected \(2,\)"):
        ImageSet(["a.jpg", "b.jpg"], np.zeros(3, dtype=int))
    with pytest.raises(InputError, match="have 3 classes, but class_names has 2"):
        ImageSet(["a.jpg", "b.jpg"], np.array([0, 2]), ("x", "y"))
    with pytest.raises(InputError, match="labels hold -1"):
        ImageSet(["a.jpg", "b.jpg"], np.array([0, -1]))
    write_packed(tmp_path / "packed.npz", [b"x", b"y"], [0, 1, 2])
    with pytest.raises(CorruptFileError, match=r"packed\.npz: labels"):
        ImageSet.from_packed(tmp_path / "packed.npz")


def test_a_set_is_shown_on_one_line(tmp_path):
    write_packed(tmp_path / "packed.npz", [b"x", b"y"], [0, 4])
    assert repr(ImageSet.from_packed(tmp_path / "packed.npz")) == "ImageSet(2 images, 5 classes) [packed]"
    assert repr(ImageSet(["a.jpg"] * 1000)) == "ImageSet(1,000 images, no labels)"
    assert repr(ImageSet(["a.jpg"], np.array([0]), ("x", "y", "z"))) == "ImageSet(1 images, 3 classes)"
    several = ImageSet(["a.jpg"], np.array([[1, 0, 1]]))
    assert repr(several) == "ImageSet(1 images, 3 classes, several to an image)"
