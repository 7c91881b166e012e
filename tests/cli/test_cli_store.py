"""`hamtarget add`, `search`, `dups`, `verify` and `info`."""

import json
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

from hamtarget import FlatIndex, MultiIndex, NeighborIndex, Store
from hamtarget.cli.main import app
from hamtarget.datasets import read_images
from hamtarget.encoders import open_encoder


def run(*arguments, input=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=input)


def last_line(result):
    return result.stderr.splitlines()[-1]


def jsonl(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


CODES = ("0000", "0001", "0003", "ff00", "ff01", "aaaa")


@pytest.fixture
def codes(tmp_path):
    """A store of six 16-bit codes."""
    folder = tmp_path / "codes"
    records = [{"id": f"n{k}", "code": code, "payload": {"k": k, "even": k % 2 == 0}} for k, code in enumerate(CODES)]
    result = run("add", folder, "-", input=jsonl(*records))
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{folder}: 6 stored, 0 skipped; 6 in all\n"
    return folder


def test_a_store_of_images(filled, photos, trained):
    with Store.open(filled, read_only=True) as store:
        assert (len(store), store.n_bits, store.radius) == (36, 16, 2)
        (item,) = store.get(["disc/03.png"])
        payload = dict(item.payload)
        assert payload.pop("file").startswith(f"{(photos / 'disc' / '03.png').stat().st_size} ")
        assert payload == {"image": "disc/03.png", "label": "disc", "folder": "photos"}
    codes = {
        record["id"]: record["code"]
        for record in map(json.loads, run("encode", trained.model, photos, "--json").stdout.splitlines())
    }
    assert np.asarray(item.code, dtype=np.uint8).tobytes().hex() == codes["disc/03.png"]


def test_what_is_there_is_skipped_unless_replaced(codes):
    other = jsonl({"id": "n0", "code": "ffff"}, {"id": "new", "code": "1234"})
    assert run("add", codes, input=other).stdout == f"{codes}: 1 stored, 1 skipped; 7 in all\n"
    assert json.loads(run("search", codes, "--id", "n0", "-k", "1", "--json").stdout)["hits"][0]["distance"] == 0
    assert run("search", codes, "0000", "--radius", "0", "--json").stdout.count('"id": "n0"') == 1
    told = json.loads(run("add", codes, "--replace", "--json", input=other).stdout)
    assert told == {"store": str(codes), "stored": 2, "skipped": 0, "broken": 0, "items": 7}
    assert json.loads(run("search", codes, "0000", "--radius", "0", "--json").stdout)["hits"] == []


def test_the_same_id_twice_in_one_batch(tmp_path):
    twice = jsonl({"id": "a", "code": "00"}, {"id": "a", "code": "ff"})
    assert run("add", tmp_path / "store", input=twice).stdout.endswith("1 stored, 1 skipped; 1 in all\n")


def test_a_prefix_keeps_two_files_apart(tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(6, dtype=np.uint8).reshape(3, 2))
    for prefix in ("a", "b"):
        assert run("add", tmp_path / "store", tmp_path / "rows.npy", "--prefix", prefix).exit_code == 0
    with Store.open(tmp_path / "store", read_only=True) as store:
        assert sorted(item.id for item in store.scan()) == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_images_that_cannot_be_read(tmp_path, photos, trained):
    shutil.copytree(photos / "disc", tmp_path / "photos")
    (tmp_path / "photos" / "05.png").write_bytes(b"no picture")
    result = run("add", tmp_path / "store", tmp_path / "photos", "--model", trained.model)
    assert result.exit_code == 1
    assert result.stdout.endswith("11 stored, 0 skipped; 11 in all\n")
    assert "left out" in result.stderr
    assert "05.png" in result.stderr
    assert last_line(result) == "hamtarget: 1 could not be read"


def test_options_must_fit_the_store(codes, filled, photos, trained, tmp_path):
    same = run("add", filled, photos, "--model", trained.model, "--bits", "16", "--radius", "2")
    assert (same.exit_code, "0 stored, 36 skipped" in same.stdout) == (0, True)
    other = tmp_path / "other"
    settings = [*trained.settings, "--seed", "1", "--steps", "5"]
    assert run("train", photos, "--model", other, *settings).exit_code == 0
    for arguments, text in (
        ((filled, photos, "--model", other), "another model"),
        ((codes, photos, "--model", trained.model), "another model"),
        ((codes, "-", "--bits", "32"), "--bits is 32"),
        ((codes, "-", "--radius", "5"), "--radius is 5"),
        ((tmp_path / "new", photos), "pass --model"),
        ((tmp_path / "new", photos, "--model", tmp_path), "expected a trained encoder"),
        ((codes, photos), "no model to encode it"),
    ):
        result = run("add", *arguments, input="0000\n")
        assert (result.exit_code, text in last_line(result)) == (2, True), result.output
    assert not (tmp_path / "new").exists()


def test_a_wrong_line_ends_the_command_and_keeps_what_came_before(tmp_path):
    lines = "00ff\n0102\n{broken\n0304\n"
    result = run("add", tmp_path / "store", "--batch", "1", input=lines)
    assert result.exit_code == 2
    assert last_line(result).startswith("hamtarget: standard input, line 3: not JSON")
    with Store.open(tmp_path / "store", read_only=True) as store:
        assert len(store) == 2
    result = run("add", tmp_path / "store", input="00ff\n0102\n0304\n")
    assert "1 stored, 2 skipped; 3 in all" in result.stdout
    result = run("add", tmp_path / "store", input="00ff00\n")
    assert (result.exit_code, "skipped" in result.stdout) == (0, True)
    result = run("add", tmp_path / "store", "--prefix", "x", input="00ff00\n")
    assert "code of 'x0' has 24 bits; expected 16" in last_line(result)
    result = run("add", tmp_path / "other", input="00ff\n00ff00\n")
    assert "code of id 1 has 24 bits; expected 16" in last_line(result)


def test_what_codes_look_like_is_told_where_a_new_store_finds_none(tmp_path):
    result = run("add", tmp_path / "store", input="first,00ff\n")
    assert result.exit_code == 2
    assert '{"id": "a", "code": "8f3c02d1a4b7e690"}' in last_line(result)


def test_search_by_code(codes):
    told = json.loads(run("search", codes, "0000", "--radius", "2", "--json").stdout)
    assert told["query"] == "0000"
    assert [(hit["id"], hit["distance"]) for hit in told["hits"]] == [("n0", 0), ("n1", 1), ("n2", 2)]
    assert told["hits"][1]["payload"] == {"k": 1, "even": False}
    told = json.loads(run("search", codes, "0000", "--radius", "2", "--limit", "1", "--json").stdout)
    assert len(told["hits"]) == 1
    told = json.loads(run("search", codes, "ff01", "-k", "2", "--json").stdout)
    assert [hit["id"] for hit in told["hits"]] == ["n4", "n3"]


def test_search_table(codes):
    lines = run("search", codes, "0001", "-k", "2").stdout.splitlines()
    assert lines[0].split() == ["|", "id", "|", "distance", "|", "payload", "|"]
    assert [line.split()[1] for line in lines[2:]] == ["n1", "n0"]
    lines = run("search", codes, "0001", "ff00", "-k", "1").stdout.splitlines()
    assert lines[0].split()[1] == "query"
    assert [line.split()[1:4:2] for line in lines[2:]] == [["0001", "n1"], ["ff00", "n3"]]


def test_search_by_filter(codes):
    def found(*filters):
        arguments = [argument for text in filters for argument in ("--filter", text)]
        return [hit["id"] for hit in json.loads(run("search", codes, "0000", *arguments, "--json").stdout)["hits"]]

    assert sorted(found("even=true")) == ["n0", "n2", "n4"]
    assert sorted(found("k=2..4")) == ["n2", "n3", "n4"]
    assert sorted(found("k=4..")) == ["n4", "n5"]
    assert found("even=true", "k=..1") == ["n0"]
    assert found("k=two") == []
    assert "expected FIELD=VALUE" in last_line(run("search", codes, "0000", "--filter", "k"))


def test_search_by_id(codes, tmp_path):
    lines = run("search", codes, "--id", "n3", "--id", "n5", "-k", "1", "--json").stdout.splitlines()
    assert [json.loads(line)["hits"][0]["id"] for line in lines] == ["n3", "n5"]
    np.save(tmp_path / "rows.npy", np.arange(6, dtype=np.uint8).reshape(3, 2))
    run("add", tmp_path / "store", tmp_path / "rows.npy")
    told = json.loads(run("search", tmp_path / "store", "--id", "2", "-k", "1", "--json").stdout)
    assert told["hits"][0]["id"] == 2
    assert "has no item '7'" in last_line(run("search", tmp_path / "store", "--id", "7"))


def test_search_by_image_and_file(filled, photos, trained):
    image = photos / "disc" / "03.png"
    told = json.loads(run("search", filled, image, "-k", "3", "--json").stdout)
    assert told["hits"][0]["distance"] == 0
    lines = run("encode", trained.model, photos, "--json").stdout
    told = [
        json.loads(line) for line in run("search", filled, "-", "-k", "1", "--json", input=lines).stdout.splitlines()
    ]
    assert len(told) == 36
    assert all(query["hits"][0]["distance"] == 0 for query in told)
    # Learned codes: the nearest pictures are of the same class far more often than by chance.
    near = json.loads(run("search", filled, image, "-k", "6", "--json").stdout)["hits"]
    assert sum(hit["payload"]["label"] == "disc" for hit in near) >= 4


@pytest.mark.parametrize("element", ["float32", "int8"])
def test_search_ranks_by_embeddings(element, photos, trained, tmp_path):
    store = tmp_path / "store"
    arguments = [store, photos, "--model", trained.model, "--embeddings", element]
    assert run("add", *arguments).exit_code == 0
    assert "36 skipped" in run("add", *arguments).stdout
    image = photos / "noise" / "07.png"
    told = json.loads(run("search", store, image, "-k", "36", "--rerank", "5", "--json").stdout)
    encoder = open_encoder(trained.model)
    sources = sorted(photos.glob("*/*.png"))
    embedding = encoder.embedding(read_images([image, *sources], encoder.input_shape))
    closeness = 1 - embedding[1:] @ embedding[0]
    found = [hit["embedding_distance"] for hit in told["hits"]]
    np.testing.assert_allclose(found, np.sort(closeness)[:5], atol=0.02 if element == "int8" else 1e-5)
    assert found == sorted(found)
    by_id = json.loads(run("search", store, "--id", "noise/07.png", "-k", "36", "--rerank", "5", "--json").stdout)
    assert by_id["hits"] == told["hits"]
    within = json.loads(run("search", store, image, "--radius", "15", "--rerank", "5", "--json").stdout)
    assert within["hits"] == told["hits"]
    assert "| embedding distance | payload" in run("search", store, image, "--rerank", "20").stdout
    assert "is a code" in last_line(run("search", store, "0000", "--rerank", "20"))
    assert "is a code" in last_line(run("add", store, input=jsonl({"id": "x", "code": "0000"})))
    assert "--embeddings is float16" in last_line(run("add", *arguments[:-1], "float16"))


def test_embeddings_must_be_there_to_rank_by(codes, photos, tmp_path):
    assert "keeps no embeddings" in last_line(run("search", codes, "0000", "--rerank", "20"))
    assert "keeps no embeddings" in last_line(run("search", codes, "0000", "--rerank", "20", "--radius", "1"))
    result = run("add", tmp_path / "new", "--embeddings", "int8", input="0000")
    assert "without --model" in last_line(result)


def test_search_agrees_with_a_linear_scan(tmp_path):
    rng = np.random.default_rng(0)
    rows, queries = rng.integers(0, 256, (500, 4), dtype=np.uint8), rng.integers(0, 256, (20, 4), dtype=np.uint8)
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "queries.npy", queries)
    run("add", tmp_path / "store", tmp_path / "rows.npy", "--batch", "64")
    result = run("search", tmp_path / "store", tmp_path / "queries.npy", "--radius", "9", "--json")
    for line, query in zip(result.stdout.splitlines(), queries, strict=True):
        far = np.bitwise_count(rows ^ query).sum(axis=1)
        wanted = sorted((int(far[row]), int(row)) for row in np.flatnonzero(far <= 9))
        assert [(hit["distance"], hit["id"]) for hit in json.loads(line)["hits"]] == wanted


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "nothing to search for"),
        (["0000", "-k", "1", "--radius", "1"], "--nearest and --radius are given"),
        (["0000", "-k", "1", "--budget", "9"], "--nearest and --budget are given"),
        (["0000", "--limit", "1"], "--limit is given without --radius or --budget"),
        (["0000", "--radius", "1", "--comparisons", "5"], "--comparisons is given without --budget"),
        (["0000", "--budget", "9", "--comparisons", "5", "--rerank", "2"], "no embeddings are kept here"),
        (["nothing.png"], "is no file and no code"),
        (["000000"], "code of '000000' has 24 bits; expected 16"),
        (["[1, 2]"], "no model to encode it"),
        (["0000", "--radius", "16"], "radius is 16"),
    ],
)
def test_searches_that_cannot_be(codes, arguments, text):
    result = run("search", codes, *arguments)
    assert (result.exit_code, text in last_line(result), result.stdout) == (2, True, "")


