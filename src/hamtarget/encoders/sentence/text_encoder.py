"""Encode texts by a sentence model and onnxruntime, without torch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._files import write_atomically
from hamtarget.codes import Codes, check_n_bits, from_logits, unit_rows
from hamtarget.encoders.onnx_encoder import metadata_of, onnx_session
from hamtarget.encoders.onnx_file import (
    DESCRIPTION_KEY,
    ONNX_NAME,
    TextDescription,
    parse_text_description,
    read_sealed,
    sealed,
)
from hamtarget.encoders.sentence.model_folder import TOKENIZER_NAME, SentenceModel, read_sentence_model
from hamtarget.encoders.texts.text_inputs import TEXT_SHAPE, check_texts
from hamtarget.errors import CorruptFileError, FileError, InputError, MissingExtraError, UnsupportedFileError
from hamtarget.progress import Progress

# Texts whose lengths are sorted together: similar ones go through the network at once.
_TEXTS_AT_ONCE = 4096
# Tokens, with those that fill up, that go through the network at once: about 100 MB in a network of 12 heads.
_TOKENS_AT_ONCE = 4096
_MOST_BITS = 1024


class TextEncoder:
    """An encoder of texts: a tokenizer, and one ONNX file from tokens to logits.

    A text longer than `max_tokens` is cut there; `n_cut` counts such texts.

    Args:
        onnx: content of the sealed ONNX file.
        tokenizer: content of tokenizer.json.
        where: name of the file or folder, for messages.
        threads: threads for one batch; 0: one for each core.

    Raises:
        CorruptFileError: the tokenizer is not the one that the ONNX file was made with, or a file is damaged.
        UnsupportedFileError: a later version wrote the file, or it is too new for the installed onnxruntime.
        MissingExtraError: onnxruntime or tokenizers is not installed.
    """

    input_shape = TEXT_SHAPE
    input_kind = "text"

    def __init__(self, onnx: bytes, tokenizer: bytes, *, where: str | Path, threads: int = 0) -> None:
        self._content, self._tokenizer_content, self._where = onnx, tokenizer, Path(where)
        self._session = onnx_session(onnx, threads, self._where)
        text = metadata_of(self._session, self._where).get(DESCRIPTION_KEY)
        self._description = parse_text_description(text, self._where)
        if hashlib.sha256(tokenizer).hexdigest() != self._description.tokenizer_sha256:
            raise CorruptFileError(
                f"{self._where}: {TOKENIZER_NAME} is not the one that {ONNX_NAME} was made with; restore it"
            )
        self._tokenizer = _opened_tokenizer(tokenizer, self._description, self._where)
        self.n_cut = 0

    @classmethod
    def open(cls, folder: str | Path, *, threads: int = 0) -> TextEncoder:
        """Open the encoder that `save` wrote to a folder.

        Raises:
            FileError: a file is not there.
            CorruptFileError: a file is damaged.
        """
        folder = Path(folder)
        try:
            tokenizer = (folder / TOKENIZER_NAME).read_bytes()
        except OSError as error:
            raise FileError(f"{folder / TOKENIZER_NAME}: {error.strerror}; expected the tokenizer") from error
        return cls(read_sealed(folder / ONNX_NAME), tokenizer, where=folder, threads=threads)

    @classmethod
    def from_sentence_model(cls, folder: str | Path, *, threads: int = 0) -> TextEncoder:
        """Make an encoder of a sentence model as it is: a bit is the sign of a number of its embedding.

        There are as many bits as numbers, but a multiple of 8, and 1,024 at most; numbers after that have none.

        Raises:
            FileError: a file is not there.
            CorruptFileError: a file is damaged.
            UnsupportedFileError: the model has a part that is not known here.
            MissingExtraError: onnx, onnxruntime or tokenizers is not installed.
        """
        _check_installed()
        from hamtarget.encoders.sentence.text_graph import features_graph, with_signs

        folder = Path(folder)
        model = read_sentence_model(folder)
        graph = features_graph(model)
        description = {
            "text": {
                "max_tokens": model.max_tokens,
                "lower_case": model.is_lower_cased,
                "pad_id": model.pad_id,
                "tokenizer_sha256": hashlib.sha256(model.tokenizer).hexdigest(),
            }
        }
        n_features = _n_features(graph, model, folder)
        n_bits = min(_MOST_BITS, n_features - n_features % 8)
        if n_bits < 8:
            raise UnsupportedFileError(f"{folder}: an embedding has {n_features} numbers; expected at least 8")
        content = sealed(
            with_signs(graph, n_bits).SerializeToString(),
            {**description, "n_bits": n_bits, "radius": None, "n_features": n_features},
        )
        return cls(content, model.tokenizer, where=folder, threads=threads)

    def with_head(self, head: bytes, *, n_bits: int, radius: object) -> TextEncoder:
        """Return an encoder whose logits a head makes of the features of this one.

        Args:
            head: an ONNX model from `inputs`, (rows, n_features), to `logits`, (rows, n_bits).
            n_bits: bits of a code.
            radius: Hamming distance target or targets of the head; None for probing.

        Raises:
            MissingExtraError: onnx is not installed.
        """
        _check_installed()
        import onnx

        from hamtarget.encoders.sentence.text_graph import with_head

        graph = onnx.load_model_from_string(self._content)
        del graph.metadata_props[:]
        joined = with_head(_features_alone(graph), head).SerializeToString()
        told = self._description
        description = {
            "n_bits": check_n_bits(n_bits),
            "radius": list(radius) if isinstance(radius, tuple) else radius,
            "n_features": told.n_features,
            "text": {
                "max_tokens": told.max_tokens,
                "lower_case": told.is_lower_cased,
                "pad_id": told.pad_id,
                "tokenizer_sha256": told.tokenizer_sha256,
                "has_head": True,
            },
        }
        return TextEncoder(sealed(joined, description), self._tokenizer_content, where=self._where)

    @property
    def n_bits(self) -> int:
        """Bits of a code."""
        return self._description.n_bits

    @property
    def radius(self) -> int | tuple[int, ...] | None:
        """The Hamming distance target or targets that the codes were trained for; None: they were trained for none."""
        return self._description.radius

    @property
    def n_features(self) -> int:
        """Numbers of the sentence model's embedding of a text."""
        return self._description.n_features

    @property
    def has_head(self) -> bool:
        """True if codes were learned; False if bits are the signs of the sentence model's embedding."""
        return self._description.has_head

    @property
    def max_tokens(self) -> int:
        """Tokens after which a text is cut."""
        return self._description.max_tokens

    @property
    def fingerprint(self) -> str:
        """Digest of the network and its settings: the same for encoders that give the same features."""
        return hashlib.sha256(self._content).hexdigest()

    def logits(self, inputs: ArrayLike, *, progress: Progress | None = None) -> NDArray[np.float32]:
        """Return the real values before the sign, (rows, n_bits).

        Args:
            inputs: texts.
            progress: called with texts done and all texts.

        Raises:
            ShapeError: the inputs are one text, not a batch.
            DtypeError: an input is not a text.
            CorruptFileError: the network is not what its description says.
        """
        return self._run(check_texts(inputs), "logits", self.n_bits, progress)

    def features(self, inputs: ArrayLike, *, progress: Progress | None = None) -> NDArray[np.float32]:
        """Return the sentence model's embeddings, (rows, n_features); arguments and errors as in `logits`."""
        return self._run(check_texts(inputs), "features", self.n_features, progress)

    def encode(self, inputs: ArrayLike) -> Codes:
        """Return packed codes, (rows, n_bits / 8)."""
        return from_logits(self.logits(inputs))

    def embedding(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Return the logits scaled to unit length, (rows, n_bits), by which hits can be re-ranked."""
        return unit_rows(self.logits(inputs))

    def save(self, folder: str | Path) -> None:
        """Write `tokenizer.json` and `model.onnx` to `folder`, from where `hamtarget.open_encoder` opens them."""
        write_atomically(Path(folder) / TOKENIZER_NAME, self._tokenizer_content)
        write_atomically(Path(folder) / ONNX_NAME, self._content)

    def __repr__(self) -> str:
        size = f"{len(self._content) / 1e6:.1f} MB"
        return (
            f"TextEncoder(n_bits={self.n_bits}, radius={self.radius}) [inputs texts of {self.max_tokens} tokens, "
            f"{self.n_features} features, {size}]"
        )

    def _run(self, texts: list[str], output: str, n_columns: int, progress: Progress | None) -> NDArray[np.float32]:
        result = np.empty((len(texts), n_columns), dtype=np.float32)
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            tokens = self._tokens(texts[start : start + _TEXTS_AT_ONCE])
            done = start
            for places in _batches([len(each) for each in tokens]):
                result[start + places] = self._run_batch([tokens[place] for place in places], output, n_columns)
                done += len(places)
                if progress is not None:
                    progress(done, len(texts))
        return result

    def _tokens(self, texts: list[str]) -> list[list[int]]:
        lower = self._description.is_lower_cased
        # A half of a character, which JSON can write, is no text for the tokenizer.
        clean = [text.encode("utf-8", "replace").decode().strip() for text in texts]
        encodings = self._tokenizer.encode_batch([text.lower() for text in clean] if lower else clean)
        self.n_cut += sum(1 for each in encodings if each.overflowing)
        return [each.ids for each in encodings]

    def _run_batch(self, tokens: list[list[int]], output: str, n_columns: int) -> NDArray[Any]:
        longest = max(1, max(map(len, tokens)))
        ids = np.full((len(tokens), longest), self._description.pad_id, dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, each in enumerate(tokens):
            ids[row, : len(each)] = each
            mask[row, : len(each)] = 1
        try:
            found = np.asarray(self._session.run([output], {"input_ids": ids, "attention_mask": mask})[0])
        # onnxruntime's errors have no other base class.
        except Exception as error:
            raise CorruptFileError(
                f"{self._where}: the network does not take its tokens: {str(error)[:300]}"
            ) from error
        if found.shape != (len(tokens), n_columns) or not np.isfinite(found).all():
            raise CorruptFileError(
                f"{self._where}: {output} have shape {found.shape} or are not finite; expected ({len(tokens)}, "
                f"{n_columns}) numbers"
            )
        return found


def _batches(lengths: list[int]) -> Iterator[NDArray[np.int64]]:
    """Yield the places of texts that go through the network together: shortest first, few tokens to fill up."""
    order = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(order):
        end = start + 1
        while end < len(order) and (end - start + 1) * lengths[order[end]] <= _TOKENS_AT_ONCE:
            end += 1
        yield order[start:end]
        start = end


def _n_features(graph: Any, model: SentenceModel, where: Path) -> int:
    """Return how many numbers an embedding has."""
    session = onnx_session(graph.SerializeToString(), 1, where)
    ids = np.full((1, 1), model.pad_id, dtype=np.int64)
    return int(session.run(["features"], {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0].shape[1])


def _opened_tokenizer(content: bytes, description: TextDescription, where: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtraError("tokenizers is not installed; for texts: pip install 'hamtarget[text]'") from error
    try:
        tokenizer = Tokenizer.from_str(content.decode())
        tokenizer.no_padding()
        tokenizer.enable_truncation(description.max_tokens)
    # Its errors have no other base class.
    except Exception as error:
        raise CorruptFileError(f"{where}: {TOKENIZER_NAME} cannot be read ({str(error)[:200]})") from error
    return tokenizer


def _features_alone(graph: Any) -> Any:
    """Return a graph without the nodes and the output that make logits of features."""
    from hamtarget.encoders.sentence.text_graph import FEATURES, LOGITS

    last = graph.graph.node[-1]
    if last.op_type != "Slice" or last.input[0] != FEATURES or list(last.output) != [LOGITS]:
        raise InputError("the encoder has a head already; expected a sentence model as it was published")
    graph.graph.node.remove(last)
    graph.graph.output.remove(next(each for each in graph.graph.output if each.name == LOGITS))
    return graph


def _check_installed() -> None:
    import importlib.util

    missing = [name for name in ("onnx", "onnxruntime", "tokenizers") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"{', '.join(missing)} not installed; for sentence models: pip install 'hamtarget[text]'"
        )
