"""Picture hashes: bit for bit those of the packages imagehash and pdqhash, on pictures of all modes and sizes."""

import io
import json

import imagehash
import numpy as np
import pdqhash
import pytest
import scipy.fftpack
from PIL import Image, ImageCms, ImageOps

from hamtarget import MultiIndex, Store, open_encoder
from hamtarget.codes import unpack
from hamtarget.datasets import read_images
from hamtarget.encoders.picture_hashes import _cosine_transform
from hamtarget.errors import CorruptFileError, ImageError, ShapeError, UnsupportedFileError
from hamtarget.query import Asked

NAMES = ("phash", "dhash", "pdq")
MODES = ("1", "L", "P", "RGB", "RGBA", "LA", "PA", "CMYK", "YCbCr", "LAB", "HSV", "I", "I;16", "F", "RGBX", "RGBa")
# Width and height.
SIZES = ((1, 1), (2, 3), (4, 40), (9, 8), (32, 32), (33, 31), (64, 64), (65, 64), (127, 129), (301, 200), (640, 481))
LARGE = ((2, 3000), (3000, 5), (2048, 1500))
KINDS = ("noise", "smooth", "plain", "edges", "steps", "dark")


def by_package(name, image):
    """Return the hash of a Pillow image by the public package, as its hexadecimal digits."""
    if name == "pdq":
        bits, _ = pdqhash.compute(np.array(image.convert("RGB")))
        return np.packbits(bits).tobytes().hex()
    return str(getattr(imagehash, name)(image))


def digits(name, *sources):
    """Return the hashes of sources by hamtarget, as hexadecimal digits."""
    encoder = open_encoder(name)
    codes = encoder.encode(read_images(list(sources), encoder.picture_form))
    return [code.tobytes().hex() for code in codes]