def test_a_store_that_is_not_there(tmp_path):
    for arguments in (["search", tmp_path / "no", "00"], ["dups", tmp_path / "no"], ["verify", tmp_path / "no"]):
        result = run(*arguments)
        assert result.exit_code == 2
        assert last_line(result).startswith("hamtarget: ")
    assert not (tmp_path / "no").exists()


def test_dups(codes):
    result = run("dups", codes, "--radius", "1")
    assert sorted(result.stdout.splitlines()) == ["n0\tn1\t1", "n1\tn2\t1", "n3\tn4\t1"]
    assert last_line(result) == "hamtarget: 3 pairs"
    pairs = [json.loads(line) for line in run("dups", codes, "--json").stdout.splitlines()]
    assert {(pair["a"], pair["b"], pair["distance"]) for pair in pairs} == {
        ("n0", "n1", 1),
        ("n0", "n2", 2),
        ("n1", "n2", 1),
        ("n3", "n4", 1),
    }
    result = run("dups", codes, "--radius", "1", "--groups")
    assert sorted(sorted(line.split("\t")) for line in result.stdout.splitlines()) == [["n0", "n1", "n2"], ["n3", "n4"]]
    groups = [
        json.loads(line) for line in run("dups", codes, "--groups", "--radius", "1", "--json").stdout.splitlines()
    ]
    assert sorted(map(len, groups)) == [2, 3]


