"""The learned picture hashes that come with the package: their form, their record, and equal codes anywhere."""

import hashlib
import json

import numpy as np
import pytest
from PIL import Image

from hamtarget import OnnxEncoder, Store, open_encoder
from hamtarget.datasets import read_images
from hamtarget.encoders.shipped import recorded_figures, shipped_names, shipped_path

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

NAMES = ("copies256", "copies64")
# Codes of two computations may differ only in bits whose logits are this close to 0.
ROUNDING = 2e-5


def pictures(n, seed=0):
    """Return smooth random pictures, (n, 3, 64, 64), with some that are plain, black or white."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(n - 3):
        small = Image.fromarray(random.integers(0, 256, (random.integers(2, 12), random.integers(2, 12), 3), np.uint8))
        found.append(np.asarray(small.resize((64, 64), Image.Resampling.BICUBIC)).transpose(2, 0, 1))
    return np.stack([*found, *(np.full((3, 64, 64), grey, np.uint8) for grey in (0, 128, 255))])


def run(content, inputs, **settings):
    """Return logits by a session of onnxruntime with settings of its own."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    for name, value in settings.items():
        setattr(options, name, value)
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return session.run(["logits"], {"inputs": inputs.astype(np.float32)})[0]


def naive(content, inputs):
    """Return logits in double precision, each operation of the network by its definition."""
    graph = onnx.load_model_from_string(content).graph
    values = {each.name: onnx.numpy_helper.to_array(each).astype(np.float64) for each in graph.initializer}
    values["inputs"] = inputs.astype(np.float64)
    for node in graph.node:
        given = [values[name] for name in node.input]
        options = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        values[node.output[0]] = OPERATIONS[node.op_type](given, options)
    return values["logits"]


