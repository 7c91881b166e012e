"""Encoders that somebody forged: a typed error each, whatever is in the file; whoever forges it seals it, too."""

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import hamtarget
from hamtarget.encoders import OnnxEncoder, onnx_file, open_encoder
from hamtarget.errors import CorruptFileError, HamtargetError, UnsupportedFileError

pytest.importorskip("onnxruntime", reason="NO onnxruntime: pip install 'hamtarget[onnx]'")

DEMO = Path(hamtarget.__file__).parent / "serve" / "demo_encoder" / "model.onnx"
SEALED = DEMO.read_bytes()
CONTENT = SEALED[: -len(onnx_file._seal(b""))]
GOOD = {"format": 1, "n_bits": 64, "radius": 2, "input_shape": [28, 28]}
N_CASES = 300


def sized(number, content):
    """Return a field of a protobuf message."""
    return bytes([number << 3 | 2]) + onnx_file._sized(content)


def written(path, content):
    path.write_bytes(content + onnx_file._seal(content))
    return path


def described(path, text):
    """Write the demo's encoder with another description: of entries with one key, the last counts."""
    return written(path, CONTENT + onnx_file._entry(onnx_file.DESCRIPTION_KEY, text))


def use(path):
    return OnnxEncoder(path).encode(np.zeros((2, 28, 28)))


DESCRIPTIONS = {
    "no JSON": "{",
    "nothing": "",
    "nested": "[" * 100_000,
    "nested objects": '{"a":' * 100_000,
    "a list": "[]",
    "a number": "3",
    "null": "null",
    "no keys": json.dumps({"format": 1}),
    "another format": json.dumps({**GOOD, "format": 3}),
    "a form of pictures that is missing": json.dumps({**GOOD, "format": 2}),
    "a form of pictures that is none": json.dumps({**GOOD, "format": 2, "picture": {"fit": ["x"], "resampling": {}}}),
    "a list as format": json.dumps({**GOOD, "format": ["x"] * 1000}),
    **{
        f"no {key}": json.dumps({name: GOOD[name] for name in GOOD if name != key}) for key in ("n_bits", "input_shape")
    },
    **{
        f"{key} is {str(value)[:20]}": json.dumps({**GOOD, key: value})
        for key in ("n_bits", "radius", "input_shape")
        for value in ("64", 1.5, True, {}, [None], 10**400, -1, [], [[]], "\ud800", float("nan"), [2, 10**9])
        if (key, str(value)) not in {("radius", "[]")}
    },
    "a number of thousands of digits": '{"format": 1, "n_bits": ' + "9" * 5000 + "}",
}


@pytest.mark.parametrize("forged", DESCRIPTIONS)
def test_forged_descriptions_are_refused(tmp_path, forged):
    path = described(tmp_path / "model.onnx", DESCRIPTIONS[forged])
    with pytest.raises((CorruptFileError, UnsupportedFileError)):
        use(path)
    with pytest.raises(HamtargetError):
        open_encoder(tmp_path)


def test_a_description_of_another_network_is_refused_when_it_is_used(tmp_path):
    assert use(described(tmp_path / "right.onnx", json.dumps(GOOD))).shape == (2, 8)
    for forged in ({"n_bits": 32}, {"n_bits": 1024}, {"input_shape": [28]}, {"input_shape": [3, 999, 999]}):
        encoder = OnnxEncoder(described(tmp_path / "model.onnx", json.dumps({**GOOD, **forged})))
        with pytest.raises(CorruptFileError, match="the network"):
            encoder.encode(np.zeros((2, *encoder.input_shape)))


@pytest.mark.parametrize("padding", [b"", b"\x80"])
def test_weights_in_other_files_are_refused_before_these_are_opened(tmp_path, monkeypatch, padding):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.bin").write_bytes(bytes(4))
    key = b"\x0a" + (b"\x08" if not padding else b"\x88" + padding + b"\x00") + b"location"
    place = key + sized(2, b"secret.bin")
    # dims 1, data_type FLOAT, name, external_data, data_location EXTERNAL; appended to the graph, field 7 of the model.
    tensor = b"\x08\x01\x10\x01" + sized(8, b"stolen") + sized(13, place) + b"\x70\x01"
    path = written(tmp_path / "model.onnx", CONTENT + sized(7, sized(5, tensor)))
    with pytest.raises(UnsupportedFileError, match="other files"):
        use(path)


def test_a_file_larger_than_any_model_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "model.onnx"
    with path.open("wb") as file:
        file.truncate(1 << 33)
    with pytest.raises(CorruptFileError, match="bytes"):
        OnnxEncoder(path)


def test_mutated_networks_raise_nothing_but_typed_errors(tmp_path):
    random = np.random.default_rng(8)
    path = tmp_path / "model.onnx"
    n_refused = 0
    for _ in range(N_CASES):
        found = bytearray(CONTENT)
        for _ in range(random.integers(1, 6)):
            # The structure is at the beginning and at the end; between them are numbers.
            near = int(random.integers(0, 2000))
            place = near if random.random() < 0.5 else len(found) - 1 - near
            if random.random() < 0.7:
                found[place] = int(random.integers(0, 256))
            else:
                del found[place : place + int(random.integers(1, 20))]
        try:
            use(written(path, bytes(found)))
        except HamtargetError:
            n_refused += 1
    assert n_refused > N_CASES / 20


