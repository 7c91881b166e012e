"""Stores, copies and the command with texts."""

import csv
import json

import numpy as np
import pytest

from hamtarget import Store, open_encoder
from hamtarget.copies.text_finding import find_text_copies
from hamtarget.errors import DtypeError, FileError, InputError, ShapeError, TrainingError
from hamtarget.items import Item
from hamtarget.search import Embeddings
from tiny_sentence_model import write_model

typer_testing = pytest.importorskip("typer.testing")

DOCUMENTS = [
    "The quick brown fox jumps over the lazy dog while the sun goes down behind the hills",
    "the quick brown fox jumps over the lazy dog, while the sun goes down behind the hills!",
    "Nothing of this text has anything to do with animals, it is about taxes and forms instead",
    "A third text which is again entirely different from both of the others in every word of it",
    "Nothing of this text has anything to do with animals, it is about taxes and forms",
]


def run(*arguments, code=0, stdin=None):
    from hamtarget.cli.main import app

    result = typer_testing.CliRunner().invoke(app, [str(each) for each in arguments], input=stdin)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["key", "body", "kind"])
        writer.writerows([f"d{number}", text, number % 2] for number, text in enumerate(DOCUMENTS))
    return path


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_bytes(
        b"".join(json.dumps({"id": number, "text": text}).encode() + b"\n" for number, text in enumerate(DOCUMENTS))
    )
    return path


def test_strings_go_into_a_store(tmp_path):
    with Store.create(tmp_path / "store", encoder=open_encoder("simhash64")) as store:
        assert store.radius == 9
        store.put_rows(["a", "b", "c"], inputs=DOCUMENTS[:3])
        store.put([Item("d", input=DOCUMENTS[3])])
        assert [hit.id for hit in store.search(DOCUMENTS[1])] == ["a", "b"]
        assert [hit.id for hit in store.nearest(DOCUMENTS[3], k=1)] == ["d"]
        batch = store.search_batch(DOCUMENTS[2:4])
        assert [[hit.id for hit in hits] for hits in batch] == [["c"], ["d"]]
        with pytest.raises(ShapeError, match="takes texts"):
            store.search(np.zeros(3))
        with pytest.raises(ShapeError, match="one text"):
            store.search_batch("one text")
        with pytest.raises(DtypeError, match="input 1"):
            store.put_rows(["x", "y"], inputs=["text", 3])
    with Store.open(tmp_path / "store", read_only=True) as store:
        assert [hit.id for hit in store.search(DOCUMENTS[1])] == ["a", "b"]


def test_a_sentence_model_fills_a_store_with_embeddings(tmp_path):
    encoder = open_encoder(write_model(tmp_path / "tiny"))
    kind = Embeddings(encoder.n_bits, "int8", "cosine")
    with Store.create(tmp_path / "store", encoder=encoder, embeddings=kind) as store:
        store.put_rows([1, 2, 3], inputs=["the cat sat", "my card lost", "a dog runs on a mat"])
        (first, *_) = store.nearest("my card lost", k=3, rerank=3)
        assert first.id == 2
        assert first.embedding_distance == pytest.approx(0, abs=0.01)


def test_add_and_search_by_simhash(tmp_path, texts):
    store = tmp_path / "store"
    options = ["--text-column", "body", "--id-column", "key"]
    assert "5 stored" in run("add", store, texts, *options, "--encoder", "simhash64").stdout
    assert "0 stored, 5 skipped" in run("add", store, texts, *options).stdout
    found = json.loads(run("search", store, DOCUMENTS[0], "--json").stdout)
    assert [hit["id"] for hit in found["hits"]] == ["d0", "d1"]
    assert found["hits"][0]["payload"] == {"body": DOCUMENTS[0], "kind": "0"}
    assert run("search", store, "x" * 5000, "--nearest", 1).stdout
    # Which column of the queries has texts is not said.
    assert "key, body, kind" in run("search", store, texts, code=2).output
    # The second has the code of the first.
    by_column = run("search", store, texts, *options, "--nearest", 1, "--json").stdout.splitlines()
    assert [(json.loads(line)["query"], json.loads(line)["hits"][0]["id"]) for line in by_column] == [
        (f"d{number}", "d0" if number == 1 else f"d{number}") for number in range(5)
    ]
    from_lines = run("search", store, "-", "--json", stdin=f"{DOCUMENTS[3]}\n").stdout
    assert [hit["id"] for hit in json.loads(from_lines)["hits"]] == ["d3"]


def test_broken_lines_are_named_and_the_rest_is_added(tmp_path, lines):
    lines.write_bytes(lines.read_bytes() + b'no json\n\xff\n{"text": "!!!"}\n')
    result = run("add", tmp_path / "store", lines, "--encoder", "simhash64", code=1)
    assert "5 stored" in result.output
    for line, reason in ((6, "not JSON"), (7, "not UTF-8"), (8, "no words")):
        assert f"line {line}: " in result.output
        assert reason in result.output


