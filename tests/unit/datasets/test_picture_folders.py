"""One listing of pictures for every verb: links are followed once, and what cannot be listed is named."""

import os

import pytest
from PIL import Image

from hamtarget.copies.sources import picture_paths
from hamtarget.datasets import ImageSet
from hamtarget.datasets.pictures.image_sets import image_files
from hamtarget.datasets.pictures.picture_folders import list_pictures
from hamtarget.datasets.pictures.picture_roots import PictureRoots
from hamtarget.errors import FileError


def touch(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "photos"
    for name in ("b.JPG", "a.heic", "z/1.jfif", "z/deep/2.avif", "m/3.png", ".hidden/4.png", ".5.png", "notes.txt"):
        touch(root / name)
    for name in ("1.png", "more/2.png"):
        touch(tmp_path / "pool" / name)
    return root


def test_names_are_in_order(tree):
    listing = list_pictures(tree)
    assert listing.names == ["a.heic", "b.JPG", "m/3.png", "z/1.jfif", "z/deep/2.avif"]
    assert listing.paths() == [str(tree / name) for name in listing.names]
    assert listing.unread == {}
    told = []
    list_pictures(tree, on_found=told.append)
    assert told[-1] == 5
    assert told == sorted(told)


def test_linked_folders_are_followed_once_by_every_verb(tree, tmp_path):
    (tree / "linked").symlink_to(tmp_path / "pool")
    (tree / "again").symlink_to(tmp_path / "pool")
    # To a folder that is listed under its own name.
    (tree / "a-link").symlink_to(tree / "z")
    # Loops: to the folder itself, to one above it, and between two.
    (tree / "z" / "self").symlink_to(tree)
    (tree / "z" / "up").symlink_to(tmp_path)
    (tmp_path / "pool" / "back").symlink_to(tree / "z")
    (tree / "gone").symlink_to(tmp_path / "nowhere")
    names = ["a.heic", "again/1.png", "again/more/2.png", "b.JPG", "m/3.png", "z/1.jfif", "z/deep/2.avif"]
    assert list_pictures(tree).names == names
    assert picture_paths(tree) == [str(tree / name) for name in names]
    assert image_files(tree) == [tree / name for name in names]
    images = ImageSet.from_folder(tree)
    assert images.class_names == ("again", "m", "z")
    assert images.sources == [tree / name for name in names if "/" in name]


def test_a_linked_root_is_listed(tree, tmp_path):
    (tmp_path / "link").symlink_to(tree)
    assert list_pictures(tmp_path / "link").names == list_pictures(tree).names


def test_folders_that_cannot_be_listed(tree, monkeypatch):
    scan = os.scandir
    refused = "z"

    def refuse(path):
        if os.path.basename(os.path.normpath(path)) == refused:
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    listing = list_pictures(tree)
    assert listing.names == ["a.heic", "b.JPG", "m/3.png"]
    assert listing.unread == {"z": "Permission denied"}
    refused = "photos"
    with pytest.raises(FileError, match="cannot be listed: Permission denied"):
        list_pictures(tree)
    for absent in (tree / "absent", tree / "b.JPG"):
        with pytest.raises(FileError, match="expected a folder of images"):
            list_pictures(absent)


def test_names_within_folders(tree, tmp_path):
    Image.new("L", (4, 4)).save(tree / "m" / "3.png")
    other = tmp_path / "other"
    touch(other / "m" / "3.png")
    (tree / "linked").symlink_to(tmp_path / "pool")
    roots = PictureRoots([tree, other])
    assert roots.find("m/3.png") == str(tree / "m" / "3.png")
    # A name that is in both folders is that of the folder that the payload names.
    assert roots.find("m/3.png", "other") == str(other / "m" / "3.png")
    assert roots.find("m/3.png", "photos") == roots.find("m/3.png", 7) == str(tree / "m" / "3.png")
    assert roots.find(str(tree / "m" / "3.png")) == str(tree / "m" / "3.png")
    for name in ("../pool/1.png", "linked/1.png", "m", "absent.png", "", None, 3, "m/3.png\0", str(tmp_path)):
        assert roots.find(name) is None
    # What a link leads to is shown if its own folder is named, too.
    assert PictureRoots([tree, tmp_path / "pool"]).find("linked/1.png") == str(tmp_path / "pool" / "1.png")
    assert roots.shown_name("m/3.png") == "m/3.png"
    assert roots.shown_name(str(tree / "m" / "3.png")) == "m/3.png"
    assert roots.shown_name("/somewhere/else.png") == "else.png"
    assert PictureRoots([]).shown_name("/somewhere/else.png") == "else.png"
    assert not PictureRoots([])
    assert PictureRoots([]).find("m/3.png") is None
