"""`hamtarget calibrate`."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from hamtarget import MultiIndex, Store, open_encoder
from hamtarget.cli import calibrate
from hamtarget.cli.main import app
from hamtarget.evaluation import advise_radius
from hamtarget.items import Item
from hamtarget.search import pairs_within


def run(*arguments, input=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=input)


def told(*arguments, input=None):
    """Return the JSON that the command writes; it must succeed."""
    result = run("calibrate", *arguments, "--json", input=input)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def last_line(result):
    return result.stderr.splitlines()[-1]


def codes_with_copies(rows=900, copies=100, seed=0):
    """Return random codes of 64 bits; the last are copies of the first, with two bits changed."""
    codes = np.random.default_rng(seed).integers(0, 256, (rows + copies, 8), dtype=np.uint8)
    codes[rows:] = codes[:copies]
    codes[rows:, 0] ^= 3
    return codes


CODES = codes_with_copies()


@pytest.fixture
def file(tmp_path):
    np.save(tmp_path / "codes.npy", CODES)
    return tmp_path / "codes.npy"


@pytest.fixture
def store(stores):
    """A store of the codes, in a folder or in PostgreSQL; copies have the same field `photo`."""
    place = str(stores.place())
    with Store.create(place, n_bits=64, radius=2) as made:
        made.put(Item(row, code=code, payload={"photo": row % 900}) for row, code in enumerate(CODES))
    return place


def test_a_file_of_codes(file):
    found = told(file)
    advice = advise_radius(CODES)
    assert (found["radius"], found["reason"], found["n_rows"]) == (advice.radius, advice.reason, 1000)
    assert [row["expected_false_pairs"] for row in found["table"]] == [row.expected_false_pairs for row in advice.table]
    assert [row["pairs_found"] for row in found["table"][:4]] == [0, 0, 100, 100]
    result = run("calibrate", file)
    assert result.stdout.startswith("1,000 codes of 64 bits; false pairs expected among 1,000 rows\n\n| radius |")
    assert f"\nRecommended radius: {advice.radius}. Within radius {advice.radius}, about " in result.stdout
    assert "recall" not in result.stdout
    assert "hamtarget dups" not in result.stdout


def test_lines_and_an_index_file(file, tmp_path):
    wanted = told(file)
    lines = "\n".join(code.tobytes().hex() for code in CODES)
    assert told("-", input=lines)["table"] == wanted["table"]
    index = MultiIndex(64, 2)
    index.add(np.arange(len(CODES)), CODES)
    index.save(tmp_path / "codes.ham")
    assert told(tmp_path / "codes.ham")["table"] == wanted["table"]
    named = [json.dumps({"code": code.tobytes().hex(), "payload": {"of": row % 900}}) for row, code in enumerate(CODES)]
    (tmp_path / "codes.jsonl").write_text("\n".join(named))
    assert [row["recall"] for row in told(tmp_path / "codes.jsonl", "--label", "of")["table"][:3]] == [0, 0, 1]


def test_a_store(store):
    found = told(store)
    assert (found["n_rows"], found["n_codes"], found["n_bits"]) == (1000, 1000, 64)
    assert [row["pairs_found"] for row in found["table"][:4]] == [0, 0, 100, 100]
    result = run("calibrate", store)
    assert result.stdout.rstrip().endswith(f"--radius {found['radius']}")


def test_more_rows_and_fewer_false_pairs(file):
    usual, large, strict = told(file), told(file, "--rows", "1000000"), told(file, "--false-pairs", "0.0001")
    assert large["n_rows"] == 1_000_000
    assert large["radius"] < usual["radius"]
    assert strict["radius"] < usual["radius"]


def test_labels_tell_recall(store):
    found = told(store, "--label", "photo")
    assert [row["recall"] for row in found["table"][:4]] == [0, 0, 1, 1]
    # All known copies are within two bits: a larger radius would find no more of them.
    assert found["radius"] == 2
    result = run("calibrate", store, "--label", "photo")
    assert "100.0% of known copies are found." in result.stdout
    assert "| recall |" in result.stdout
    assert "no two items" in last_line(run("calibrate", store, "--label", "nothing"))


def test_even_distances_only(tmp_path):
    bits = np.argsort(np.random.default_rng(0).random((1000, 64)), axis=1) < 32
    np.save(tmp_path / "even.npy", np.packbits(bits, axis=1, bitorder="little"))
    lines = run("calibrate", tmp_path / "even.npy").stdout.splitlines()
    radii = [int(line.split("|")[1]) for line in lines if line.startswith("|") and line.split("|")[1].strip().isdigit()]
    assert len(radii) > 3
    assert all(radius % 2 == 0 for radius in radii)


def test_pairs_of_a_sample_are_counted_by_a_join(file, monkeypatch):
    monkeypatch.setattr("hamtarget.evaluation.radius_advice._WORDS", 3e5)
    found = told(file)
    assert found["compared"] < 1000
    radius = found["radius"]
    exact = sum(len(pairs.a) for pairs in pairs_within(CODES, radius))
    assert found["table"][radius]["pairs_found"] == exact
    pairs = [row["pairs_found"] for row in found["table"]]
    assert pairs == sorted(pairs)
    text = run("calibrate", file).stdout
    assert f"| {exact} |".replace(" ", "") in text.replace(" ", "")
    assert "about" in text
    monkeypatch.setattr(calibrate, "_COUNTING_SECONDS", 0.0)
    assert told(file)["table"][2]["pairs_found"] == advise_radius(CODES).table[2].pairs_found


def test_altered_pictures(photos, tmp_path):
    encoder = open_encoder("dhash")
    paths = sorted(photos.rglob("*.png"))
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no picture")
    codes = np.zeros((len(paths) + 2, 8), dtype=np.uint8)
    with Store.create(tmp_path / "store", encoder=encoder, radius=2) as made:
        for row, path in enumerate([*paths, broken, tmp_path / "gone.png"]):
            made.put([Item(row, code=codes[row], payload={"image": str(path)})])
    found = told(tmp_path / "store", "--alter", "100")
    recall = [row["recall"] for row in found["table"]]
    assert recall == sorted(recall)
    assert set(found["recall_by_alteration"]) >= {"grey", "half the size", "crop of 5%"}
    # A grey picture has no colours to lose.
    assert found["recall_by_alteration"]["grey"] == 1
    result = run("calibrate", tmp_path / "store", "--alter", "5")
    assert "Found within it: half the size " in result.stdout, result.output


def test_altered_pictures_of_a_folder(photos, tmp_path):
    assert run("sync", tmp_path / "store", photos, "--encoder", "dhash").exit_code == 0
    assert "pass it as --images" in last_line(run("calibrate", tmp_path / "store", "--alter", "3"))
    assert told(tmp_path / "store", "--alter", "3", "--images", photos)["recall_by_alteration"]["grey"] == 1


def test_an_empty_store(tmp_path):
    Store.create(tmp_path / "store", n_bits=64, radius=2).close()
    assert told(tmp_path / "store")["n_codes"] == 0
    assert told(tmp_path / "store", "--rows", "1000")["n_rows"] == 1000


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["{file}", "--label", "of"], "has no payloads"),
        (["{file}", "--alter", "3"], "is no store"),
        (["{store}", "--alter", "3"], "has no encoder"),
        (["{store}", "--alter", "3", "--label", "of"], "pass one of them"),
        (["{file}", "--false-pairs", "0"], "false_pairs is 0"),
        (["{photos}"], "holds images"),
        (["/nowhere"], "is not there"),
    ],
)
def test_what_cannot_be_calibrated(arguments, line, file, photos, tmp_path):
    Store.create(tmp_path / "store", n_bits=64, radius=2).close()
    places = {"file": file, "store": tmp_path / "store", "photos": photos}
    result = run("calibrate", *(argument.format(**places) for argument in arguments))
    assert result.exit_code == 2
    assert line in last_line(result)


@pytest.mark.parametrize(
    ("lines", "line"), [("", "holds no codes"), ("00ff\n00\n", "codes of one length"), ("[1, 2]\n", "is no code")]
)
def test_lines_that_are_no_codes(lines, line):
    result = run("calibrate", "-", input=lines)
    assert result.exit_code == 2
    assert line in last_line(result)


def test_a_store_whose_pictures_are_gone(tmp_path):
    with Store.create(tmp_path / "store", encoder=open_encoder("dhash"), radius=2) as made:
        made.put([Item(0, code=np.zeros(8, dtype=np.uint8), payload={"image": "/nowhere.png"})])
    assert "has the path of a picture" in last_line(run("calibrate", tmp_path / "store", "--alter", "3"))
