"""HashEncoder: learns from arrays, turns arrays into codes, and can be saved and loaded."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from hamtarget._metric import MetricName
from hamtarget.codes import check_n_bits
from hamtarget.datasets.pictures.image_sets import ImageSet
from hamtarget.encoders.onnx_file import ONNX_NAME
from hamtarget.errors import InputError, NotFittedError
from hamtarget.learn.files.export import write_onnx
from hamtarget.learn.files.saving import load_encoder, save_encoder
from hamtarget.learn.fitting.arrays import fit_encoder, torch_device
from hamtarget.learn.fitting.fitted import FittedEncoder
from hamtarget.learn.fitting.objectives import Loss
from hamtarget.learn.fitting.pictures import EncodedPictures, encode_pictures, fit_pictures
from hamtarget.learn.losses.probing import ProbingLoss
from hamtarget.learn.networks.builder import Network
from hamtarget.learn.networks.class_pull import ClassPull
from hamtarget.learn.networks.frozen import FrozenBackbone
from hamtarget.learn.networks.head import HashHead, HashModel
from hamtarget.learn.training.checkpoint import TrainingProgress
from hamtarget.learn.training.options import TrainingOptions
from hamtarget.progress import Progress


class HashEncoder:
    """Learns binary codes of vectors, (rows, columns), of images, (rows, [channels,] height, width), or of image files.

    Args:
        n_bits: length of a code. None: that of the loss object; else 32 if `fit` gets labels, and 64 if not.
        loss: what the codes are for. A loss object, such as `HammingTargetLoss(64, radius=2)`, `ProbingLoss(64)` or
            `ClassCodes(32)`, or a word for one with default settings:
            "radius": similar inputs get codes within 2 bits, others not; for search within a radius.
            "probing": nearest neighbours are found early by a search with a budget.
            "classes": everything that will be searched belongs to a class that was learned from; see `ClassCodes`.
            "auto": "probing" if `fit` gets inputs alone. `PartlyLabelled` if some labels are missing: it finds out
            which of the others are alike. Else "radius"; for vectors with labels the neighbourhoods of the vectors are
            kept as well, so that other classes are still found (`KeepNeighbors`), and "radius" learns from the labels
            alone; for an `ImageSet` with labels "classes".
        network: "auto": for an `ImageSet` the pretrained network that comes with the package, which stays as it is;
            for arrays a network of our own. `NetworkOptions`: another size of that one. Or any nn.Module that turns
            inputs into features and has their number as `out_features`, such as `backbone("timm:resnet50",
            "pretrained")`. `fit` trains a copy of it; if none of its weights requires a gradient, it sees each image
            of an `ImageSet` once, and codes of its features are learned. A `HashModel` is taken with its own head.
        training: options of the training. None: the defaults of `TrainingOptions`, or those for pretrained networks;
            for 10,000 vectors or more without labels, 800 batches of 1,024.
        held_out: share of the inputs to hold out. The weights with the lowest loss on them are kept. 0: none.
        seed: seed of everything random. The same seed and data give the same codes on the same machine.
        device: "cpu", "cuda", or "auto": a GPU if there is one.
        metric: where `fit` gets vectors alone, by what they are near: "l2", "cosine" or "dot". A store of such an
            encoder keeps the vectors, and ranks by them.

    Raises:
        DtypeError: `n_bits` is no integer.
        InputError: no code has `n_bits` bits, or `training` is something else.

    Example:
        >>> import numpy as np
        >>> from hamtarget.learn import HashEncoder, NetworkOptions, TrainingOptions
        >>> random = np.random.default_rng(0)
        >>> labels = np.arange(60) % 3
        >>> vectors = 5 * np.eye(3)[labels] + random.normal(size=(60, 3))
        >>> training = TrainingOptions(steps=10, batch_size=32)
        >>> encoder = HashEncoder(n_bits=16, network=NetworkOptions(width=8), training=training, device="cpu")
        >>> encoder.fit(vectors, labels)
        HashEncoder(16 bits, radius 2, inputs (3,), DenseNet, 744 parameters)
        >>> encoder.encode(vectors).shape
        (60, 2)

        A folder of pictures, with a folder for each class, needs three lines. What the pretrained network sees in a
        picture is kept, by the content of the file, in the folder of HAMTARGET_CACHE::

            photos = ImageSet.from_folder("photos")
            encoder = HashEncoder().fit(photos)
            encoder.export_onnx("model")
    """

    def __init__(
        self,
        n_bits: int | None = None,
        loss: Loss = "auto",
        *,
        network: Network = "auto",
        training: TrainingOptions | None = None,
        held_out: float = 0.0,
        seed: int = 0,
        device: str = "auto",
        metric: MetricName = "l2",
    ) -> None:
        if not isinstance(training, TrainingOptions | None):
            raise InputError(f"training is {training!r}; expected TrainingOptions(...)")
        self._n_bits = None if n_bits is None else check_n_bits(n_bits)
        self.loss = loss
        self.network = network
        self.training = training
        self.held_out = held_out
        self.seed = seed
        self.device = device
        self.metric = metric
        self._fitted: FittedEncoder | None = None

    def fit(
        self,
        inputs: ArrayLike | Tensor | ImageSet,
        similar: Any = None,
        *,
        markers: ArrayLike | None = None,
        augment: Callable[[Tensor], Tensor] | None = None,
        progress: Callable[[TrainingProgress], None] | None = None,
        features_progress: Progress | None = None,
        neighbors_progress: Progress | None = None,
        checkpoint: str | Path | None = None,
        log: str | Path | None = None,
    ) -> Self:
        """Learn from `inputs` and return the encoder itself; a call that fails or is interrupted changes nothing.

        Args:
            inputs: any numbers, (rows, columns) or (rows, [channels,] height, width). Images may also have their
                channels last, (rows, height, width, 3), if the network is a built-in one. Or an `ImageSet`, whose
                images may be of any size; those that cannot be read are left out.
            similar: which inputs are similar: labels (rows,), None for an input without one; several labels for each
                input, (rows, labels) of 0 and 1; a `Similarity`, such as `Neighbors` or `SimilarPairs`; or a
                function of item numbers. None: the labels of an `ImageSet`; where there are none, each input and its 10
                nearest neighbours (of 25,000 drawn at random, if there are more vectors). Of inputs without a label,
                25,000 at most are learned from; see `PartlyLabelled`.
            markers: item numbers of the inputs around which groups are formed. None: all that have enough similar ones.
            augment: changes a batch of inputs at random.
            progress: called with a `TrainingProgress` now and then; where labels are missing, for the first training
                and then for the second.
            features_progress: called with (done, total) while images are read and features computed.
            neighbors_progress: called with (done, total) while nearest neighbours are sought.
            checkpoint: file to resume from if it exists, and to save to.
            log: file that gets one JSON line for each record.

        Raises:
            ShapeError: the inputs have a shape that cannot be learned from.
            DtypeError: the inputs are not numbers.
            NotFiniteError: the inputs hold NaN or infinity; the error names the row.
            SimilarityError: no two inputs are similar, all have one label, or a named marker has too few similar
                inputs.
            InputError: arguments contradict each other.
            TrainingError: nearly all inputs have got one code; the error says what to do.

        Warns:
            CrowdedCodesWarning: many dissimilar inputs have got codes within the radius.
            LeftOutWarning: inputs without a label seem to be of labelled classes, and are left out.
        """
        if isinstance(inputs, ImageSet):
            self._fitted = fit_pictures(
                inputs,
                similar,
                n_bits=self._n_bits,
                loss=self.loss,
                network=self.network,
                training=self.training,
                held_out=self.held_out,
                seed=self.seed,
                device=self.device,
                markers=markers,
                augment=augment,
                progress=progress,
                features_progress=features_progress,
                neighbors_progress=neighbors_progress,
                checkpoint=checkpoint,
                log=log,
            )
            return self
        self._fitted = fit_encoder(
            inputs,
            similar,
            n_bits=self._n_bits,
            loss=self.loss,
            network=self.network,
            training=self.training,
            held_out=self.held_out,
            seed=self.seed,
            device=self.device,
            metric=self.metric,
            markers=markers,
            augment=augment,
            progress=progress,
            neighbors_progress=neighbors_progress,
            checkpoint=checkpoint,
            log=log,
        )
        return self

    def logits(self, inputs: ArrayLike | Tensor) -> NDArray[np.float32]:
        """Return the real values before the sign, (rows, n_bits).

        Raises:
            NotFittedError: there is no model yet.
            ShapeError: the inputs have another shape than those that were learned from.
            DtypeError: the inputs are not numbers.
            NotFiniteError: the inputs hold NaN or infinity; the error names the row.

        Warns:
            InputRangeWarning: the inputs are on another scale than those that were learned from.
        """
        return self._learned.logits(inputs)

    def encode(self, inputs: ArrayLike | Tensor) -> NDArray[np.uint8]:
        """Return packed codes, (rows, n_bits / 8); see `logits` for errors."""
        return HashHead.codes(torch.from_numpy(self.logits(inputs))).numpy()

    def encode_images(self, images: ImageSet, *, workers: int = 0, progress: Progress | None = None) -> EncodedPictures:
        """Return the codes of image files; those that cannot be read are left out, and listed in `broken`.

        Where a frozen network sees the images, its features are kept, and are there from `fit` on.

        Args:
            images: the images, of any size.
            workers: processes that read them; 0: this one.
            progress: called with the number of images done and of all images.
        """
        return encode_pictures(self._learned, images, workers=workers, progress=progress)

    def embedding(self, inputs: ArrayLike | Tensor) -> NDArray[np.float32]:
        """Return logits scaled to unit length, (rows, n_bits), by which hits can be ranked; see `logits` for errors."""
        return HashHead.embedding(torch.from_numpy(self.logits(inputs))).numpy()

    def save(self, folder: str | Path) -> None:
        """Write `model.safetensors` and `config.json`. An older model stays whole until the new one is complete."""
        save_encoder(self._learned, folder)

    def export_onnx(self, folder_or_file: str | Path) -> Path:
        """Write an ONNX file, `model.onnx` in a folder, and return its path; an `OnnxEncoder` needs nothing else.

        Raises:
            MissingExtraError: the onnx package is not installed.
            InputError: the network cannot be written as ONNX.
        """
        path = Path(folder_or_file)
        path = path if path.suffix == ".onnx" else path / ONNX_NAME
        write_onnx(
            path,
            self.model,
            n_bits=self.n_bits,
            radius=self.radius,
            input_shape=self.input_shape,
            substrings=self.substrings,
            metric=self.neighbor_metric,
        )
        return path

    @classmethod
    def load(cls, folder: str | Path, *, network: nn.Module | None = None, device: str = "auto") -> Self:
        """Return the encoder that `save` wrote to `folder`.

        Args:
            folder: folder with `model.safetensors`.
            network: a module like the one that the encoder was built on, if it was the caller's own; it is copied.
            device: "cpu", "cuda", or "auto": a GPU if there is one.

        Raises:
            FileError: there is no model.
            CorruptFileError: the model is damaged.
            UnsupportedFileError: another version wrote it.
            InputError: the network must be passed, or another one was.
        """
        fitted = load_encoder(folder, network)
        encoder = cls(
            fitted.n_bits,
            fitted.loss,
            network=fitted.network,
            training=fitted.training,
            held_out=fitted.held_out,
            seed=fitted.seed,
            device=device,
            metric=fitted.metric or "l2",
        )
        encoder._fitted = replace(fitted, model=fitted.model.to(torch_device(device)))
        return encoder

    @property
    def n_bits(self) -> int:
        """Bits of a code.

        Raises:
            NotFittedError: `fit` has still to choose them.
        """
        if self._fitted is not None:
            return self._fitted.n_bits
        if self._n_bits is not None:
            return self._n_bits
        if isinstance(self.loss, str):
            raise NotFittedError("n_bits was not given, and fit has still to choose it; call fit or load first")
        return self.loss.n_bits

    @property
    def radius(self) -> int | tuple[int, ...] | None:
        """Hamming distance target, or several; None for probing, and before `fit` has chosen it."""
        if self._fitted is not None:
            return self._fitted.radius
        return None if isinstance(self.loss, str) else self.loss.radius

    @property
    def substrings(self) -> int | None:
        """Number of substrings that the codes were trained to be probed by; None: they were not."""
        loss = self.loss if self._fitted is None else self._fitted.loss
        return loss.substrings if isinstance(loss, ProbingLoss) else None

    @property
    def neighbor_metric(self) -> MetricName | None:
        """By what vectors are near, if the codes were learned from near vectors; None: from anything else."""
        return None if self._fitted is None else self._fitted.metric

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input: (columns,), (height, width) of a grey image, or (channels, height, width).

        Raises:
            NotFittedError: there is no model yet.
        """
        shape = self._learned.input_shape
        return shape[1:] if len(shape) == 3 and shape[0] == 1 else shape

    @property
    def model(self) -> HashModel | ClassPull:
        """The trained model. For `ClassCodes` it is a `ClassPull`, whose `model` was trained.

        Raises:
            NotFittedError: there is no model yet.
        """
        return self._learned.model

    @property
    def _learned(self) -> FittedEncoder:
        if self._fitted is None:
            raise NotFittedError("this HashEncoder has learned nothing yet; call fit or load first")
        return self._fitted

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return every argument of the constructor by name; `deep` is there for scikit-learn."""
        names = _parameter_names(type(self))
        return {name: self._n_bits if name == "n_bits" else getattr(self, name) for name in names}

    def __repr__(self) -> str:
        if self._fitted is None:
            given = [f"{name}={value!r}" for name, value in self.get_params().items() if name in ("n_bits", "loss")]
            return f"HashEncoder({', '.join(given)}) [not fitted]"
        aim = "probing" if self.radius is None else f"radius {self.radius}"
        inner = self.model.model if isinstance(self.model, ClassPull) else self.model
        n_parameters = sum(parameter.numel() for parameter in self.model.parameters())
        network = inner.backbone
        name = (
            f"frozen {type(network.network).__name__}"
            if isinstance(network, FrozenBackbone)
            else type(network).__name__
        )
        return f"HashEncoder({self.n_bits} bits, {aim}, inputs {self.input_shape}, {name}, {n_parameters:,} parameters)"


def _parameter_names(kind: type) -> list[str]:
    return list(inspect.signature(kind).parameters)