def test_groups(codes):
    result = run("groups", codes, "--radius", "1")
    assert result.stdout.splitlines() == [
        "Group 1: 3 items",
        "  representative  n0",
        "  distance 1      n1",
        "  distance 2      n2",
        "Group 2: 2 items",
        "  representative  n3",
        "  distance 1      n4",
    ]
    assert last_line(result) == "hamtarget: 2 groups of 5 items"
    result = run("groups", codes, "--radius", "1", "--members", "2", "--limit", "1")
    assert result.stdout.splitlines()[-1] == "  and 1 more"
    lines = run("groups", codes, "--radius", "1", "--linkage", "representative", "--json").stdout.splitlines()
    assert json.loads(lines[0]) == {
        "id": 1,
        "size": 2,
        "representative": "n0",
        "is_capped": False,
        "members": [{"id": "n0", "distance": 0}, {"id": "n1", "distance": 1}],
    }
    lines = run("groups", codes, "--radius", "1", "--csv").stdout.splitlines()
    assert lines[:3] == ["group,size,representative,id,distance", "1,3,n0,n0,0", "1,3,n0,n1,1"]
    assert (codes / "groups" / "1-single.db").exists()
    assert run("groups", codes, "--csv", "--json").exit_code == 2


def test_groups_while_another_process_writes(codes):
    with Store.open(codes):
        result = run("groups", codes, "--radius", "1", "--limit", "1")
        assert result.stdout.startswith("Group 1: 3 items")
        assert "not kept" in result.stderr
    assert not (codes / "groups").exists()


