"""The split is HashNet's, and any usual copy of ImageNet gives it; photos that are missing are named at once."""

import os

import numpy as np
import pytest
from PIL import Image

from hamtarget.errors import FileError
from research.datasets import imagenet100, open_image_data
from research.datasets.imagenet100 import PhotoList, class_ids, open_imagenet100, photo_list
from research.paper.image_bench import open_bench, usual_side
from research.paper.table1 import Plan


def test_the_lists_are_those_of_hashnet():
    sizes = {part: len(photo_list(part).stems) for part in ("database", "train", "test")}
    assert sizes == {"database": 128_503, "train": 13_000, "test": 5_000}
    for part in sizes:
        found = photo_list(part)
        assert len(set(found.stems)) == len(found.stems)
        assert np.unique(found.labels).tolist() == list(range(100))
    assert np.bincount(photo_list("train").labels).tolist() == [130] * 100
    assert np.bincount(photo_list("test").labels).tolist() == [50] * 100
    assert set(photo_list("train").stems) <= set(photo_list("database").stems)


def test_a_class_is_one_wordnet_id():
    assert len(set(class_ids())) == 100
    for part in ("database", "train"):
        found = photo_list(part)
        assert [stem.split("_")[0] for stem in found.stems] == [class_ids()[label] for label in found.labels]
    assert photo_list("test").stems[0] == "ILSVRC2012_val_00000007"
    assert class_ids()[76] == "n03944341"


@pytest.fixture
def short_lists(monkeypatch):
    """Three photos of each of two classes, one of them to learn from, and two queries."""
    stems = ("n01440764_10", "n01440764_11", "n01440764_12", "n02834397_7", "n02834397_8", "n02834397_9")
    lists = {
        "database": PhotoList(stems, np.array([0, 0, 0, 1, 1, 1])),
        "train": PhotoList((stems[4], stems[1]), np.array([1, 0])),
        "test": PhotoList(("ILSVRC2012_val_00000005", "ILSVRC2012_val_00000002"), np.array([1, 0])),
    }
    monkeypatch.setattr(imagenet100, "photo_list", lists.__getitem__)
    monkeypatch.setattr(imagenet100, "class_ids", lambda: ("n01440764", "n02834397"))
    return lists


def write_copy(root, lists, *, by_class=("train",), train="train", val="val", ending=".JPEG"):
    names = ("n01440764", "n02834397")
    for folder, part in ((train, "database"), (val, "test")):
        for stem, label in zip(lists[part].stems, lists[part].labels, strict=True):
            place = root / folder / names[label] if folder in by_class else root / folder
            place.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (12, 10), (int(stem[-1]) * 20, 0, 0)).save(place / f"{stem}{ending}")
    # Other classes are there, too.
    (root / train / "n09999999").mkdir(exist_ok=True)


LAYOUTS = {
    "as unpacked": {},
    "validation by class": {"by_class": ("train", "val")},
    "flat": {"by_class": ()},
    "names of the archives": {
        "train": "ILSVRC2012_img_train",
        "val": "ILSVRC2012_img_val",
        "by_class": ("ILSVRC2012_img_train",),
    },
    "resized to PNG": {"ending": ".png"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("below", [".", "ILSVRC/Data/CLS-LOC"])
def test_every_layout_gives_the_same_split(tmp_path, short_lists, layout, below):
    write_copy(tmp_path / below, short_lists, **LAYOUTS[layout])
    found = open_image_data(tmp_path)
    assert found.name == "imagenet100"
    for images, part in ((found.database, "database"), (found.train, "train"), (found.queries, "test")):
        stems = [os.path.splitext(os.path.basename(path))[0] for path in images.sources]
        assert tuple(stems) == short_lists[part].stems
        np.testing.assert_array_equal(images.labels, short_lists[part].labels)
        assert images.class_names == ("n01440764", "n02834397")
        decoded = images.decode((3, 8, 8))
        assert decoded.broken == {}
        reds = decoded.images[:, 0].mean(axis=(1, 2))
        np.testing.assert_allclose(reds, [int(stem[-1]) * 20 for stem in stems], atol=3)


def test_missing_photos_are_named_and_counted(tmp_path, short_lists):
    write_copy(tmp_path, short_lists)
    (tmp_path / "train" / "n02834397" / "n02834397_8.JPEG").unlink()
    (tmp_path / "val" / "ILSVRC2012_val_00000002.JPEG").unlink()
    message = r"2 of the 8 photos .* missing: train/n02834397_8\.JPEG, val/ILSVRC2012_val_00000002\.JPEG$"
    with pytest.raises(FileError, match=message):
        open_imagenet100(tmp_path)


def test_of_many_missing_photos_ten_are_named(tmp_path):
    for folder in ("train", "val"):
        (tmp_path / folder).mkdir()
    with pytest.raises(FileError, match=r"133,503 of the 133,503 .* and 133,493 more") as caught:
        open_image_data(tmp_path)
    assert str(caught.value).count(".JPEG") == 10


def test_a_missing_folder_is_named(tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(FileError, match="none of the folders val, validation, ILSVRC2012_img_val"):
        open_image_data(tmp_path)


def test_photos_are_kept_larger_than_packed_images(tmp_path, short_lists):
    write_copy(tmp_path / "copy", short_lists)
    assert usual_side(tmp_path / "copy") == 256
    assert usual_side(tmp_path) == 64
    bench = open_bench(tmp_path / "copy", tmp_path / "weights", size=224)
    assert bench.images.images.shape == (8, 3, 256, 256)
    bench = open_bench(tmp_path / "copy", tmp_path / "weights", size=224, stored_side=16)
    assert bench.images.images.shape == (8, 3, 16, 16)


def test_a_run_tells_how_large_images_were_kept():
    small = Plan(methods=("HDT",), lengths=(16,)).runs()[0]
    large = Plan(methods=("HDT",), lengths=(16,), stored_side=256).runs()[0]
    # As runs of small images were described before there were others.
    assert "stored_side" not in small.description()
    assert large.description() == {**small.description(), "stored_side": 256}
