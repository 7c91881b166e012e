"""Readers of texts: every format, every kind of broken row, and chunks of long texts."""

import gzip
import io
import json
import sys

import pytest

from hamtarget.datasets.texts.text_files import TextRow, chunks_of, column_names, is_text_file, read_texts
from hamtarget.errors import CorruptFileError, FileError, InputError


def read(path, **how):
    broken = []
    return list(read_texts(path, on_broken=broken.append, **how)), broken


def test_a_csv_with_quotes_and_lines(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_bytes(b'\xef\xbb\xbfid,body,kind\r\nx,"two\r\nlines, quoted ""so""",1\r\n,plain,2\r\n\r\ny,more,3\r\n')
    rows, broken = read(path, text_column="body")
    assert rows == [
        TextRow("x", 'two\r\nlines, quoted "so"', {"kind": "1"}, 2),
        TextRow(4, "plain", {"kind": "2"}, 4),
        TextRow("y", "more", {"kind": "3"}, 6),
    ]
    assert broken == []
    assert column_names(path) == ["id", "body", "kind"]


def test_a_tsv_of_one_column_needs_no_name(tmp_path):
    path = tmp_path / "texts.TSV"
    path.write_text("whatever\none text\nanother\n")
    assert [row.text for row in read(path)[0]] == ["one text", "another"]


def test_missing_columns_name_those_there_are(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("title,body\na,b\n")
    with pytest.raises(InputError, match=r"no column 'text'.*title, body"):
        read(path, text_column="text")
    with pytest.raises(InputError, match=r"several columns.*title, body.*--text-column"):
        read(path)
    with pytest.raises(InputError, match=r"no column 'key'"):
        read(path, text_column="body", id_column="key")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(FileError, match="empty"):
        read(tmp_path / "empty.csv")


def test_broken_rows_of_a_csv_are_named_and_left_out(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_bytes(b"text,n\ngood,1\nbad \xff,2\nshort\n   ,3\nlast,4\n")
    rows, broken = read(path)
    assert [row.text for row in rows] == ["good", "last"]
    assert [each.partition(", ")[2] for each in broken] == [
        "line 3: not UTF-8",
        "line 4: has 1 fields; expected 2",
        "line 5: the text is empty",
    ]


def test_jsonl_with_everything_that_can_be_wrong(tmp_path):
    path = tmp_path / "texts.jsonl"
    lines = [
        json.dumps({"id": "a", "text": "first", "n": 1}),
        "no json",
        "[1, 2]",
        json.dumps({"body": "other field", "x": 1}),
        json.dumps({"text": 3}),
        json.dumps({"text": None}),
        json.dumps({"text": "t", "id": [1]}),
        json.dumps("a text alone"),
        json.dumps({"only": "the only field"}),
        "",
        json.dumps({"text": "last", "id": 7}),
    ]
    path.write_bytes("\n".join(lines).encode() + b"\n\xff\xfe\n")
    rows, broken = read(path)
    assert [(row.id, row.text) for row in rows] == [
        ("a", "first"),
        (8, "a text alone"),
        (9, "the only field"),
        (7, "last"),
    ]
    assert rows[0].others == {"n": 1}
    assert [each.partition("line ")[2].split(":")[0] for each in broken] == ["2", "3", "4", "5", "6", "7", "12"]
    assert "its fields are body, x" in broken[2]


def test_txt_is_a_text_a_line_also_compressed(tmp_path):
    path = tmp_path / "texts.txt.gz"
    path.write_bytes(gzip.compress(b'one\n\n{"not": "json here"}\nthree\n'))
    rows, broken = read(path)
    assert [(row.id, row.text) for row in rows] == [(1, "one"), (3, '{"not": "json here"}'), (4, "three")]
    path.write_bytes(gzip.compress(b"one\n" * 1000)[:-9])
    with pytest.raises(CorruptFileError, match="gzip"):
        read(path)


def test_a_line_without_end_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr("hamtarget.datasets.texts.text_files._MAX_LINE", 20)
    path = tmp_path / "texts.txt"
    path.write_text("short\n" + "x" * 70 + "\nlast\n")
    rows, broken = read(path)
    assert [(row.id, row.text) for row in rows] == [(1, "short"), (3, "last")]
    assert "line 2: longer than 20 bytes" in broken[0]


def test_other_files_are_refused(tmp_path):
    with pytest.raises(FileError, match="no file of texts"):
        read(tmp_path / "picture.png")
    with pytest.raises(FileError, match="No such file"):
        read(tmp_path / "missing.csv")
    assert is_text_file("a.JSONL.gz")
    assert not is_text_file("a.npy")


def test_the_standard_input_has_objects_or_texts(monkeypatch, tmp_path):
    path = tmp_path / "lines"
    path.write_text('plain text\n{"id": "q", "text": "in an object"}\n')
    with path.open("rb") as stream:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
        rows, broken = read("-")
    assert [(row.id, row.text) for row in rows] == [(1, "plain text"), ("q", "in an object")]
    assert broken == []


def test_chunks_cover_all_words_and_overlap():
    words = [f"w{number}" for number in range(97)]
    row = TextRow("doc", "  ".join(words), {"kind": 1}, 3)
    chunks = list(chunks_of(row, 20))
    seen = [chunk.text.split() for chunk in chunks]
    assert [chunk.id for chunk in chunks] == [f"doc#{number}" for number in range(1, len(chunks) + 1)]
    assert chunks[1].others == {"kind": 1, "document": "doc", "chunk": 2}
    assert all(len(each) <= 20 for each in seen)
    assert all(before[-4:] == after[:4] for before, after in zip(seen, seen[1:], strict=False))
    assert sorted({word for each in seen for word in each}, key=words.index) == words
    assert list(chunks_of(row, 97)) == [row]
    with pytest.raises(InputError, match="too short"):
        list(chunks_of(row, 4))


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_another_delimiter_is_named(tmp_path, delimiter):
    path = tmp_path / "texts.csv"
    path.write_text(f"id{delimiter}body\n1{delimiter}some words\n")
    for column in ("body", None):
        with pytest.raises(InputError, match="seem to be separated by"):
            read(path, text_column=column)


def test_values_of_json_are_named_as_json_does(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": 5}\n{"text": ["x"]}\n["x"]\n7\n{"text": true}\n')
    _, broken = read(path)
    for said, wanted in zip(broken, ["a number", "a list", "a list", "a number", "true or false"], strict=True):
        assert f"{wanted}; expected" in said