def test_long_documents_are_added_in_chunks(tmp_path):
    path = tmp_path / "long.txt"
    words = [f"word{number}" for number in range(50)]
    path.write_text(" ".join(words) + "\nshort one\n")
    store = tmp_path / "store"
    assert "4 stored" in run("add", store, path, "--encoder", "simhash64", "--chunk-words", 20).stdout
    hits = json.loads(run("search", store, " ".join(words[16:36]), "--json").stdout)["hits"]
    assert hits[0]["id"] == "1#2"
    assert hits[0]["payload"]["document"] == 1


def test_a_sentence_model_is_used_as_it_is(tmp_path, lines):
    folder = write_model(tmp_path / "tiny")
    store = tmp_path / "store"
    path = tmp_path / "few.txt"
    path.write_text("the cat sat on a mat\nmy card lost\na dog runs\n")
    run("add", store, path, "--model", folder)
    hits = json.loads(run("search", store, "My CARD lost", "--json").stdout)["hits"]
    assert hits[0]["id"] == 2
    assert hits[0]["embedding_distance"] == pytest.approx(0, abs=0.01)
    assert "another model" in run("add", store, path, "--encoder", "simhash64", code=2).output


def test_train_learns_a_head_on_texts(tmp_path):
    pytest.importorskip("torch")
    folder = write_model(tmp_path / "tiny")
    path = tmp_path / "train.csv"
    rows = [
        f"{animal} {what} {extra},{animal}"
        for animal in ("cat", "dog")
        for what in ("sat", "runs")
        for extra in "abcdef"
    ]
    path.write_text("body,kind\n" + "\n".join(rows) + "\n")
    options = ["--text-column", "body", "--sentence-model", folder, "--model", tmp_path / "model"]
    said = run(
        "train", path, *options, "--label-column", "kind", "--steps", 5, "--batch-size", 8, "--device", "cpu"
    ).stdout
    assert "24 texts of 2 classes" in said
    assert "takes texts" in said
    some = tmp_path / "some.csv"
    some.write_text("body,kind\n" + "\n".join([*rows, "bird flies,", "a bird, "]) + "\n")
    said = run(
        "train", some, *options, "--label-column", "kind", "--steps", 5, "--batch-size", 8, "--device", "cpu"
    ).stdout
    assert "26 texts of 2 classes, 2 without one" in said
    assert sorted(each.name for each in (tmp_path / "model").iterdir()) == ["model.onnx", "tokenizer.json"]
    assert open_encoder(tmp_path / "model").has_head
    run("add", tmp_path / "store", path, "--text-column", "body", "--model", tmp_path / "model")
    assert run("search", tmp_path / "store", "cat sat a").stdout
    assert "no column 'intent'" in run("train", path, *options, "--label-column", "intent", code=2).output
    assert "not for texts" in run("train", path, *options, "--grey", code=2).output
    assert (
        "without --sentence-model" in run("train", path, "--model", tmp_path / "m", "--text-column", "b", code=2).output
    )
    assert (
        "no sentence model"
        in run("train", path, "--model", tmp_path / "m", "--sentence-model", tmp_path, code=2).output
    )


def test_a_training_that_failed_names_options_and_is_not_in_the_way_of_the_next(tmp_path, lines, monkeypatch):
    pytest.importorskip("torch")
    folder, checkpoint = write_model(tmp_path / "tiny"), tmp_path / "model" / "checkpoint.safetensors"

    def collapse(*_, **__):
        checkpoint.touch()
        raise TrainingError("the codes have collapsed")

    monkeypatch.setattr("hamtarget.learn.fitting.texts.fit_texts", collapse)
    said = run("train", lines, "--sentence-model", folder, "--model", tmp_path / "model", code=2).output
    assert "the codes have collapsed (options: --dissimilar-weight," in said
    assert not checkpoint.exists()


def test_encode_writes_codes_of_texts(lines):
    digits = run("encode", "simhash64", lines).stdout.split()
    codes = open_encoder("simhash64").encode(DOCUMENTS)
    assert digits == [code.tobytes().hex() for code in codes]
    lines.write_text("no json\n")
    assert "line 1" in run("encode", "simhash64", lines, code=2).output


def test_dups_gives_groups_of_texts(tmp_path, lines):
    result = run("dups", lines, "--radius", 9)
    assert "Group 1: 2 texts" in result.stdout
    (first, second) = (
        json.loads(line)["texts"] for line in run("dups", lines, "--radius", 9, "--json").stdout.splitlines()
    )
    assert sorted(copy["id"] for copy in first + second) == [0, 1, 2, 4]
    assert [copy["id"] for copy in second][0] in (1, 2)
    assert {copy["distance"] for copy in first} == {0} or {copy["distance"] for copy in second} == {0}


