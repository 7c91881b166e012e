"""Reading the folder of a sentence-transformers model: which files it has, and what its configs say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hamtarget._reading import parse_json, reason_of
from hamtarget.errors import CorruptFileError, FileError, UnsupportedFileError

TOKENIZER_NAME = "tokenizer.json"
"""Name of the tokenizer in the folder of a sentence model, and of a saved text encoder."""
_MODULES_NAME, _CONFIG_NAME = "modules.json", "config.json"
_NETWORK_NAME, _NETWORK_FOLDER = "model.onnx", "onnx"
_WEIGHTS_NAMES = ("model.safetensors", "pytorch_model.bin")
# In the order in which sentence-transformers joins them.
_POOLING = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
}
_MAX_JSON_BYTES = 1 << 28
# Where no config says how many tokens the model takes.
_USUAL_TOKENS = 512
# Tokenizers without a limit write 1e30.
_MOST_TOKENS = 1 << 17


@dataclass(frozen=True)
class SentenceModel:
    """A sentence model as its folder describes it.

    Attributes:
        network: file of the network as ONNX.
        tokenizer: content of tokenizer.json.
        pooling: how vectors of tokens become one vector: some of cls, max, mean, mean_sqrt_len, joined in this order.
        is_normalised: True if that vector is scaled to unit length.
        max_tokens: tokens that the model takes; texts are cut there.
        is_lower_cased: True if texts are put in lower case before the tokenizer sees them.
        pad_id: number of the token that fills short texts up.
    """

    network: Path
    tokenizer: bytes
    pooling: tuple[str, ...]
    is_normalised: bool
    max_tokens: int
    is_lower_cased: bool
    pad_id: int


def is_sentence_model(folder: Path) -> bool:
    """Return True if a folder looks like that of a sentence model, which hamtarget has not made."""
    return any((folder / name).is_file() for name in (_MODULES_NAME, TOKENIZER_NAME)) and any(
        (folder / name).is_file() for name in (_MODULES_NAME, _CONFIG_NAME)
    )


def read_sentence_model(folder: Path) -> SentenceModel:
    """Return what the files of a sentence model say.

    Raises:
        FileError: a file that is needed is not there.
        CorruptFileError: a config is damaged.
        UnsupportedFileError: the model has a part that is not known here.
    """
    transformer, pooling, is_normalised = _modules(folder)
    place = folder / transformer
    network = _network(folder, place)
    tokenizer = next((each for each in (place / TOKENIZER_NAME, folder / TOKENIZER_NAME) if each.is_file()), None)
    if tokenizer is None:
        raise FileError(
            f"{folder} has no {TOKENIZER_NAME}; save the model's tokenizer as a fast one (tokenizer.save_pretrained)"
        )
    config = _read(place / _CONFIG_NAME)
    own = _read(folder / "sentence_bert_config.json") or _read(place / "sentence_bert_config.json")
    of_tokenizer = _read(place / "tokenizer_config.json")
    limits: list[Any] = [own.get("max_seq_length")]
    if not _is_number(limits[0], 1):
        limits = [of_tokenizer.get("model_max_length"), config.get("max_position_embeddings")]
    pad_id: Any = config.get("pad_token_id")
    return SentenceModel(
        network=network,
        tokenizer=_bytes_of(tokenizer),
        pooling=pooling,
        is_normalised=is_normalised,
        max_tokens=min([int(each) for each in limits if _is_number(each, 1)], default=_USUAL_TOKENS),
        is_lower_cased=own.get("do_lower_case") is True,
        pad_id=int(pad_id) if _is_number(pad_id, 0) else 0,
    )


def _modules(folder: Path) -> tuple[str, tuple[str, ...], bool]:
    """Return the folder of the transformer, the kinds of pooling, and if vectors are scaled to unit length."""
    path = folder / _MODULES_NAME
    if not path.is_file():
        # What sentence-transformers does with a transformer alone.
        return "", ("mean",), False
    modules: Any = parse_json(_bytes_of(path), where=str(path))
    if not isinstance(modules, list) or not all(
        isinstance(each, dict) and isinstance(each.get("type"), str) and isinstance(each.get("path", ""), str)
        for each in modules
    ):
        raise CorruptFileError(f"{path} is not a list of modules; fetch the model again")
    kinds = [each["type"].rpartition(".")[2] for each in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise UnsupportedFileError(
            f"{path} has the modules {', '.join(kinds)}; expected Transformer, Pooling and perhaps Normalize: export "
            f"the whole model as ONNX with an output sentence_embedding, into a folder without {_MODULES_NAME}"
        )
    inside = [folder / each.get("path", "") for each in modules]
    if any(not each.resolve().is_relative_to(folder.resolve()) for each in inside):
        raise CorruptFileError(f"{path} names a folder outside of {folder}; fetch the model again")
    return modules[0].get("path", ""), _pooling(inside[1] / "config.json"), "Normalize" in kinds


def _network(folder: Path, transformer: Path) -> Path:
    """Return the file of the network: model.onnx or, where there is none, the only other ONNX file."""
    places = list(dict.fromkeys(each for place in (transformer, folder) for each in (place, place / _NETWORK_FOLDER)))
    for place in places:
        if (place / _NETWORK_NAME).is_file():
            return place / _NETWORK_NAME
    # A quantised network, for example.
    others = sorted(path for place in places for path in place.glob("*.onnx"))
    if len(others) == 1:
        return others[0]
    expected = f"expected {_NETWORK_FOLDER}/{_NETWORK_NAME}"
    if others:
        found = ", ".join(str(path.relative_to(folder)) for path in others)
        raise FileError(f"{folder} has several networks ({found}); {expected}: copy the one to use to that name")
    weights = next((name for name in _WEIGHTS_NAMES if (transformer / name).is_file()), None)
    found = "has no network" if weights is None else f"has {weights} and no ONNX file"
    raise FileError(
        f"{folder} {found}; {expected}, which these commands write: pip install 'optimum-onnx[onnxruntime]'; "
        f"optimum-cli export onnx --model {transformer} --task feature-extraction {transformer / _NETWORK_FOLDER}"
    )


def _pooling(path: Path) -> tuple[str, ...]:
    found = _read(path)
    if not found:
        raise FileError(f"{path} is not there; expected how the model pools: fetch the model again")
    named = found.get("pooling_mode")
    chosen = [named] if isinstance(named, str) else list(named) if isinstance(named, list) else []
    chosen = chosen or [kind for field, kind in _POOLING.items() if found.get(field) is True]
    others = [field for field, value in found.items() if field.startswith("pooling_mode_") and value is True]
    unknown = [each for each in others if each not in _POOLING] + [
        str(each) for each in chosen if each not in _POOLING.values()
    ]
    if unknown or not chosen:
        raise UnsupportedFileError(
            f"{path}: pooling is {', '.join(unknown) or 'none'}; expected {', '.join(_POOLING.values())}: export the "
            f"whole model as ONNX with an output sentence_embedding, into a folder without {_MODULES_NAME}"
        )
    return tuple(kind for kind in _POOLING.values() if kind in chosen)


def _read(path: Path) -> dict[str, Any]:
    """Return an object of JSON; an empty one if there is no such file."""
    if not path.is_file():
        return {}
    found: Any = parse_json(_bytes_of(path), where=str(path))
    if not isinstance(found, dict):
        raise CorruptFileError(f"{path} holds no object; fetch the model again")
    return found


def _bytes_of(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise CorruptFileError(f"{path} has {path.stat().st_size:,} bytes; expected at most {_MAX_JSON_BYTES:,}")
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: {reason_of(error)}; expected a file of a sentence model") from error


def _is_number(value: object, least: int) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= _MOST_TOKENS