def test_names_that_a_terminal_would_obey_are_quoted(tmp_path):
    name = "a\tb\x1b[31m"
    run("add", tmp_path / "store", input=jsonl({"id": name, "code": "00"}, {"id": "c", "code": "00"}))
    assert "\x1b" not in run("search", tmp_path / "store", "00").stdout
    line = run("dups", tmp_path / "store").stdout
    assert line.count("\t") == 2
    assert "\x1b" not in line
    told = json.loads(run("search", tmp_path / "store", "00", "-k", "1", "--json").stdout)
    assert told["hits"][0]["id"] == name


def test_verify(codes, filled, trained, photos, tmp_path):
    for path, kind in ((codes, "store, 6 rows"), (filled, "store, 36 rows"), (trained.model, "model")):
        result = run("verify", path)
        assert (result.exit_code, result.stdout) == (0, f"{path}: whole ({kind})\n")
    assert run("verify", photos).stdout == f"{photos}: whole (images, 36 rows)\n"
    index = MultiIndex(16, 2)
    index.add([1, 2], np.zeros((2, 2), dtype=np.uint8))
    index.save(tmp_path / "index.ham")
    assert run("verify", tmp_path / "index.ham").stdout.endswith("whole (index, 2 rows)\n")
    assert run("verify", trained.model / "model.onnx").exit_code == 0


