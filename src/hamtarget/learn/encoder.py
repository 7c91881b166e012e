"""HashEncoder: learn from arrays, turn arrays into codes, save and load; with scikit-learn's manners."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from hamtarget._files import write_atomically
from hamtarget.codes import check_n_bits
from hamtarget.errors import InputError, NotFittedError, ShapeError
from hamtarget.learn.checkpoint import Progress
from hamtarget.learn.export import ONNX_NAME, write_onnx
from hamtarget.learn.held_out import HeldOutLoss, places, split
from hamtarget.learn.inputs import as_tensor
from hamtarget.learn.losses.guided import GuidedLoss
from hamtarget.learn.losses.hamming_target import HammingTargetLoss
from hamtarget.learn.losses.label_loss import LabelLoss
from hamtarget.learn.losses.pair_cost import DissimilarCost, Probability
from hamtarget.learn.losses.pair_loss import PairLoss
from hamtarget.learn.losses.probing import ProbingLoss
from hamtarget.learn.losses.proxies import ProxyLoss
from hamtarget.learn.networks.class_pull import ProxyPull
from hamtarget.learn.networks.head import HashHead, HashModel
from hamtarget.learn.networks.small import DenseNet, SmallResNet, Standardize
from hamtarget.learn.options import TrainingOptions
from hamtarget.learn.similarity import Labels, Neighbors, Similarity, as_similarity, nearest_neighbors
from hamtarget.learn.trainer import train
from hamtarget.learn.weights import read_tensors, write_tensors

Objective = Literal["auto", "radius", "probing", "classes"]
# Inputs sent through the network at a time when encoding.
_ENCODED_ROWS = 4096
# Without labels, so many nearest neighbours are similar (paper 3.2).
_NEIGHBORS = 10
# The paper's radius at 64 bits.
_RADIUS = 2
# Of class proxies beside the pair loss, and bits of the guide that shorter codes are learned beside.
_PROXY_WEIGHT = 10.0
_GUIDE_BITS = 64


class HashEncoder:
    """Learns binary codes from arrays: vectors (rows, columns) or images (rows, [channels,] height, width).

    Args:
        n_bits: length of a code.
        radius: the Hamming distance target, or several whose losses are averaged. None: 2 where `objective` needs one.
        objective: what the codes are for. "radius": similar inputs lie within `radius` bits, others outside
            (`HammingTargetLoss`), for search within a radius. "probing": similar inputs are read first by
            query-directed probing and rank first by embedding (`ProbingLoss`), for nearest neighbours by
            `MultiIndex.probe`. "classes": as "radius", for labels, where all that will be searched is of the classes
            that are learned from: codes are drawn to those of classes (`ProxyLoss`, `GuidedLoss`, `ProxyPull`), and a
            search finds more of a class, the more so the more classes there are and the shorter codes are.
            "auto": probing where `fit` gets no `similar` and there is no radius, else radius.
        network: "auto": the paper's DenseNet for vectors, a small residual network for images; or any nn.Module
            that turns a batch of inputs into features and tells their number as `out_features`.
        width: units or channels of a layer of the built-in networks; None: 256 for vectors, 32 for images.
        layers: of the DenseNet; fewer make encoding faster. None: 3, as in the paper.
        dissimilar_weight: lambda of the paper: more of it means fewer, but surer, hits within the radius.
        probability, sharpness, substring_weight, substrings, substring_cost: see `HammingTargetLoss`; `sharpness` and
            `substrings` are also those of `ProbingLoss`.
        temperature, choosing_weight, choosing_temperature: see `ProbingLoss`.
        center: see `HashHead`.
        steps, batch_size, group_size, learning_rate, weight_decay, precision: see `TrainingOptions`.
        held_out: share of the inputs kept aside, by whose loss the best weights are chosen; 0: none.
        patience: with `held_out`, stop after so many looks without a gain; 0: never.
        seed: same seed, same data, same machine: same codes.
        device: "auto": a GPU if there is one.
    """

    def __init__(
        self,
        n_bits: int = 64,
        radius: int | tuple[int, ...] | None = None,
        *,
        objective: Objective = "auto",
        network: str | nn.Module = "auto",
        width: int | None = None,
        layers: int | None = None,
        dissimilar_weight: float = 300.0,
        probability: Probability = "soft_bits",
        sharpness: float = 4.0,
        substring_weight: float = 0.0,
        substrings: int | None = None,
        substring_cost: DissimilarCost = "expected_rows",
        temperature: float = 0.3,
        choosing_weight: float = 0.0,
        choosing_temperature: float = 0.5,
        center: Literal["mean", "median"] = "mean",
        steps: int = 2000,
        batch_size: int = 256,
        group_size: int = 4,
        learning_rate: float = 2e-3,
        weight_decay: float = 1e-4,
        precision: Literal["float32", "bfloat16"] = "float32",
        held_out: float = 0.0,
        patience: int = 0,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.n_bits = n_bits
        self.radius = radius
        self.objective = objective
        self.network = network
        self.width = width
        self.layers = layers
        self.dissimilar_weight = dissimilar_weight
        self.probability = probability
        self.sharpness = sharpness
        self.substring_weight = substring_weight
        self.substrings = substrings
        self.substring_cost = substring_cost
        self.temperature = temperature
        self.choosing_weight = choosing_weight
        self.choosing_temperature = choosing_temperature
        self.center = center
        self.steps = steps
        self.batch_size = batch_size
        self.group_size = group_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.precision = precision
        self.held_out = held_out
        self.patience = patience
        self.seed = seed
        self.device = device
        self._model: HashModel | ProxyPull | None = None
        self._shape: tuple[int, ...] = ()

    @property
    def model(self) -> HashModel | ProxyPull:
        """The trained model; where codes are drawn to those of classes, its `model` is what was trained.

        Raises:
            NotFittedError: there is none yet.
        """
        if self._model is None:
            raise NotFittedError("this HashEncoder has learned nothing yet; call fit or load first")
        return self._model

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input: (columns,), (height, width) of a grey image, or (channels, height, width).

        Raises:
            NotFittedError: there is no model yet.
        """
        shape = self._shape if self.model is not None else ()
        return shape[1:] if len(shape) == 3 and shape[0] == 1 else shape

    def fit(
        self,
        inputs: ArrayLike | Tensor,
        similar: Any = None,
        *,
        markers: ArrayLike | None = None,
        augment: Callable[[Tensor], Tensor] | None = None,
        progress: Callable[[Progress], None] | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 500,
        log: str | Path | None = None,
    ) -> Self:
        """The encoder itself, trained on `inputs`; an interrupted call leaves it as it was.

        Args:
            inputs: (rows, columns) or (rows, [channels,] height, width), any numbers.
            similar: which inputs are similar: labels (rows,), several labels (rows, labels) of 0 and 1, a
                `Similarity`, or a function of item numbers. None: the 10 nearest neighbours of each input.
            markers: item numbers of the inputs around which groups are formed; all, if not given. Where many inputs
                are similar to none, as in a list of duplicates, name those that are: `similar.markers(group_size)`.
            augment: changes a batch of inputs at random.
            progress: called with a `Progress` now and then.
            checkpoint: a file to resume from and to save to.
            checkpoint_every: steps between two such saves.
            log: a file that gets one JSON line a record.

        Raises:
            NotFiniteError, ShapeError, DtypeError: the inputs cannot be learned from; says where.
            SimilarityError: some input has too few similar ones for a group; says which.
            InputError: the objective is "classes", and `similar` is not one label for each input.
        """
        options = TrainingOptions(
            steps=self.steps,
            batch_size=self.batch_size,
            group_size=self.group_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            precision=self.precision,
            patience=self.patience,
            checkpoint_every=checkpoint_every,
            seed=self.seed,
        )
        tensor = as_tensor(inputs)
        if len(tensor) < 2:
            raise ShapeError(f"inputs have {len(tensor)} rows; learning needs at least 2")
        device = self._torch_device()
        tensor = tensor.to(device)
        relation = None if similar is None else as_similarity(similar, len(tensor))
        loss = self._loss(relation)
        kept, aside = split(len(tensor), self.held_out, self.seed)
        model = self._build(tuple(tensor.shape[1:]), tensor[kept.to(device)], loss.n_bits).to(device)
        similarity = self._similarity(relation, tensor, kept, device)
        chosen = None if markers is None else places(torch.as_tensor(np.asarray(markers)), kept, len(tensor))
        evaluate = None
        if len(aside):
            evaluate = HeldOutLoss(
                tensor[aside.to(device)], self._similarity(relation, tensor, aside, device), loss, options
            )
            # What is held out may leave others without enough similars: they are no markers, but may be drawn.
            able = similarity.markers(self.group_size)
            if able is not None:
                chosen = able if chosen is None else chosen[torch.isin(chosen, able.cpu())]
        train(
            model,
            loss,
            tensor[kept.to(device)] if len(aside) else tensor,
            similarity,
            options,
            evaluate=evaluate,
            markers=chosen,
            augment=augment,
            progress=progress,
            checkpoint=checkpoint,
            log=log,
        )
        self._model = ProxyPull(model, loss.class_codes, n_bits=self.n_bits) if isinstance(loss, LabelLoss) else model
        self._shape = tuple(tensor.shape[1:])
        return self

    def _loss(self, relation: Similarity | None) -> PairLoss | LabelLoss:
        if self.objective not in get_args(Objective):
            raise InputError(f"objective is {self.objective!r}; expected one of {', '.join(get_args(Objective))}")
        if self.objective == "classes":
            return self._class_loss(relation)
        if self.objective == "probing" or (self.objective == "auto" and relation is None and self.radius is None):
            return ProbingLoss(
                self.n_bits,
                substrings=self.substrings,
                temperature=self.temperature,
                sharpness=self.sharpness,
                choosing_weight=self.choosing_weight,
                choosing_temperature=self.choosing_temperature,
            )
        return self._target_loss(self.n_bits)

    def _class_loss(self, relation: Similarity | None) -> LabelLoss:
        if not isinstance(relation, Labels):
            found = "none" if relation is None else type(relation).__name__
            raise InputError(f"objective is 'classes', and similar is {found}; expected one label for each input")

        def proxied(n_bits: int) -> ProxyLoss:
            pairs = self._target_loss(n_bits)
            return ProxyLoss(pairs, relation.n_labels, proxy_weight=_PROXY_WEIGHT, seed=self.seed)

        code = proxied(self.n_bits)
        return code if self.n_bits >= _GUIDE_BITS else GuidedLoss(code, proxied(_GUIDE_BITS))

    def _target_loss(self, n_bits: int) -> HammingTargetLoss:
        """The pair loss of codes of this length, its radius being the same share of the bits."""
        radius = _RADIUS if self.radius is None else self.radius
        if n_bits != self.n_bits:
            share = n_bits / self.n_bits
            radius = round(radius * share) if isinstance(radius, int) else tuple(round(r * share) for r in radius)
        return HammingTargetLoss(
            n_bits,
            radius,
            dissimilar_weight=self.dissimilar_weight,
            probability=self.probability,
            sharpness=self.sharpness,
            substring_weight=self.substring_weight,
            substrings=self.substrings,
            substring_cost=self.substring_cost,
        )

    def _similarity(
        self, relation: Similarity | None, inputs: Tensor, items: Tensor, device: torch.device
    ) -> Similarity:
        if relation is None:
            # Neighbours are sought among the inputs that will be trained on together, not cut from longer lists.
            chosen = inputs[items.to(device)]
            return Neighbors(nearest_neighbors(chosen, min(_NEIGHBORS, len(chosen) - 1)))
        return relation if len(items) == len(inputs) else relation.subset(items)

    def _build(self, shape: tuple[int, ...], inputs: Tensor | None, n_logits: int) -> HashModel:
        """A new model for inputs of `shape`; the same for the same seed."""
        with torch.random.fork_rng([]):
            torch.manual_seed(self.seed)
            backbone: nn.Module
            if isinstance(self.network, nn.Module):
                backbone = self.network
            elif self.network != "auto":
                raise InputError(f"network is {self.network!r}; expected 'auto' or an nn.Module")
            elif len(shape) == 1:
                backbone = DenseNet(shape[0], width=self.width or 256, layers=self.layers or 3)
            elif len(shape) == 3:
                backbone = SmallResNet((shape[0], shape[1], shape[2]), width=self.width or 32)
            else:
                raise ShapeError(
                    f"inputs have shape (rows, {', '.join(map(str, shape))}); expected (rows, columns), "
                    "(rows, height, width) or (rows, channels, height, width)"
                )
            model = HashModel(backbone, check_n_bits(n_logits), center=self.center)
        if inputs is not None:
            for module in model.modules():
                if isinstance(module, Standardize):
                    module.fit(inputs.cpu())
        return model

    def logits(self, inputs: ArrayLike | Tensor) -> NDArray[np.float32]:
        """Real values before the sign, (rows, n_bits)."""
        model = self.model
        rows = inputs if isinstance(inputs, Tensor) else np.asarray(inputs)
        device = next(model.parameters()).device
        result = np.empty((len(rows), self.n_bits), dtype=np.float32)
        model.eval()
        with torch.inference_mode():
            # At least one block, so that the shape of no rows at all is checked too.
            for start in range(0, max(1, len(rows)), _ENCODED_ROWS):
                block = as_tensor(rows[start : start + _ENCODED_ROWS])
                if tuple(block.shape[1:]) != self._shape:
                    raise ShapeError(
                        f"inputs have shape (rows, {', '.join(map(str, block.shape[1:]))}); this encoder learned from "
                        f"(rows, {', '.join(map(str, self._shape))})"
                    )
                result[start : start + _ENCODED_ROWS] = model(block.to(device)).float().cpu().numpy()
        return result

    def encode(self, inputs: ArrayLike | Tensor) -> NDArray[np.uint8]:
        """Packed codes, (rows, n_bits / 8)."""
        return HashHead.codes(torch.from_numpy(self.logits(inputs))).numpy()

    def embedding(self, inputs: ArrayLike | Tensor) -> NDArray[np.float32]:
        """Logits scaled to unit length, (rows, n_bits): what HDT-E ranks hits by."""
        return HashHead.embedding(torch.from_numpy(self.logits(inputs))).numpy()

    def save(self, folder: str | Path) -> None:
        """Write `model.safetensors` and `config.json`; an older model stays whole until the new one is.

        The weights file holds the configuration too and is enough to load the encoder: replacing it is the one moment
        at which the new model takes the place of the old. `config.json` is the same text for people and other tools.
        """
        model = self.model
        config = {
            "parameters": {name: value for name, value in self.get_params().items() if name != "network"},
            "network": "auto" if self.network == "auto" else type(self.network).__name__,
            "input_shape": list(self._shape),
        }
        if isinstance(model, ProxyPull):
            config["pull"] = {"weight": model.weight, "scale": model.scale}
        folder = Path(folder)
        # An export of an older model must not be taken for this one's.
        (folder / ONNX_NAME).unlink(missing_ok=True)
        write_tensors(folder / "model.safetensors", model.state_dict(), config, kind="model")
        write_atomically(folder / "config.json", (json.dumps(config, indent=2, sort_keys=True) + "\n").encode())

    def export_onnx(self, folder_or_file: str | Path) -> Path:
        """The ONNX file that was written, `model.onnx` in a folder: enough alone for `hamtarget.encoders.onnx_encoder`.

        Raises:
            MissingExtraError: the onnx package is not installed.
        """
        path = Path(folder_or_file)
        path = path if path.suffix == ".onnx" else path / ONNX_NAME
        write_onnx(path, self.model, n_bits=self.n_bits, radius=self.radius, input_shape=self.input_shape)
        return path

    @classmethod
    def load(cls, folder: str | Path, *, network: nn.Module | None = None, device: str = "auto") -> Self:
        """The encoder that `save` wrote to `folder`.

        Args:
            folder: holds `model.safetensors`.
            network: the same nn.Module that it was built with, where that was not "auto".
            device: "auto": a GPU if there is one.

        Raises:
            FileError: there is no model. CorruptFileError: it is damaged. UnsupportedFileError: it is too new.
            InputError: its network must be given, or another one was.
        """
        path = Path(folder) / "model.safetensors"
        tensors, config = read_tensors(path, kind="model")
        parameters = dict(config["parameters"])
        if isinstance(parameters["radius"], list):
            parameters["radius"] = tuple(parameters["radius"])
        if config["network"] != "auto" and network is None:
            raise InputError(f"{path} was built on a {config['network']}; pass network= with such a module")
        encoder = cls(**{**parameters, "network": network if network is not None else "auto", "device": device})
        shape = tuple(config["input_shape"])
        # Of codes that are drawn to those of classes; the rest of the logits is the guide's.
        proxies = tensors.get("proxies")
        model: HashModel | ProxyPull
        model = encoder._build(shape, None, encoder.n_bits if proxies is None else proxies.shape[1])
        if proxies is not None:
            model = ProxyPull(model, proxies, n_bits=encoder.n_bits, **config["pull"])
        try:
            model.load_state_dict(tensors)
        except RuntimeError as error:
            raise InputError(f"{path}: its weights do not fit the network: {error}") from error
        encoder._model = model.to(encoder._torch_device()).eval()
        encoder._shape = shape
        return encoder

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every argument of the constructor by name; `deep` is there for scikit-learn."""
        return {name: getattr(self, name) for name in _parameter_names(type(self))}

    def set_params(self, **parameters: Any) -> Self:
        """The encoder itself with some arguments changed; they count from the next `fit` on."""
        names = _parameter_names(type(self))
        for name, value in parameters.items():
            if name not in names:
                raise InputError(f"HashEncoder has no parameter {name!r}; expected one of {', '.join(names)}")
            setattr(self, name, value)
        return self

    def _torch_device(self) -> torch.device:
        return available_device() if self.device == "auto" else torch.device(self.device)

    def __repr__(self) -> str:
        state = "not fitted" if self._model is None else f"inputs {self._shape}"
        return f"HashEncoder(n_bits={self.n_bits}, radius={self.radius}) [{state}]"


def available_device() -> torch.device:
    """A GPU, if there is one that torch can use."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _parameter_names(kind: type) -> list[str]:
    return [name for name in inspect.signature(kind).parameters if name != "self"]
