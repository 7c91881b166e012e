"""A set of images in three parts comes from packed files or from a copy of ImageNet; other folders are refused."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hamtarget.errors import CorruptFileError, FileError
from research.datasets import image_data, open_image_data

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("HAMTARGET_DATA", REPOSITORY.parent / "shared" / "data"))


def jpeg(seed):
    """Return the bytes of a small photo."""
    stream = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(stream, "JPEG")
    return stream.getvalue()


def write_packed(path, files, labels):
    offsets = np.cumsum([0, *map(len, files)])
    np.savez(path, jpegs=np.frombuffer(b"".join(files), dtype=np.uint8), offsets=offsets, labels=np.array(labels))


def test_a_packed_set_has_three_parts(tmp_path, monkeypatch):
    files = [jpeg(seed) for seed in range(6)]
    write_packed(tmp_path / "database.npz", files[:4], [0, 1, 0, 1])
    write_packed(tmp_path / "query.npz", files[4:], [0, 1])
    (tmp_path / "classes.json").write_text('[{"wnid": "n01", "words": "x"}, {"wnid": "n02", "words": "y"}]')
    with pytest.raises(FileError, match="holds 4 images; expected at least 10,000"):
        open_image_data(tmp_path)
    monkeypatch.setattr(image_data, "TRAIN_ROWS", 2)
    found = open_image_data(tmp_path)
    assert (len(found.train), len(found.database), len(found.queries)) == (2, 4, 2)
    assert list(found.train.sources) == files[:2]
    assert found.queries.class_names == ("n01", "n02")
    assert found.name == tmp_path.name
    (tmp_path / "classes.json").write_text('{"classes": 3}')
    with pytest.raises(CorruptFileError, match="not a list of classes"):
        open_image_data(tmp_path)
    (tmp_path / "classes.json").unlink()
    with pytest.raises(FileError, match=r"classes\.json cannot be read"):
        open_image_data(tmp_path)


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(FileError, match=r"holds neither database\.npz nor"):
        open_image_data(tmp_path)
    with pytest.raises(FileError, match="does not exist"):
        open_image_data(tmp_path / "absent")


@pytest.mark.skipif(
    not (DATA / "tiny-imagenet100").is_dir(), reason=f"no tiny-imagenet100 in {DATA.name}: set HAMTARGET_DATA"
)
def test_tiny_imagenet_is_whole():
    found = open_image_data(DATA / "tiny-imagenet100")
    assert (len(found.train), len(found.database), len(found.queries)) == (10_000, 20_000, 5_000)
    for part, each in ((found.train, 100), (found.database, 200), (found.queries, 50)):
        assert np.bincount(part.labels).tolist() == [each] * 100
    decoded = found.queries.take(np.arange(0, 5_000, 25)).decode((3, 64, 64))
    assert decoded.images.shape == (200, 3, 64, 64)
    assert decoded.broken == {}
