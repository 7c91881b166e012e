"""Sentence models: equal to a naive twin and to the public reference, saved and opened, learned on, refused."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from hamtarget import open_encoder
from hamtarget.encoders.sentence.text_encoder import TextEncoder, _batches
from hamtarget.errors import CorruptFileError, FileError, InputError, MissingExtraError, UnsupportedFileError
from tiny_sentence_model import HIDDEN, NETWORK, naive_features, network, write_model

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

TEXTS = [
    "The cat sat on a mat",
    "a dog",
    "",
    "my card my card my card my card my card my card lost lost",
    "unknown words here",
    "dog " * 9,
]
# A published model, to compare with the package that it was made for: the folder of all-MiniLM-L6-v2, for example.
PUBLISHED = "HAMTARGET_SENTENCE_MODEL"


@pytest.fixture
def folder(tmp_path):
    return write_model(tmp_path / "tiny")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"pooling": "cls", "normalised": False},
        {"pooling": "max"},
        {"pooling": "mean_sqrt_len", "normalised": False},
        {"pooling": "cls+max+mean", "max_tokens": 7},
    ],
    ids=str,
)
# Axes of a maximum became inputs in 18; a graph older than a head is converted.
@pytest.mark.parametrize("opset", [13, 17, 18])
def test_features_are_those_of_the_definition(tmp_path, settings, opset):
    encoder = open_encoder(write_model(tmp_path / "tiny", opset=opset, **settings))
    naive = np.stack([naive_features(text, **settings) for text in TEXTS])
    assert encoder.features(TEXTS) == pytest.approx(naive, abs=2e-5)
    # Untrained: a bit is the sign of a number of the embedding.
    assert encoder.n_bits == naive.shape[1]
    assert (encoder.logits(TEXTS) == encoder.features(TEXTS)).all()
    assert not encoder.has_head


def test_bits_are_at_most_those_that_a_code_can_have(folder, monkeypatch):
    # As of an embedding that is longer than any code.
    monkeypatch.setattr("hamtarget.encoders.sentence.text_encoder._MOST_BITS", 8)
    encoder = open_encoder(folder)
    assert (encoder.n_bits, encoder.n_features) == (8, HIDDEN)
    assert (encoder.logits(TEXTS) == encoder.features(TEXTS)[:, :8]).all()


@pytest.mark.parametrize("name", ["model.onnx", "onnx/model.onnx", "onnx/model_quantized.onnx", "model_O4.onnx"])
def test_the_network_is_found(tmp_path, folder, name):
    expected = open_encoder(folder).features(TEXTS)
    other = write_model(tmp_path / "other", name=name)
    assert (open_encoder(other).features(TEXTS) == expected).all()


def test_of_several_networks_the_plain_one_counts(folder):
    expected = open_encoder(folder).features(TEXTS)
    for name in ("model_quantized.onnx", "model_O4.onnx"):
        onnx.save(network(seed=1), str(folder / "onnx" / name))
    assert (open_encoder(folder).features(TEXTS) == expected).all()
    (folder / NETWORK).unlink()
    with pytest.raises(FileError, match=r"onnx/model_O4\.onnx, onnx/model_quantized\.onnx.*copy the one to use"):
        open_encoder(folder)


def test_segments_are_zeros(tmp_path, folder):
    inputs = ("input_ids", "token_type_ids", "attention_mask")
    other = write_model(tmp_path / "other", inputs=inputs)
    assert open_encoder(other).features(TEXTS) == pytest.approx(open_encoder(folder).features(TEXTS), abs=1e-6)


def test_a_network_of_half_precision(tmp_path, folder):
    other = open_encoder(write_model(tmp_path / "other", half=True))
    assert other.features(TEXTS).dtype == np.float32
    assert other.features(TEXTS) == pytest.approx(open_encoder(folder).features(TEXTS), abs=2e-3)


def test_an_embedding_of_the_whole_text_is_taken_as_it_is(folder):
    graph = network()
    helper = onnx.helper
    graph.graph.node.append(helper.make_node("Gather", ["last_hidden_state", "whole"], ["sentence_embedding"], axis=1))
    graph.graph.initializer.append(onnx.numpy_helper.from_array(np.int64(0), "whole"))
    kind = onnx.TensorProto.FLOAT
    graph.graph.output.append(helper.make_tensor_value_info("sentence_embedding", kind, ["rows", HIDDEN]))
    onnx.save(graph, str(folder / NETWORK))
    naive = np.stack([naive_features(text, pooling="cls", normalised=False) for text in TEXTS])
    assert open_encoder(folder).features(TEXTS) == pytest.approx(naive, abs=2e-5)


def test_the_published_reference_is_met():
    """Compare with sentence-transformers; needs that package, and a model that comes as a package."""
    published = os.environ.get(PUBLISHED, "")
    if not published:
        pytest.skip(f"no comparison with the public reference: set {PUBLISHED} to a published model's folder")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    texts = [*TEXTS, "Ünïcödé TEXT 漢字 😀", "word " * 600, "How do I find my card? It was sent weeks ago."]
    reference = sentence_transformers.SentenceTransformer(published, device="cpu").encode(texts)
    assert open_encoder(published).features(texts) == pytest.approx(reference, abs=1e-4)


def test_batches_do_not_change_features(folder, monkeypatch):
    encoder = open_encoder(folder)
    whole = encoder.features(TEXTS)
    told = []
    monkeypatch.setattr("hamtarget.encoders.sentence.text_encoder._TOKENS_AT_ONCE", 8)
    monkeypatch.setattr("hamtarget.encoders.sentence.text_encoder._TEXTS_AT_ONCE", 4)
    parts = encoder.features(np.array(TEXTS, dtype=object), progress=lambda done, total: told.append((done, total)))
    assert parts == pytest.approx(whole, abs=1e-6)
    assert told[-1] == (len(TEXTS), len(TEXTS))
    assert encoder.features([]).shape == (0, HIDDEN)


def test_batches_are_sorted_and_bounded():
    lengths = np.random.default_rng(0).integers(1, 300, 500).tolist()
    batches = list(_batches(lengths))
    assert sorted(np.concatenate(batches).tolist()) == list(range(500))
    assert all(len(batch) * max(lengths[place] for place in batch) <= 4096 for batch in batches)


def test_long_texts_are_cut_and_counted(folder):
    encoder = open_encoder(folder)
    assert encoder.max_tokens == 12
    encoder.encode(["the cat", "dog " * 30])
    assert encoder.n_cut == 1


def test_a_saved_encoder_needs_no_sentence_model(folder, tmp_path):
    encoder = open_encoder(folder)
    encoder.save(tmp_path / "kept")
    shutil.rmtree(folder)
    opened = open_encoder(tmp_path / "kept")
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["model.onnx", "tokenizer.json"]
    assert (opened.encode(TEXTS) == encoder.encode(TEXTS)).all()
    assert repr(opened) == repr(encoder)
    assert (
        "takes texts"
        in pytest.raises(UnsupportedFileError, open_encoder, tmp_path / "kept" / "model.onnx").value.args[0]
    )


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_damaged_encoder_is_refused(folder, tmp_path, name):
    open_encoder(folder).save(tmp_path / "kept")
    path = tmp_path / "kept" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(CorruptFileError):
        open_encoder(tmp_path / "kept")


# An older network than the head, and a younger one.
@pytest.mark.parametrize("opset", [13, 18])
def test_a_head_is_learned_and_needs_no_torch(tmp_path, opset):
    pytest.importorskip("torch")
    from hamtarget.learn import HashEncoder, NetworkOptions, TrainingOptions
    from hamtarget.learn.fitting.texts import fit_texts, text_features

    base = open_encoder(write_model(tmp_path / "tiny", opset=opset))
    texts = [
        f"{first} {second} {third}" for first in ("cat", "dog") for second in ("runs", "sat") for third in "abcdefgh"
    ]
    labels = [text.startswith("cat") for text in texts]
    training = TrainingOptions(steps=30, batch_size=16)
    told = []
    learned = fit_texts(
        texts,
        np.array(labels, dtype=int),
        sentence_model=base,
        encoder=HashEncoder(16, network=NetworkOptions(width=8), training=training, device="cpu"),
        features_progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(len(texts), len(texts))]
    assert learned.has_head
    assert learned.n_bits == 16
    assert learned.radius is not None
    learned.save(tmp_path / "model")
    opened = open_encoder(tmp_path / "model")
    assert (opened.encode(texts) == learned.encode(texts)).all()
    assert opened.features(texts) == pytest.approx(base.features(texts), abs=1e-6)
    # From the cache, the second time.
    assert (text_features(texts, base) == text_features(texts, base)).all()
    with pytest.raises(InputError, match="learned codes already"):
        fit_texts(texts, None, sentence_model=opened, encoder=HashEncoder(16))
    same, others = [], []
    codes = opened.encode(texts)
    for a in range(len(texts)):
        for b in range(a):
            distance = int(np.bitwise_count(codes[a] ^ codes[b]).sum())
            (same if labels[a] == labels[b] else others).append(distance)
    assert np.mean(same) < np.mean(others)


def altered(folder, name, **changes):
    path = Path(folder) / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_weights_without_a_graph_are_refused_with_the_command_that_makes_one(folder, name):
    (folder / NETWORK).rename(folder / name)
    with pytest.raises(FileError) as refused:
        open_encoder(folder)
    said = str(refused.value)
    assert f"{folder} has {name} and no ONNX file; expected onnx/model.onnx" in said
    assert f"optimum-cli export onnx --model {folder} --task feature-extraction {folder}/onnx" in said


def test_other_networks_are_refused_with_what_was_found(tmp_path):
    other = write_model(tmp_path / "pixels", inputs=("input_ids", "attention_mask", "pixel_values"))
    with pytest.raises(UnsupportedFileError, match="the inputs are input_ids, attention_mask, pixel_values; expected"):
        open_encoder(other)
    graph = network()
    graph.graph.output[0].type.tensor_type.shape.dim.pop()
    onnx.save(graph, str(other / NETWORK))
    with pytest.raises(UnsupportedFileError, match="the outputs are last_hidden_state; expected sentence_embedding"):
        open_encoder(other)


def test_other_operators_are_refused(folder):
    graph = network(opset=13)
    graph.graph.node[6].op_type = "Unheard"
    onnx.save(graph, str(folder / NETWORK))
    with pytest.raises(UnsupportedFileError, match="opset 13 and cannot be converted.*--opset 17"):
        open_encoder(folder)


def test_other_pooling_is_refused(folder):
    altered(folder, "1_Pooling/config.json", pooling_mode_lasttoken=True)
    with pytest.raises(UnsupportedFileError, match="lasttoken"):
        open_encoder(folder)


def test_other_modules_are_refused(folder):
    modules = json.loads((folder / "modules.json").read_text())
    modules.append({"idx": 3, "name": "3", "path": "3_Dense", "type": "sentence_transformers.models.Dense"})
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(UnsupportedFileError, match="Dense"):
        open_encoder(folder)


def test_modules_lead_nowhere_else(folder):
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["path"] = "../other"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CorruptFileError, match="outside"):
        open_encoder(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", NETWORK, "1_Pooling/config.json"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileError, match=Path(name).name):
        open_encoder(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", NETWORK, "modules.json", "config.json"])
def test_a_damaged_model_is_refused(folder, name):
    (folder / name).write_bytes(b"\x00\xff damaged")
    with pytest.raises(CorruptFileError):
        open_encoder(folder)


def test_missing_packages_are_named(folder, monkeypatch):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tokenizers" else found(name))
    with pytest.raises(MissingExtraError, match=r"tokenizers.*hamtarget\[text\]"):
        TextEncoder.from_sentence_model(folder)