def windows(x, side, stride, padding):
    """Return the windows of maps, (rows, channels, height, width, side, side)."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    return np.lib.stride_tricks.sliding_window_view(x, (side, side), axis=(2, 3))[:, :, ::stride, ::stride]


def convolve(given, options):
    x, weights = given[:2]
    seen = windows(x, weights.shape[2], options["strides"][0], options["pads"][0])
    result = np.einsum("nchwij,ocij->nohw", seen, weights, optimize=True)
    return result + (given[2][None, :, None, None] if len(given) > 2 else 0)


def mean(given, options):
    axes = options.get("axes", given[1].astype(int).tolist() if len(given) > 1 else None)
    return given[0].mean(axis=tuple(axes), keepdims=bool(options.get("keepdims", 1)))


OPERATIONS = {
    "Add": lambda given, options: given[0] + given[1],
    "AveragePool": lambda given, options: windows(given[0], 2, 2, 0).mean(axis=(4, 5)),
    "Cast": lambda given, options: given[0],
    "Constant": lambda given, options: onnx.numpy_helper.to_array(options["value"]).astype(np.float64),
    "Conv": convolve,
    "Div": lambda given, options: given[0] / given[1],
    "Flatten": lambda given, options: given[0].reshape(len(given[0]), -1),
    "Gemm": lambda given, options: given[0] @ (given[1].T if options.get("transB") else given[1]) + given[2],
    "Mul": lambda given, options: given[0] * given[1],
    "Pow": lambda given, options: given[0] ** given[1],
    "ReduceMean": mean,
    "Sigmoid": lambda given, options: 1 / (1 + np.exp(-given[0])),
    "Sqrt": lambda given, options: np.sqrt(given[0]),
    "Sub": lambda given, options: given[0] - given[1],
}


def test_the_names():
    assert set(NAMES) <= set(shipped_names())


@pytest.mark.parametrize("name", NAMES)
def test_an_encoder_by_name(tmp_path, name):
    encoder = open_encoder(name)
    assert (encoder.name, encoder.n_bits) == (name, int(name.removeprefix("copies")))
    assert encoder.picture_form.fit == "squeeze"
    assert encoder.picture_form.resampling == "lanczos"
    assert encoder.picture_form.shape == encoder.input_shape == (3, 64, 64)
    assert name in repr(encoder)
    assert shipped_path(name).stat().st_size <= 4_000_000
    encoder.save(tmp_path)
    again = open_encoder(tmp_path)
    assert (again.name, again.picture_form, again.recorded) == (name, encoder.picture_form, encoder.recorded)


@pytest.mark.parametrize("name", NAMES)
def test_the_record_is_that_of_the_file(name):
    content = shipped_path(name).read_bytes()
    record = open_encoder(name).recorded
    assert record["sha256"] == hashlib.sha256(content).hexdigest()
    assert record["n_bytes"] == len(content)
    for curve in ("share_within", "recall_within"):
        found = record.get(curve, [])
        for values in found.values() if isinstance(found, dict) else [found]:
            assert len(values) in (0, record["n_bits"] + 1)
            assert values == sorted(values)
    assert recorded_figures(name, content + b"x") is None
    assert recorded_figures("../../errors") is None
    assert json.loads(shipped_path(name).with_suffix(".json").read_text())["name"] == name


@pytest.mark.parametrize("name", NAMES)
def test_codes_do_not_depend_on_threads_batches_or_optimisation(name):
    content = shipped_path(name).read_bytes()
    inputs = pictures(200)
    usual = run(content, inputs, intra_op_num_threads=1)
    off = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    others = [
        run(content, inputs, intra_op_num_threads=2),
        run(content, inputs, intra_op_num_threads=1, graph_optimization_level=off),
        np.concatenate([run(content, inputs[row : row + 1], intra_op_num_threads=1) for row in range(0, 200, 10)]),
    ]
    assert np.array_equal(usual > 0, others[0] > 0)
    assert np.array_equal(usual > 0, others[1] > 0)
    assert np.array_equal(usual[::10] > 0, others[2] > 0)
    assert np.array_equal(OnnxEncoder(shipped_path(name)).encode(inputs), np.packbits(usual > 0, 1, "little"))


@pytest.mark.parametrize("name", NAMES)
def test_codes_differ_from_those_in_double_precision_only_by_rounding(name):
    # Another processor, or another build of the runtime, sums in another order; double precision bounds them all.
    content = shipped_path(name).read_bytes()
    inputs = pictures(200, seed=1)
    found, exact = run(content, inputs, intra_op_num_threads=1), naive(content, inputs)
    assert np.abs(found - exact).max() < ROUNDING
    differ = (found > 0) != (exact > 0)
    assert np.abs(exact[differ]).max(initial=0) < ROUNDING
    assert differ.mean() < 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_a_store_finds_altered_copies(tmp_path, name):
    random = np.random.default_rng(2)
    originals = []
    for row in range(30):
        small = Image.fromarray(random.integers(0, 256, (9, 12, 3), np.uint8))
        originals.append(small.resize((240 + row, 180), Image.Resampling.BICUBIC))
        originals[-1].save(tmp_path / f"{row}.png")
    with Store.create(tmp_path / "store", encoder=open_encoder(name)) as store:
        store.put_rows([f"{row}.png" for row in range(30)], inputs=[tmp_path / f"{row}.png" for row in range(30)])
    with Store.open(tmp_path / "store") as store:
        for row, picture in enumerate(originals):
            smaller = picture.resize((picture.width // 2, picture.height // 2)).crop((2, 2, 118, 88))
            assert store.nearest(smaller, 1)[0].id == f"{row}.png"


@pytest.mark.parametrize("name", NAMES)
def test_the_whole_picture_is_seen(name):
    encoder = open_encoder(name)
    wide = Image.fromarray(np.random.default_rng(3).integers(0, 256, (100, 300, 3), np.uint8))
    naively = np.asarray(wide.resize((64, 64), Image.Resampling.LANCZOS)).transpose(2, 0, 1)[None]
    assert np.array_equal(encoder.encode(read_images([wide], encoder.picture_form)), encoder.encode(naively))
