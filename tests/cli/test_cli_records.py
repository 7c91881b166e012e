"""Whatever a command is given becomes records, and what is none is refused with its place."""

import io
import json
import sys

import numpy as np
import pytest
from PIL import Image

from hamtarget.cli.inputs.record_codes import encode_records
from hamtarget.cli.inputs.records import Record, open_records, parse_line
from hamtarget.errors import CorruptFileError, FileError, InputError, ShapeError


def read(source, **options):
    opened = open_records(str(source), **options)
    return opened.total, [record for batch in opened.batches(7) for record in batch]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("[1, 2.5]", {"id": 4, "vector": [1, 2.5]}),
        ('{"vector": [1]}', {"id": 4, "vector": [1]}),
        ('{"id": "a", "vector": [1], "payload": {"x": 1}}', {"id": "a", "vector": [1], "payload": {"x": 1}}),
        ("00ff", {"id": 4, "code": b"\x00\xff"}),
        ("00FF", {"id": 4, "code": b"\x00\xff"}),
        ('{"id": 7, "code": "0aB1"}', {"id": 7, "code": b"\x0a\xb1"}),
    ],
)
def test_lines(line, wanted):
    record = parse_line(line, number=4, where="here")
    found = {"id": record.id, "vector": record.vector, "code": record.code, "payload": record.payload}
    assert {name: value for name, value in found.items() if value is not None} == wanted


def test_lines_that_name_images(tmp_path):
    record = parse_line("a/b.png", number=0, where="here")
    assert (record.id, record.image.name) == ("a/b.png", "b.png")
    assert record.payload == {"image": "a/b.png"}
    outside = str(tmp_path / "b.png")
    assert parse_line(outside, number=0, where="here").payload == {"image": outside}
    assert parse_line("../b.png", number=0, where="here").payload["image"].startswith("/")
    record = parse_line('{"id": 5, "image": "b.png", "payload": {"label": "cat"}}', number=0, where="here")
    assert (record.id, record.payload["label"], record.payload["image"][-5:]) == (5, "cat", "b.png")
    # Digits are a code, unless there is a file of that name.
    assert parse_line("abcd", number=0, where="here").code == b"\xab\xcd"
    assert parse_line("abc", number=0, where="here").image.name == "abc"


def test_a_file_named_by_digits_is_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "abcd").touch()
    assert parse_line("abcd", number=0, where="here").image.name == "abcd"


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[1,",
        "{}",
        '{"id": 1}',
        '{"vector": [1], "code": "00"}',
        '{"code": "0"}',
        '{"code": "zz"}',
        '{"code": 7}',
        '{"image": ["a"]}',
        '{"vector": [1], "payload": 3}',
        '{"vector": [1], "name": 3}',
        '{"id": [1], "vector": [1]}',
        '{"id": true, "vector": [1]}',
        '{"id": null, "code": "00"}',
        '{"id": 1.5, "image": "a.png"}',
        '{"image": "a\\u0000.png"}',
        "a\0.png",
    ],
)
def test_lines_that_are_no_records(line):
    with pytest.raises(CorruptFileError, match="here, line 5: "):
        parse_line(line, number=4, where="here")


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO('00ff\n\n  \n{"id": "é", "code": "0102"}\n'))
    total, records = read("-")
    assert total is None
    assert [(record.id, record.code) for record in records] == [(0, b"\x00\xff"), ("é", b"\x01\x02")]


