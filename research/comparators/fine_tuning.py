"""Fine-tune many models from one backbone, over images that stay on the device."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hamtarget.errors import DtypeError, ShapeError
from hamtarget.learn.fitting.arrays import torch_device
from hamtarget.learn.losses.base import BatchLoss
from hamtarget.learn.networks.head import HashHead, HashModel
from hamtarget.learn.networks.standardize import Standardize
from hamtarget.learn.similarity.as_similarity import as_similarity
from hamtarget.learn.training.checkpoint import TrainingProgress
from hamtarget.learn.training.options import TrainingOptions
from hamtarget.learn.training.trainer import train

# Images sent through the network at a time when encoding.
_ENCODED_ROWS = 500

Transform = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class FineTuned:
    """A trained model, and the time that training took.

    Attributes:
        model: in evaluation mode, on the device.
        seconds: that training took, warm-up included.
        images_per_second: measured after the first report, without warm-up; 0 if there was one report only.
    """

    model: HashModel
    seconds: float
    images_per_second: float


class FineTuner:
    """Train models on some rows of a set of images, and encode others. Images are sent to the device once.

    Args:
        images: (rows, height, width) or (rows, channels, height, width), uint8; or features, (rows, columns).
        backbone: the network that every model starts from; each gets a copy.
        augment: changes a training batch at random, see `train`; also brings it to the network's size.
        resize: brings other batches to the network's size.
        precision: see `TrainingOptions`; also used for encoding.
        device: by default a GPU if there is one.
    """

    def __init__(
        self,
        images: NDArray[np.uint8] | NDArray[np.float32],
        backbone: nn.Module,
        *,
        augment: Transform | None = None,
        resize: Transform | None = None,
        precision: Literal["float32", "bfloat16"] = "float32",
        device: torch.device | None = None,
    ) -> None:
        if images.ndim not in (2, 3, 4):
            raise ShapeError(f"images have shape {images.shape}; expected (rows, [channels,] height, width)")
        if images.dtype not in (np.uint8, np.float32):
            raise DtypeError(f"images have dtype {images.dtype}; expected uint8, or float32 features")
        self.device = torch_device("auto") if device is None else device
        self.images = torch.from_numpy(np.ascontiguousarray(images)).to(self.device)
        if self.images.ndim == 3:
            self.images = self.images[:, None]
        self.backbone = backbone
        self.augment = augment
        self.resize = resize
        self.precision: Literal["float32", "bfloat16"] = precision

    def fit(
        self,
        rows: NDArray[np.int64],
        labels: NDArray[np.generic],
        loss: BatchLoss,
        options: TrainingOptions,
        *,
        normalize: bool,
        progress: Callable[[TrainingProgress], None] | None = None,
    ) -> FineTuned:
        """Train a model on some rows.

        Args:
            rows: of the images to train on.
            labels: of those rows, (rows,) or (rows, labels) of 0 and 1.
            loss: see `train`.
            options: see `train`; the precision is this object's.
            normalize: see `HashHead`.
            progress: see `train`.
        """
        inputs = self.images[torch.from_numpy(rows).to(self.device)]
        with torch.random.fork_rng([]):
            torch.manual_seed(options.seed)
            model = HashModel(copy.deepcopy(self.backbone), loss.n_bits, normalize=normalize)
        for module in model.modules():
            if isinstance(module, Standardize):
                module.fit(torch.cat([self._sized(part) for part in inputs.split(_ENCODED_ROWS)]).cpu())
        # Tensor cores take channels last; on a CPU it makes no difference to the result and little to the time.
        model.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        reports: list[tuple[int, float]] = []

        def note(state: TrainingProgress) -> None:
            reports.append((state.step, time.perf_counter()))
            if progress is not None:
                progress(state)

        options = replace(options, precision=self.precision)
        similarity = as_similarity(labels, len(inputs))
        started = time.perf_counter()
        with _fastest_convolutions():
            train(model, loss, inputs, similarity, options, augment=self.augment, progress=note)
        (first_step, first), (last_step, last) = reports[0], reports[-1]
        speed = (last_step - first_step) * options.batch_size / (last - first) if last > first else 0.0
        return FineTuned(model, time.perf_counter() - started, speed)

    def logits(self, model: nn.Module, rows: NDArray[np.int64]) -> Tensor:
        """Return the logits of some rows, (rows, logits), on the device."""
        return torch.cat(self._outputs(model, rows))

    def codes(self, model: nn.Module, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return packed codes of some rows."""
        return HashHead.codes(self.logits(model, rows)).cpu().numpy()

    def features(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the features of some rows from the untrained backbone, (rows, features)."""
        backbone = copy.deepcopy(self.backbone).to(self.device)
        return np.concatenate([features.cpu().numpy() for features in self._outputs(backbone, rows)])

    def _sized(self, images: Tensor) -> Tensor:
        return images if self.resize is None else self.resize(images)

    @torch.no_grad()
    def _outputs(self, network: nn.Module, rows: NDArray[np.int64]) -> list[Tensor]:
        network.eval()
        found = []
        for some in torch.from_numpy(rows).to(self.device).split(_ENCODED_ROWS):
            batch = self._sized(self.images[some])
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
                found.append(network(batch).float())
        return found


@contextlib.contextmanager
def _fastest_convolutions() -> Iterator[None]:
    """Let cuDNN try its algorithms for each new shape; this pays, since shapes do not change in training."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