def damage(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(content)


def test_verify_finds_damage(filled, trained, tmp_path):
    index = FlatIndex(16)
    index.add(range(500), np.zeros((500, 2), dtype=np.uint8))
    index.save(tmp_path / "index.ham")
    np.save(tmp_path / "rows.npy", np.full((2, 3), np.nan))
    shutil.copytree(trained.model, tmp_path / "model")
    shutil.copytree(trained.model, tmp_path / "weights")
    shutil.copytree(filled, tmp_path / "store")
    damage(tmp_path / "index.ham", -40)
    damage(tmp_path / "model" / "model.onnx", 500)
    damage(tmp_path / "weights" / "model.safetensors", -500)
    damage(tmp_path / "store" / "encoder" / "model.onnx", 500)
    for name in ("index.ham", "rows.npy", "model", "weights", "store"):
        result = run("verify", tmp_path / name)
        assert (result.exit_code, "DAMAGED" in result.stdout) == (1, True), name
        told = json.loads(run("verify", tmp_path / name, "--json").stdout)
        assert not told["whole"]
        assert len(told["problems"]) == 1


def test_info(codes, filled, trained, photos, tmp_path):
    told = json.loads(run("info", filled, "--json").stdout)
    assert (told["kind"], told["items"], told["n_bits"], told["radius"]) == ("store", 36, 16, 2)
    assert json.loads(run("info", codes, "--json").stdout)["encoder"] is None
    told = json.loads(run("info", trained.model, "--json").stdout)
    assert told["input_shape"] == list(open_encoder(trained.model).input_shape)
    assert told["runs_by"] == "onnxruntime"
    told = json.loads(run("info", photos, "--json").stdout)
    assert (told["images"], told["classes"]) == (36, ["bars", "disc", "noise"])
    assert json.loads(run("info", photos / "disc", "--json").stdout)["images"] == 12
    np.save(tmp_path / "rows.npy", np.zeros((5, 3), dtype=np.float32))
    told = json.loads(run("info", tmp_path / "rows.npy", "--json").stdout)
    assert (told["rows"], told["columns"], told["elements"]) == (5, 3, "float32")
    index = FlatIndex(16)
    index.save(tmp_path / "index.ham")
    assert json.loads(run("info", tmp_path / "index.ham", "--json").stdout)["kind"] == "FlatIndex"
    assert "numpy" in json.loads(run("info", "--json").stdout)
    assert "| n_bits " in run("info", filled).stdout
    assert "is not there" in last_line(run("info", tmp_path / "no"))


def test_the_file_of_a_neighbor_index(tmp_path):
    path = tmp_path / "rows.neighbors"
    NeighborIndex(metric="l2").fit(np.random.default_rng(0).standard_normal((50, 8))).save(path)
    told = json.loads(run("info", path, "--json").stdout)
    assert (told["kind"], told["rows"], told["columns"], told["metric"]) == ("NeighborIndex", 50, 8, "l2")
    assert run("verify", path).stdout.endswith("whole (neighbors, 50 rows)\n")
    path.write_bytes(path.read_bytes()[:-100])
    result = run("verify", path)
    assert (result.exit_code, "DAMAGED" in result.stdout) == (1, True)


def test_a_service_for_others_names_an_address_that_they_can_open(codes, monkeypatch):
    monkeypatch.setenv("HAMTARGET_TOKEN", "a" * 43)
    monkeypatch.setattr("socket.gethostname", lambda: "desk")
    for host, shown in (("0.0.0.0", "0.0.0.0"), ("::", "[::]"), ("127.0.0.1", "127.0.0.1")):
        monkeypatch.setattr(
            "hamtarget.serve.run", lambda store, settings, announce, at=shown: announce(f"http://{at}:8080/")
        )
        result = run("serve", codes, "--host", host)
        assert f"Serving at http://{shown}:8080/" in result.stdout
        assert ("open http://desk:8080/," in result.stderr) == (host != "127.0.0.1")


def test_a_csv_of_texts_is_told_what_to_pass(tmp_path):
    (tmp_path / "texts.csv").write_text("key,body,topic\n1,a text,a\n")
    result = run("add", tmp_path / "store", tmp_path / "texts.csv")
    assert result.exit_code == 2
    assert "expected path,label" in result.stderr
    assert "for texts pass --text-column NAME" in result.stderr