def test_files_of_lines(tmp_path):
    (tmp_path / "codes.jsonl").write_text("\n".join(json.dumps({"id": k, "code": f"{k:04x}"}) for k in range(20)))
    _, records = read(tmp_path / "codes.jsonl")
    assert [record.code for record in records] == [k.to_bytes(2, "big") for k in range(20)]
    (tmp_path / "codes.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CorruptFileError, match="not UTF-8"):
        read(tmp_path / "codes.txt")


def test_folders(photos):
    total, records = read(photos)
    assert total == len(records) == 36
    assert (records[0].id, records[0].payload["label"]) == ("bars/00.png", "bars")
    total, records = read(photos / "disc")
    assert total == 12
    assert records[3].id == "03.png"
    assert "label" not in records[3].payload


def test_csv(photos):
    path = photos.parent / "some.csv"
    path.write_text("path,label\nphotos/disc/00.png,round;grey\nphotos/bars/01.png,grey\n")
    _, records = read(path)
    assert [(record.id, record.payload["labels"]) for record in records] == [
        ("photos/disc/00.png", ["grey", "round"]),
        ("photos/bars/01.png", ["grey"]),
    ]
    path.write_text("photos/disc/00.png,round\n")
    assert read(path)[1][0].payload["label"] == "round"


def test_vectors_and_codes(tmp_path):
    rows = np.arange(12, dtype=np.uint8).reshape(3, 4)
    np.save(tmp_path / "rows.npy", rows)
    total, records = read(tmp_path / "rows.npy")
    assert total == 3
    np.testing.assert_array_equal([record.vector for record in records], rows)
    _, records = read(tmp_path / "rows.npy", codes=True)
    assert [record.code for record in records] == [row.tobytes() for row in rows]
    np.savez(tmp_path / "rows.npz", a=rows, b=rows + 1)
    _, records = read(tmp_path / "rows.npz", key="b")
    np.testing.assert_array_equal(records[0].vector, rows[0] + 1)
    np.save(tmp_path / "floats.npy", rows.astype(np.float32))
    with pytest.raises(InputError, match="expected packed codes"):
        read(tmp_path / "floats.npy", codes=True)


def test_nothing_there(tmp_path):
    with pytest.raises(FileError, match="is not there"):
        read(tmp_path / "nothing.npy")
    with pytest.raises(FileError, match="holds no image"):
        read(tmp_path)


class Doubling:
    """An encoder of vectors of two numbers: the bits are the signs of them, four times over."""

    n_bits, radius, input_shape = 8, 2, (2,)

    def logits(self, inputs):
        return np.tile(np.asarray(inputs, dtype=np.float32), (1, 4))


def test_encoding_keeps_the_order():
    records = [Record(0, vector=[1, -1]), Record(1, code=b"\x0f"), Record(2, vector=np.array([-1.0, 1]))]
    encoded = encode_records(records, Doubling(), n_bits=8)
    assert encoded.codes[:, 0].tolist() == [0b01010101, 0x0F, 0b10101010]
    assert encoded.records == records
    assert encoded.broken == {}


@pytest.mark.parametrize(
    ("record", "error", "text"),
    [
        (Record("a", code=b"\x00\x00"), ShapeError, "code of 'a' has 16 bits; expected 8, 2 digits"),
        (Record("a", vector=[1, 2, 3]), ShapeError, r"vector of 'a' has shape \(3,\)"),
        (Record("a", vector=[[1], [2, 3]]), ShapeError, "ragged"),
        (Record("a", image="x.png"), InputError, "takes vectors of 2 numbers, no images"),
    ],
)
def test_encoding_says_which_record_is_wrong(record, error, text):
    with pytest.raises(error, match=text):
        encode_records([record], Doubling(), n_bits=8)


def test_encoding_without_a_model():
    with pytest.raises(InputError, match="no model"):
        encode_records([Record(0, code=b"\x00"), Record("b", vector=[1, 2])], None, n_bits=8)


def test_broken_images_are_left_out_and_named(tmp_path, trained):
    from hamtarget.encoders import open_encoder

    encoder = open_encoder(trained.model)
    Image.fromarray(np.zeros((20, 20), dtype=np.uint8)).save(tmp_path / "whole.png")
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n")
    records = [Record(name, image=tmp_path / f"{name}.png") for name in ("broken", "whole", "absent")]
    encoded = encode_records(records, encoder, n_bits=16)
    assert [record.id for record in encoded.records] == ["whole"]
    assert encoded.codes.shape == (1, 2)
    assert sorted(encoded.broken) == ["absent", "broken"]
    assert "broken.png" in encoded.broken["broken"]


@pytest.mark.parametrize(
    ("vector", "wanted"),
    [
        ('[1, "a"]', "other things than numbers"),
        ("[1, NaN]", "NaN or infinity"),
        ("[1, [2, 3]]", "parts of different lengths"),
        ("[]", "expected a list of numbers"),
        ("5", "expected a list of numbers"),
    ],
)
def test_a_vector_that_is_none_is_named_with_its_line(vector, wanted):
    lines = [f'{{"id": 1, "vector": {vector}}}'] + ([vector] if vector.startswith("[") else [])
    for line in lines:
        with pytest.raises(CorruptFileError, match=f"^here, line 5: .*{wanted}"):
            parse_line(line, number=4, where="here")