def test_a_group_begins_with_the_longest_text(lines):
    groups = find_text_copies(lines, radius=9)
    assert repr(groups).startswith("FoundTextCopies(2 groups with 4 of 5 texts")
    for group in groups:
        assert group[0].n_characters == max(copy.n_characters for copy in group)
        assert group[0].is_identical
        assert not group[1].is_identical
        assert group[0].excerpt == DOCUMENTS[group[0].id]


def test_reports_of_texts(tmp_path, lines):
    lines.write_bytes(lines.read_bytes() + json.dumps({"text": "<script>alert(1)</script> " * 30}).encode() + b"\n")
    lines.write_bytes(
        lines.read_bytes() + json.dumps({"text": "<script>alert(1)</script> " * 30}).encode() + b"\nbad\n"
    )
    for name in ("report.json", "report.csv", "report.html"):
        run("dups", lines, "--radius", 9, "--out", tmp_path / name, code=1)
    document = json.loads((tmp_path / "report.json").read_text())
    assert document["texts"] == 7
    assert document["unreadable"] == 1
    assert len(document["groups"]) == 3
    with (tmp_path / "report.csv").open(newline="") as stream:
        assert len(list(csv.DictReader(stream))) == 6
    page = (tmp_path / "report.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "3 groups of near copies" in page
    assert "no kind of report" in run("dups", lines, "--out", tmp_path / "report.pdf", code=2).output


def test_a_csv_names_pictures_unless_a_column_is_named(tmp_path, texts):
    assert "Group 1: 2 texts" in run("dups", texts, "--text-column", "body", "--id-column", "key", "--radius", 9).stdout
    refused = run("dups", texts, code=2).output
    assert "none of its" in refused
    assert "--text-column NAME; the columns are key, body, kind" in refused
    named = tmp_path / "named.csv"
    named.write_text(texts.read_text().replace("body", "text", 1))
    assert "Group 1: 2 texts" in run("dups", named, "--radius", 9).stdout
    assert "its columns are key, body, kind" in run("dups", texts, "--text-column", "text", code=2).output


def test_what_cannot_be_compared_is_refused(tmp_path, lines):
    with pytest.raises(FileError, match="twice"):
        find_text_copies("-")
    with pytest.raises(InputError, match="takes no texts"):
        find_text_copies(lines, encoder="phash")
    (tmp_path / "none.jsonl").write_text("no json\n")
    with pytest.raises(FileError, match=r"no text that can be read.*not JSON"):
        find_text_copies(tmp_path / "none.jsonl")
    store = tmp_path / "store"
    run("add", store, lines, "--encoder", "simhash64")
    assert "is a store" in run("dups", store, "--text-column", "text", code=2).output
    assert "--encoder simhash64" in run("add", tmp_path / "new", lines, "--text-column", "text", code=2).output


def test_a_text_without_words_is_no_copy_of_others(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("...\n???\nwords here\n")
    found = find_text_copies(path)
    assert len(found) == 0
    assert found.n_broken == 2


def test_texts_of_a_template_are_still_copies(tmp_path):
    # Thirty templates of 80 words, 40 texts of each with up to 15 other words: near pairs are no coincidences.
    random = np.random.default_rng(0)
    words = np.array([f"word{number}" for number in range(2000)])
    made = []
    for _ in range(30):
        template = random.choice(words, 80)
        for _ in range(40):
            text = template.copy()
            changed = random.integers(0, 16)
            text[random.choice(80, changed, replace=False)] = random.choice(words, changed)
            made.append(" ".join(text))
    made += [f"{text.replace(' ', ', ')}." for text in made[::40]]
    source = tmp_path / "made.txt"
    source.write_text("\n".join(made))
    found = find_text_copies(source)
    assert found.radius == 3
    assert "much alike" in found.reason
    group_of = {copy.line: number for number, group in enumerate(found.groups) for copy in group}
    assert all(group_of[1201 + number] == group_of[1 + 40 * number] for number in range(30))


def test_few_texts_are_counted_in_words(tmp_path):
    source = tmp_path / "one.txt"
    source.write_text("a single text of some words\n")
    assert find_text_copies(source).reason.startswith("1 text says little")


def test_a_query_without_words_is_refused(tmp_path):
    with Store.create(tmp_path / "store", encoder=open_encoder("simhash64")) as store:
        store.put_rows(range(len(DOCUMENTS)), inputs=DOCUMENTS)
        for query in ("", "?!"):
            with pytest.raises(InputError, match="has no words"):
                store.search(query)


def test_texts_that_are_taken_for_paths_get_advice(tmp_path):
    table = tmp_path / "long.csv"
    table.write_text('id,body\n1,"' + "word " * 40_000 + '"\n')
    assert "for texts pass --text-column" in run("dups", table, code=2).stderr
    lines = tmp_path / "long.txt"
    lines.write_text("word " * 300_000 + "\n")
    assert "for texts pass --encoder simhash64" in run("dups", lines, code=2).stderr