def pixels(random, kind, width, height):
    """Return an RGB picture of one kind."""
    if kind == "noise":
        array = random.integers(0, 256, (height, width, 3))
    elif kind == "smooth":
        small = Image.fromarray(random.integers(0, 256, (5, 7, 3)).astype(np.uint8))
        array = np.asarray(small.resize((width, height), Image.Resampling.BICUBIC))
    elif kind == "plain":
        array = np.broadcast_to(random.integers(0, 256, 3), (height, width, 3))
    elif kind == "edges":
        across = (np.arange(width) * random.integers(1, 9) // max(1, width)) % 2
        array = np.broadcast_to(across[None, :, None] * 255, (height, width, 3))
    elif kind == "steps":
        down = np.arange(height) * 16 // max(1, height) * 16
        array = np.broadcast_to(down[:, None, None], (height, width, 3))
    else:
        array = random.integers(0, 3, (height, width, 3))
    return Image.fromarray(np.ascontiguousarray(array, dtype=np.uint8))


def in_mode(random, picture, mode):
    """Return a picture in a mode, with transparency at random where there is any."""
    grey = np.asarray(picture.convert("L"))
    if mode == "LAB":
        profiles = (ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"))
        return ImageCms.applyTransform(picture, ImageCms.buildTransform(*profiles, "RGB", "LAB"))
    if mode == "I":
        return Image.fromarray(grey.astype(np.int32))
    if mode == "I;16":
        return Image.fromarray(grey.astype(np.uint16))
    if mode == "F":
        return Image.fromarray(grey.astype(np.float32) + np.float32(0.25))
    if mode in ("RGBA", "RGBa", "LA", "PA"):
        alpha = Image.fromarray(random.integers(0, 256, grey.shape).astype(np.uint8))
        if mode == "PA":
            image = picture.convert("P").convert("PA")
            image.putalpha(alpha)
            return image
        image = picture.convert("LA" if mode == "LA" else "RGBA")
        image.putalpha(alpha)
        return image.convert("RGBa") if mode == "RGBa" else image
    return picture.convert(mode)


@pytest.fixture(scope="module")
def pictures():
    """Return at least 1,000 pictures of all modes and sizes."""
    random = np.random.default_rng(7)
    found = []
    for width, height in SIZES:
        found += [in_mode(random, pixels(random, kind, width, height), mode) for mode in MODES for kind in KINDS]
    for width, height in LARGE:
        found += [in_mode(random, pixels(random, "smooth", width, height), mode) for mode in MODES]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_bits_of_the_packages_on_all_modes_and_sizes(pictures, name):
    # Neither imagehash nor Pillow can make grey of LAB: such a picture has the hash of its RGB.
    wanted = [by_package(name, picture.convert("RGB") if picture.mode == "LAB" else picture) for picture in pictures]
    assert len(pictures) >= 1000
    assert {picture.mode for picture in pictures} == set(MODES)
    assert digits(name, *pictures) == wanted
    assert len(set(wanted)) > len(pictures) / 8


@pytest.mark.parametrize("name", NAMES)
def test_plain_pictures_of_every_grey(name):
    # All frequencies but one are rounding errors, and yet their signs agree.
    plain = [Image.new("L", (50, 40), grey) for grey in range(256)]
    assert digits(name, *plain) == [by_package(name, picture) for picture in plain]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("format", "mode", "options"),
    [
        ("JPEG", "RGB", {"quality": 40}),
        ("JPEG", "L", {}),
        ("JPEG", "CMYK", {}),
        ("PNG", "RGB", {}),
        ("PNG", "RGBA", {}),
        ("PNG", "LA", {}),
        ("PNG", "P", {}),
        ("PNG", "1", {}),
        ("WEBP", "RGB", {"quality": 60}),
        ("WEBP", "RGBA", {"lossless": True}),
        ("GIF", "P", {}),
        ("GIF", "L", {}),
        ("TIFF", "RGB", {}),
        ("TIFF", "CMYK", {}),
        ("TIFF", "F", {}),
        ("BMP", "RGB", {}),
        ("PPM", "RGB", {}),
    ],
)
def test_the_bits_of_the_packages_on_files(tmp_path, name, format, mode, options):
    random = np.random.default_rng(3)
    for kind in ("smooth", "noise"):
        path = tmp_path / f"picture.{format.lower()}"
        in_mode(random, pixels(random, kind, 811, 601), mode).save(path, format, **options)
        with Image.open(path) as image:
            wanted = by_package(name, image)
        # A file, its bytes, and the opened image: the same, though other encoders read a JPEG at a smaller scale.
        with Image.open(path) as image:
            assert digits(name, path, path.read_bytes(), image) == [wanted] * 3


@pytest.mark.parametrize("name", NAMES)
def test_an_animation_has_the_hash_of_its_first_frame(tmp_path, name):
    random = np.random.default_rng(4)
    frames = [pixels(random, "smooth", 90, 70).convert("P") for _ in range(3)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    with Image.open(tmp_path / "a.gif") as image:
        assert digits(name, tmp_path / "a.gif") == [by_package(name, image)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_upright_first(name, orientation):
    # The packages look at the pixels as they lie in the file.
    picture = pixels(np.random.default_rng(5), "smooth", 120, 80)
    exif = Image.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", exif=exif)
    with Image.open(buffer) as image:
        upright = ImageOps.exif_transpose(image)
        assert digits(name, buffer.getvalue()) == [by_package(name, upright)]


@pytest.mark.parametrize("name", NAMES)
def test_sixteen_bits_are_reduced_to_eight(tmp_path, name):
    # Pillow, and with it the packages, would clip at 255 and see a white picture.
    grey = np.asarray(pixels(np.random.default_rng(6), "smooth", 90, 70).convert("L"))
    deep = Image.fromarray(grey.astype(np.uint16) * 257)
    deep.save(tmp_path / "deep.png")
    deep.save(tmp_path / "deep.tiff")
    Image.fromarray(grey.astype(np.int32) * 257).save(tmp_path / "deep.pgm")
    wanted = by_package(name, Image.fromarray(grey))
    assert digits(name, *sorted(tmp_path.iterdir())) == [wanted] * 3


@pytest.mark.parametrize("name", NAMES)
def test_damaged_and_huge_pictures_are_refused(tmp_path, name):
    buffer = io.BytesIO()
    pixels(np.random.default_rng(8), "noise", 90, 70).save(buffer, "PNG")
    huge = io.BytesIO()
    Image.new("1", (10_000, 9_000)).save(huge, "PNG")
    for content, message in (
        (buffer.getvalue()[:900], "damaged"),
        (b"no picture", "not an image"),
        (b"", "not an image"),
        (huge.getvalue(), "pixels"),
    ):
        with pytest.raises(ImageError, match=message):
            digits(name, content)


def test_the_cosine_transform_is_that_of_scipy_to_the_last_digit():
    random = np.random.default_rng(9)
    signals = np.concatenate([random.integers(0, 256, (200, 32, 32)), np.full((1, 32, 32), 77)]).astype(np.float64)
    assert np.array_equal(_cosine_transform(signals), scipy.fftpack.dct(signals, axis=1))
    # And, but for rounding, what the definition says.
    k, n = np.arange(32)[:, None], np.arange(32)[None, :]
    naive = 2 * np.cos(np.pi * k * (2 * n + 1) / 64) @ signals
    assert np.allclose(_cosine_transform(signals), naive, rtol=0, atol=1e-8)


def naive_values(name, picture):
    """Return the real values of which a hash takes the signs, the package's first bit first; from definitions."""
    if name == "dhash":
        small = np.asarray(picture.convert("L").resize((9, 8), Image.Resampling.LANCZOS)).astype(float)
        return (small[:, 1:] - small[:, :-1]).ravel()
    if name == "phash":
        small = np.asarray(picture.convert("L").resize((32, 32), Image.Resampling.LANCZOS)).astype(float)
        low = scipy.fftpack.dct(scipy.fftpack.dct(small, axis=0), axis=1)[:8, :8].ravel()
        return low - np.median(low)
    frequencies, _ = pdqhash.compute_float(np.asarray(picture.convert("RGB")))
    return frequencies - np.sort(frequencies)[127]


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_the_values_before_the_threshold(name):
    encoder = open_encoder(name)
    picture = pixels(np.random.default_rng(10), "smooth", 200, 150)
    inputs = read_images([picture], encoder.picture_form)
    logits = encoder.logits(inputs)[0]
    packages = logits.reshape(-1, 8)[:, ::-1].ravel()
    assert np.allclose(packages, naive_values(name, picture), rtol=1e-5, atol=1e-5)
    assert np.array_equal(unpack(encoder.encode(inputs), encoder.n_bits)[0], logits > 0)
    assert np.isclose(np.linalg.norm(encoder.embedding(inputs)), 1)


def test_the_quality_of_pdq():
    encoder = open_encoder("pdq")
    random = np.random.default_rng(11)
    pictures = [pixels(random, kind, width, 90) for kind in KINDS for width in (3, 64, 70, 300)]
    pictures += [pixels(random, "smooth", 80, 90).point(lambda v, part=part: v // part) for part in range(1, 9)]
    wanted = [pdqhash.compute(np.asarray(picture))[1] for picture in pictures]
    assert encoder.quality(read_images(pictures, encoder.picture_form)).tolist() == wanted
    assert len(set(wanted)) > 5


@pytest.mark.parametrize("name", NAMES)
def test_digits_of_the_packages_find_pictures(tmp_path, name):
    random = np.random.default_rng(12)
    pictures = [pixels(random, "smooth", 100 + row, 80) for row in range(20)]
    with Store.create(tmp_path / "store", encoder=open_encoder(name)) as store:
        store.put_rows(range(20), inputs=pictures)
    with Store.open(tmp_path / "store") as store:
        assert store.encoder.name == name
        for row, picture in enumerate(pictures):
            code = np.frombuffer(bytes.fromhex(by_package(name, picture)), np.uint8)
            assert store.search(code=code, radius=0)[0].id == row
    if name != "pdq":
        code = open_encoder(name).encode(read_images(pictures[:1], open_encoder(name).picture_form))[0]
        assert imagehash.hex_to_hash(code.tobytes().hex()) == getattr(imagehash, name)(pictures[0])


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_hash_opens_again(tmp_path, monkeypatch, name):
    encoder = open_encoder(name)
    encoder.save(tmp_path / name)
    assert type(open_encoder(tmp_path / name)) is type(encoder)
    assert name in repr(encoder).lower()
    # A folder of that name is opened where it is written as a folder.
    monkeypatch.chdir(tmp_path)
    other = next(each for each in NAMES if each != name)
    open_encoder(other).save(tmp_path / name)
    assert open_encoder(name).name == name
    assert open_encoder(f"./{name}").name == other


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", CorruptFileError),
        (b"\xff\xfe", CorruptFileError),
        (b"[]", CorruptFileError),
        (b'{"format": 1}', UnsupportedFileError),
        (b'{"format": 1, "picture_hash": ["phash"]}', UnsupportedFileError),
        (b'{"format": 2, "picture_hash": "phash"}', UnsupportedFileError),
        (json.dumps({"format": 1, "picture_hash": "x" * 10**6}).encode(), CorruptFileError),
    ],
)
def test_forged_files_are_refused(tmp_path, content, error):
    (tmp_path / "picture_hash.json").write_bytes(content)
    with pytest.raises(error, match=r"picture_hash\.json"):
        open_encoder(tmp_path)


def test_inputs_that_are_no_pictures_in_the_form_are_refused():
    with pytest.raises(ShapeError, match="read_images"):
        open_encoder("phash").encode(np.zeros((2, 8, 8)))
    assert open_encoder("dhash").encode(np.zeros((2, 1, 8, 9))).tolist() == [[0] * 8] * 2
    assert open_encoder("pdq").encode(np.zeros((0, 64, 64))).shape == (0, 32)


@pytest.mark.parametrize("name", NAMES)
def test_logits_lead_a_probe_to_copies(name):
    encoder = open_encoder(name)
    random = np.random.default_rng(13)
    # Finer than the smooth ones: PDQ looks at details.
    pictures = [pixels(random, "noise", 18, 16).resize((180, 160), Image.Resampling.BICUBIC) for _ in range(20)]
    copies = [picture.resize((90, 80)) for picture in pictures]
    index = MultiIndex(encoder.n_bits, radius=4)
    index.add(np.arange(20), encoder.encode(read_images(pictures, encoder.picture_form)))
    index.add(np.arange(100, 30_100), random.integers(0, 256, (30_000, encoder.n_bits // 8), dtype=np.uint8))
    index.compact()
    logits = encoder.logits(read_images(copies, encoder.picture_form))

    def found(values):
        # One row in a hundred is read, the likeliest first.
        hits = [index.search(Asked(logits=value), budget=300, radius=encoder.n_bits // 4) for value in values]
        return sum(len(each) > 0 and each[0].id == row for row, each in enumerate(hits))

    assert found(logits) >= (10 if name == "pdq" else 18)
    if name != "pdq":
        # The values of PDQ have other scales in other frequencies: their order is not that of likelihoods.
        assert found(logits) >= found(np.where(logits > 0, 1, -1).astype(np.float32))
