"""From a folder of pictures to groups: what is found, what is read again, what is left out."""

import csv
import json
import os
import signal
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
from PIL import Image

from hamtarget import open_encoder
from hamtarget.copies import find_copies, picture_codes
from hamtarget.copies.finding import picture_radius
from hamtarget.copies.report_files import check_report_name, write_report
from hamtarget.copies.sources import picture_paths
from hamtarget.datasets import read_images
from hamtarget.encoders.usual_radius import usual_radius
from hamtarget.errors import CorruptFileError, FileError, InputError
from hamtarget.evaluation import advise_radius


def photo(seed, size=(96, 64)):
    """A picture of smooth random colours, as photos have, unlike every other."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (5, 5, 3), dtype=np.uint8))
    return small.resize(size, Image.Resampling.BICUBIC)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("HAMTARGET_CACHE", str(folder))
    return folder


@pytest.fixture
def album(tmp_path):
    """Six photos; the first has a copy in half the size and one in bytes, the second a copy as JPEG."""
    folder = tmp_path / "album"
    (folder / "deeper").mkdir(parents=True)
    for seed in range(6):
        photo(seed).save(folder / f"{seed}.png")
    photo(0).resize((48, 32)).save(folder / "deeper" / "half.png")
    (folder / "deeper" / "again.png").write_bytes((folder / "0.png").read_bytes())
    photo(1).save(folder / "jpeg.jpg", quality=90)
    return folder


def names(found):
    """The groups by the names of their files."""
    return [[os.path.basename(copy.path) for copy in group] for group in found]


@pytest.fixture
def reads(monkeypatch):
    """The number of pictures that are decoded, as a list with one element for each."""
    read = picture_codes.read_image
    counted = []
    monkeypatch.setattr(picture_codes, "read_image", lambda *args: counted.append(1) or read(*args))
    return counted


def test_groups_of_an_album(album):
    found = find_copies(album, encoder="phash", radius=6)
    assert [sorted(group) for group in names(found)] == [["0.png", "again.png", "half.png"], ["1.png", "jpeg.jpg"]]
    assert names(found)[0][2] == "half.png"
    best, same, half = found[0]
    assert (best.width, best.height, best.n_bytes) == (96, 64, os.path.getsize(album / "0.png"))
    assert (best.distance, same.distance, same.is_identical, half.is_identical) == (0, 0, True, False)
    assert found.n_pictures == 9
    assert not found.broken
    assert repr(found) == "FoundCopies(2 groups with 5 of 9 pictures, phash within 6 bits)"


@pytest.mark.parametrize("name", ["phash", "dhash"])
def test_pairs_of_a_group_are_those_of_all_distances(album, name):
    for radius in (0, 3, 10, 20, 30):
        found = find_copies(album, encoder=name, radius=radius)
        paths = picture_paths(album)
        encoder = open_encoder(name)
        codes = encoder.encode(read_images(paths, encoder.picture_form))
        distances = np.unpackbits(codes[:, None] ^ codes[None], axis=2).sum(axis=2)
        row = {path: number for number, path in enumerate(paths)}
        for group in found:
            for copy in group:
                assert copy.distance == distances[row[group[0].path], row[copy.path]] <= radius
        # Best pictures, and pictures without a group, are no copies of each other.
        grouped = {copy.path for group in found for copy in group[1:]}
        for one, other in combinations([path for path in paths if path not in grouped], 2):
            assert distances[row[one], row[other]] > radius


def test_the_radius_is_advised(album, monkeypatch):
    monkeypatch.setattr("hamtarget.copies.finding._FEW_PICTURES", 0)
    found = find_copies(album, encoder="phash")
    # Two of the nine files are equal. One false pair is allowed for fifty pictures.
    paths = [path for path in picture_paths(album) if not path.endswith("again.png")]
    codes = picture_codes.encode_files(paths, open_encoder("phash")).codes
    advice = advise_radius(codes, encoder=open_encoder("phash"), false_pairs=8 / 50)
    assert (found.radius, found.reason) == (advice.radius, advice.reason)


def test_few_pictures_are_compared_by_the_figures_of_their_encoder(album):
    pytest.importorskip("onnxruntime")
    encoder = open_encoder("copies64")
    found = find_copies(album, encoder=encoder)
    # One pair in a million of different photos was within the radius when the encoder was measured.
    shares = encoder.recorded["share_within"]
    assert shares[found.radius] <= 1e-6 < shares[found.radius + 1]
    assert found.reason.endswith(f"{found.radius} bits are usual.")


def test_few_pictures_of_an_encoder_without_figures_are_compared_within_the_usual_radius(album, monkeypatch):
    encoder = open_encoder("dhash")
    monkeypatch.setattr(type(encoder), "recorded", None)
    found = find_copies(album, encoder=encoder)
    assert found.radius == usual_radius(encoder)
    assert found.reason.endswith("7 bits are usual.")


def alike(n, n_bits=64, free=10):
    """Codes that differ in few of their bits, as those of pictures that look much alike."""
    codes = np.zeros((n, n_bits), dtype=np.uint8)
    codes[:, :free] = np.random.default_rng(0).integers(0, 2, (n, free))
    return np.packbits(codes, axis=1)


def digests(n):
    return np.arange(n, dtype=np.uint32).view(np.uint8).reshape(n, 4)


@pytest.mark.parametrize(("n", "least"), [(150, 8), (500, 4), (2000, 0)])
def test_few_pictures_that_look_alike_are_not_compared_within_0_bits(n, least):
    encoder = open_encoder("phash")
    assert advise_radius(alike(n), encoder=encoder).radius == 0
    radius, reason = picture_radius(alike(n), encoder, None, files=digests(n))
    assert radius == least
    assert ("look alike or are copies: within radius" in reason) == (n < 1000)
    assert ("look through the groups" in reason) == (n < 1000)
    assert "copies256" not in reason


def test_the_hash_that_tells_more_pictures_apart_is_named():
    pytest.importorskip("onnxruntime")
    _, reason = picture_radius(alike(150), open_encoder("copies64"), None, files=digests(150))
    assert reason.endswith("look through the groups. copies256 tells more of them apart.")


def test_a_few_false_pairs_are_allowed_in_any_folder():
    codes = np.random.default_rng(0).integers(0, 256, (1500, 8), dtype=np.uint8)
    encoder = open_encoder("phash")
    radius, reason = picture_radius(codes, encoder, None, files=digests(1500))
    assert radius == advise_radius(codes, encoder=encoder, false_pairs=10).radius
    assert radius > advise_radius(codes, encoder=encoder).radius
    assert "more than the 10 allowed" in reason


def test_files_of_the_same_bytes_are_no_evidence_of_false_pairs(tmp_path):
    for number in range(160):
        photo(number % 4).save(tmp_path / f"{number}.png")
    found = find_copies(tmp_path, encoder="phash")
    assert sorted(map(len, found)) == [40] * 4
    assert found.reason.startswith("4 different files are too few")


def test_one_picture_is_told_of_in_the_singular(tmp_path):
    photo(1).save(tmp_path / "one.png")
    assert find_copies(tmp_path, encoder="phash").reason.startswith("1 different file is too few")


def test_the_best_picture_has_the_most_pixels_upright(tmp_path):
    turned = Image.Exif()
    turned[0x0112] = 6
    photo(1, (200, 100)).save(tmp_path / "turned.jpg", exif=turned, quality=95)
    photo(1, (200, 100)).rotate(-90, expand=True).resize((90, 180)).save(tmp_path / "small.png")
    (group,) = find_copies(tmp_path, encoder="phash", radius=10)
    assert [(copy.width, copy.height) for copy in group] == [(100, 200), (90, 180)]


def test_a_second_run_reads_nothing(album, reads, monkeypatch):
    monkeypatch.setattr(picture_codes, "_TICK_NS", 0)
    first = find_copies(album, encoder="phash", radius=6)
    # The two files of the same bytes are in one task, which decodes both.
    assert len(reads) == 9
    opened = []
    monkeypatch.setattr(picture_codes, "_content_of", lambda path: opened.append(path))
    again = find_copies(album, encoder="phash", radius=6)
    assert (len(reads), opened) == (9, [])
    assert again.groups == first.groups


def test_only_what_is_new_is_decoded(album, reads):
    find_copies(album, encoder="phash", radius=6)
    reads.clear()
    photo(77).save(album / "new.png")
    (album / "0.png").rename(album / "renamed.png")
    found = find_copies(album, encoder="phash", radius=6)
    assert len(reads) == 1
    assert "renamed.png" in names(found)[0]


def test_a_changed_file_is_read_again(album, monkeypatch):
    monkeypatch.setattr(picture_codes, "_TICK_NS", 0)
    assert len(find_copies(album, encoder="phash", radius=6)[0]) == 3
    status = os.stat(album / "deeper" / "half.png")
    photo(99).save(album / "deeper" / "half.png")
    os.utime(album / "deeper" / "half.png", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert len(find_copies(album, encoder="phash", radius=6)[0]) == 2


def test_a_file_that_changed_just_now_is_not_trusted_to_stay(album, monkeypatch):
    find_copies(album, encoder="phash", radius=6)
    opened = []
    content_of = picture_codes._content_of
    monkeypatch.setattr(picture_codes, "_content_of", lambda path: opened.append(path) or content_of(path))
    find_copies(album, encoder="phash", radius=6)
    assert len(opened) == 9


def test_two_encoders_do_not_share_codes(album):
    for name in ("phash", "dhash", "phash"):
        assert len(find_copies(album, encoder=name, radius=0)[0]) >= 2
    assert picture_codes.fingerprint(open_encoder("phash")) != picture_codes.fingerprint(open_encoder("dhash"))
    assert picture_codes.fingerprint(open_encoder("phash")) == picture_codes.fingerprint(open_encoder("phash"))


def test_an_interrupted_run_goes_on(album, reads, monkeypatch):
    monkeypatch.setattr(picture_codes, "_TASK_FILES", 2)

    def stop(what, done, total):
        if what == "Reading pictures" and done >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_copies(album, encoder="phash", radius=6, stages=stop)
    done = len(reads)
    assert 4 <= done < 9
    found = find_copies(album, encoder="phash", radius=6)
    # The copy in bytes may be known by its original.
    assert 8 <= len(reads) <= 9
    assert len(found) == 2


def test_a_killed_run_goes_on(album, reads, tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(
        "import os, signal, sys\n"
        "from hamtarget.copies import find_copies, picture_codes\n"
        "picture_codes._TASK_FILES = 2\n"
        "def kill(what, done, total):\n"
        "    if what == 'Reading pictures' and done >= 4: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"find_copies({str(album)!r}, encoder='phash', radius=6, stages=kill)\n"
    )
    ended = subprocess.run([sys.executable, script], check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL
    found = find_copies(album, encoder="phash", radius=6)
    assert 4 <= len(reads) <= 5
    assert [sorted(group) for group in names(found)] == [["0.png", "again.png", "half.png"], ["1.png", "jpeg.jpg"]]


def test_several_processes_find_the_same(album, reads, monkeypatch, tmp_path):
    monkeypatch.setattr(picture_codes, "_TASK_FILES", 2)
    several = find_copies(album, encoder="phash", radius=6, workers=2, cache_folder=tmp_path / "several")
    # Other processes have read.
    assert not reads
    alone = find_copies(album, encoder="phash", radius=6, workers=0, cache_folder=tmp_path / "alone")
    assert len(reads) >= 8
    assert several.groups == alone.groups


def test_no_cache_at_all_finds_the_same(album, tmp_path):
    (tmp_path / "file").write_text("")
    found = find_copies(album, encoder="phash", radius=6, cache_folder=tmp_path / "file" / "no")
    assert found.groups == find_copies(album, encoder="phash", radius=6).groups


def test_broken_pictures_are_named(album):
    (album / "empty.jpg").write_bytes(b"")
    (album / "text.png").write_text("no picture")
    (album / "cut.png").write_bytes((album / "2.png").read_bytes()[:200])
    os.symlink("nowhere", album / "dangling.jpg")
    os.mkfifo(album / "pipe.jpg")
    found = find_copies(album, encoder="phash", radius=6)
    assert sorted(map(os.path.basename, found.broken)) == [
        "cut.png",
        "dangling.jpg",
        "empty.jpg",
        "pipe.jpg",
        "text.png",
    ]
    for path, reason in found.broken.items():
        assert reason.startswith(f"{path}: ")
    assert found.n_pictures == 9
    assert len(found) == 2


def test_one_picture_has_no_copies(tmp_path):
    photo(3).save(tmp_path / "only.png")
    found = find_copies(tmp_path, encoder="phash")
    assert (len(found), found.n_pictures) == (0, 1)


def test_only_broken_pictures(tmp_path):
    (tmp_path / "a.png").write_text("")
    found = find_copies(tmp_path, encoder="phash")
    assert (len(found), found.n_pictures, len(found.broken)) == (0, 0, 1)


def test_sources(album, tmp_path):
    paths = picture_paths(album)
    assert len(paths) == 9
    (album / "list.csv").write_text("path,label\n0.png,a\n\n1.png,b\n0.png,a\n")
    assert picture_paths(album / "list.csv") == [str(album / "0.png"), str(album / "1.png")]
    (album / "plain.csv").write_text('0.png\n"1.png"\n')
    assert picture_paths(album / "plain.csv") == [str(album / "0.png"), str(album / "1.png")]
    (tmp_path / "list.txt").write_text("\n".join(paths) + "\n\n" + paths[0] + "\r\n")
    assert picture_paths(tmp_path / "list.txt") == paths
    assert picture_paths(os.fspath(path) for path in paths) == paths
    assert len(find_copies(paths, encoder="phash", radius=6)) == 2


def test_wrong_sources(tmp_path):
    (tmp_path / "empty").mkdir()
    for content, name in (("", "no.csv"), ("path\n", "head.csv"), ("\n\n", "no.txt")):
        (tmp_path / name).write_text(content)
        with pytest.raises(FileError, match="names no image"):
            picture_paths(tmp_path / name)
    with pytest.raises(FileError, match="holds no image"):
        picture_paths(tmp_path / "empty")
    with pytest.raises(FileError, match="is not there; expected a folder of images"):
        picture_paths(tmp_path / "absent")
    with pytest.raises(FileError, match="is not there"):
        picture_paths(tmp_path / "absent.jpg")
    (tmp_path / "one.jpg").write_text("")
    with pytest.raises(FileError, match="is an image"):
        picture_paths(tmp_path / "one.jpg")
    with pytest.raises(CorruptFileError, match="NUL"):
        picture_paths(["a\0b"])


def test_wrong_arguments(album, tmp_path):
    with pytest.raises(InputError, match="radius"):
        find_copies(album, encoder="phash", radius=64)
    with pytest.raises(InputError, match="workers"):
        find_copies(album, encoder="phash", workers=-1)
    with pytest.raises(FileError):
        find_copies(album, encoder=tmp_path / "no model")


@pytest.fixture
def odd_album(tmp_path):
    """Pairs of copies whose names are hard to write."""
    folder = os.fsencode(tmp_path / "odd")
    os.mkdir(folder)
    odd = [
        b'quote".png',
        b"<b>&amp;.png",
        b"not \xff utf.png",
        b"line\nfeed.png",
        b"comma, 'and'.png",
        "räv🦊.png".encode(),
    ]
    for seed, name in enumerate(odd):
        for prefix in (b"a ", b"b "):
            photo(seed).save(os.fsdecode(os.path.join(folder, prefix + name)))
    return os.fsdecode(folder)


@pytest.fixture
def odd_copies(odd_album):
    found = find_copies(odd_album, encoder="phash", radius=2)
    assert len(found) == 6
    return found


def test_json_parses_back(odd_copies, tmp_path):
    write_report(odd_copies, tmp_path / "groups.json")
    document = json.loads((tmp_path / "groups.json").read_text("ascii"))
    assert [[entry["path"] for entry in group] for group in document["groups"]] == [
        [copy.path for copy in group] for group in odd_copies
    ]
    assert document["groups"][0][0] == odd_copies[0][0].as_dict()
    assert (document["radius"], document["encoder"], document["pictures"], document["unreadable"]) == (
        2,
        "phash",
        12,
        {},
    )


def test_csv_parses_back(odd_copies, tmp_path):
    write_report(odd_copies, tmp_path / "groups.csv")
    with open(tmp_path / "groups.csv", encoding="utf-8", errors="surrogateescape", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == [copy.path for group in odd_copies for copy in group]
    assert [int(row["group"]) for row in rows] == [number for number in range(1, 7) for _ in range(2)]
    assert {row["identical"] for row in rows} == {"True"}


def test_the_page_is_whole_and_harmless(odd_copies, tmp_path):
    from html.parser import HTMLParser

    write_report(odd_copies, tmp_path / "groups.html")
    page = (tmp_path / "groups.html").read_text("utf-8")
    seen = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            seen.append((tag, dict(attrs)))

    reader = Reader()
    reader.feed(page)
    reader.close()
    # No tag or attribute came out of a name, and nothing is loaded from elsewhere.
    assert {tag for tag, _ in seen} == {
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "section", "ul", "li", "div", "img", "a"),
        *("br", "span"),
    }
    images = [attributes["src"] for tag, attributes in seen if tag == "img"]
    assert len(images) == 12
    assert all(image.startswith("data:image/jpeg;base64,") for image in images)
    links = [attributes["href"] for tag, attributes in seen if tag == "a"]
    assert all(link.startswith("file:///") for link in links)
    assert any("%FF" in link for link in links)
    assert "http" not in page.replace("http-equiv", "")
    assert "&lt;b&gt;&amp;amp;.png" in page
    assert "not \ufffd utf.png" in page


def test_the_page_is_bounded(odd_copies, tmp_path, monkeypatch):
    from hamtarget.copies import report_files

    page = report_files.page_of(odd_copies, max_drawn=6000)
    assert 0 < page.count("<img") < 12
    assert page.count("<li>") == 12
    assert "listed without a small picture" in page
    assert "listed without a small picture" not in report_files.page_of(odd_copies)
    monkeypatch.setattr(report_files, "_MAX_LISTED", 5)
    page = report_files.page_of(odd_copies)
    assert page.count("<li>") <= 5
    assert "lists the first 5 pictures" in page


def test_the_page_of_files_that_are_gone(odd_copies, odd_album, tmp_path):
    for name in os.listdir(odd_album):
        os.remove(os.path.join(odd_album, name))
    write_report(odd_copies, tmp_path / "groups.html")
    assert (tmp_path / "groups.html").read_text().count("<li>") == 12


def test_reports_have_known_names(odd_copies, tmp_path):
    with pytest.raises(InputError, match=r"expected a name that ends in \.json, \.csv or \.html"):
        check_report_name(tmp_path / "groups.xlsx")
    with pytest.raises(InputError):
        write_report(odd_copies, tmp_path / "groups")
    assert not list(tmp_path.glob("groups*"))