@pytest.mark.parametrize("forged", ["nested", "no keys", "nothing"])
def test_the_command_tells_forged_encoders_in_one_line(tmp_path, forged):
    from hamtarget.cli.main import app

    described(tmp_path / "model.onnx", DESCRIPTIONS[forged])
    for arguments in (["info", str(tmp_path)], ["verify", str(tmp_path)]):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code in (1, 2)
        assert isinstance(result.exception, SystemExit)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A folder with a model.safetensors, whose tensors and description can be read."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("NO torch: pip install 'hamtarget[learn]'")
    from hamtarget.learn import HammingTargetLoss, HashEncoder, NetworkOptions, TrainingOptions

    folder = tmp_path_factory.mktemp("weights")
    inputs = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
    labels = np.arange(64) % 4
    encoder = HashEncoder(
        loss=HammingTargetLoss(16, 1),
        network=NetworkOptions(width=16),
        training=TrainingOptions(steps=2, batch_size=32, group_size=4),
    )
    encoder.fit(inputs, labels).save(folder)
    return folder


def loaded(folder):
    from hamtarget.learn import HashEncoder

    return HashEncoder.load(folder).encode(np.zeros((2, 6), dtype=np.float32))


def test_forged_descriptions_of_weights_are_refused(tmp_path, weights):
    import torch

    from hamtarget.learn.files.weights import read_tensors, write_tensors

    assert loaded(weights).shape == (2, 2)
    right = read_tensors(weights / "model.safetensors", kind="model")

    def places(value, path=()):
        yield path
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from places(inner, (*path, key))

    random = np.random.default_rng(4)
    n_refused = 0
    junk = [None, [], {}, "x", -1, 1.5, [1] * 9, {"a": {}}, 10**30, True, "\ud800", float("inf")]
    for path in list(places(right.description))[1:]:
        for value in ("removed", *random.choice(len(junk), 2, replace=False)):
            description = json.loads(json.dumps(right.description))
            inner = description
            for key in path[:-1]:
                inner = inner[key]
            if value == "removed":
                del inner[path[-1]]
            else:
                inner[path[-1]] = junk[value]
            write_tensors(tmp_path / "model.safetensors", right.tensors, description, kind="model")
            try:
                loaded(tmp_path)
            except HamtargetError:
                n_refused += 1
    assert n_refused > 20
    for size in ({"width": 200_000}, {"layers": 10**9}, {"width": 200_000, "layers": 10}):
        description = json.loads(json.dumps(right.description))
        description["network"]["settings"].update(size)
        write_tensors(tmp_path / "model.safetensors", right.tensors, description, kind="model")
        with pytest.raises(CorruptFileError, match="the file has"):
            loaded(tmp_path)
    for description in ([], 3, None, "x"):
        write_tensors(tmp_path / "model.safetensors", right.tensors, description, kind="model")
        with pytest.raises(CorruptFileError, match="no object"):
            loaded(tmp_path)
    write_tensors(tmp_path / "model.safetensors", {"x": torch.zeros(3)}, right.description, kind="model")
    with pytest.raises(HamtargetError):
        loaded(tmp_path)


def header(content):
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def with_header(text, rest):
    return len(text).to_bytes(8, "little") + text + rest


def test_forged_headers_of_weights_are_refused(tmp_path, weights):
    content = (weights / "model.safetensors").read_bytes()
    found, rest = header(content)
    first, second = [name for name in found if name != "__metadata__"][:2]

    def changed(name, **fields):
        return with_header(json.dumps({**found, name: {**found[name], **fields}}).encode(), rest)

    forged = [
        b"",
        content[:7],
        (2**63).to_bytes(8, "little") + content[8:],
        (10**9).to_bytes(8, "little") + content[8:],
        with_header(b"[" * 100_000, rest),
        with_header(b"{" + b'"a":{' * 50_000, rest),
        with_header(b"\xff\xfe{}", rest),
        with_header(
            json.dumps({**found, second: {**found[second], "data_offsets": found[first]["data_offsets"]}}).encode(),
            rest,
        ),
        with_header(json.dumps({**found, first: {**found[first], "data_offsets": [0, 2**62]}}).encode(), rest),
        with_header(json.dumps({**found, first: {**found[first], "shape": [2**31, 2**31]}}).encode(), rest),
        with_header(
            json.dumps({**found, "__metadata__": {**found["__metadata__"], "description": "[" * 9999}}).encode(), rest
        ),
        with_header(json.dumps({**found, "__metadata__": None}).encode(), rest),
    ]
    for bad in forged:
        (tmp_path / "model.safetensors").write_bytes(bad)
        with pytest.raises(HamtargetError):
            loaded(tmp_path)
    random = np.random.default_rng(5)
    for _ in range(N_CASES // 3):
        damaged = bytearray(content)
        for _ in range(random.integers(1, 4)):
            damaged[int(random.integers(0, min(len(damaged), 2000)))] = int(random.integers(0, 256))
        (tmp_path / "model.safetensors").write_bytes(bytes(damaged))
        try:
            loaded(tmp_path)
        except HamtargetError:
            continue
    shutil.copy(weights / "model.safetensors", tmp_path)
    assert loaded(tmp_path).shape == (2, 2)
