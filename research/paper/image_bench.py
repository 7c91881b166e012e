"""Runs on images with a pre-trained network. Images, tasks and network are made when first needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.learn import backbone
from hamtarget.learn.fitting.arrays import torch_device
from hamtarget.learn.networks.augmentation import CropFlipColor, Resize
from research.comparators.fine_tuning import FineTuner
from research.datasets import open_image_data
from research.datasets.imagenet100 import is_imagenet
from research.paper.image_runs import SMALL_SIDE, Run, RunCodes, do_pulled, do_run
from research.paper.image_tasks import TASKS, LabelledImages, Task, load_images

MakeTuner = Callable[[Task], FineTuner]

# A crop may leave out a tile of a mosaic, whose label would then be wrong; hence mosaics are cropped less.
_CROP = {"mosaic": (0.8, 1.0)}
_ORDINARY_CROP = (0.5, 1.0)
# Side of photos that a network of 224 pixels sees crops of.
_PHOTO_SIDE = 256


class ImageBench:
    """Runs of methods on the tasks of one set of images.

    Args:
        source: returns the images when they are needed.
        tuner: returns the `FineTuner` of a task's images.
        tasks: functions that make each task from the images.
    """

    def __init__(
        self,
        source: Callable[[], LabelledImages],
        tuner: MakeTuner,
        *,
        tasks: dict[str, Callable[[LabelledImages], Task]] | None = None,
    ) -> None:
        self._source = source
        self._make_tuner = tuner
        self._task_makers = TASKS if tasks is None else tasks
        self._images: LabelledImages | None = None
        self._task: Task | None = None
        self._tuner: FineTuner | None = None
        self._features: NDArray[np.float32] | None = None

    @property
    def images(self) -> LabelledImages:
        """Return all images."""
        if self._images is None:
            self._images = self._source()
        return self._images

    def prepared(self, name: str) -> tuple[Task, FineTuner]:
        """Return a task and its tuner, and keep them until another task is asked for."""
        if self._task is None or self._task.name != name or self._tuner is None:
            before = self._task
            self._task = self._task_makers[name](self.images)
            # Tasks of the same images share them on the device.
            if self._tuner is None or before is None or before.source is not self._task.source or name in _CROP:
                self._tuner = self._make_tuner(self._task)
                self._features = None
        return self._task, self._tuner

    def features(self, name: str) -> NDArray[np.float32]:
        """Return the features of every image of a task from the untrained backbone."""
        _, tuner = self.prepared(name)
        if self._features is None:
            self._features = tuner.features(np.arange(len(tuner.images)))
        return self._features

    def do(self, run: Run, *, progress: Callable[[int, int], None] | None = None) -> tuple[dict[str, Any], RunCodes]:
        """Do a run, and return its facts and codes."""
        task, tuner = self.prepared(run.task)
        return do_run(run, task, tuner, features=lambda: self.features(run.task), progress=progress)

    def do_pulled(self, run: Run, pulled: Sequence[Run]) -> list[tuple[dict[str, Any], RunCodes]]:
        """Train once, and return facts and codes of runs that differ in the pull alone."""
        task, tuner = self.prepared(run.task)
        return do_pulled(run, pulled, task, tuner, features=lambda: self.features(run.task))


def usual_side(data: Path) -> int:
    """Return the side that images of a folder are kept with: photos of ImageNet are larger than packed ones."""
    return _PHOTO_SIDE if is_imagenet(data) else SMALL_SIDE


def open_bench(
    data: Path,
    weights: Path,
    *,
    size: int,
    stored_side: int | None = None,
    workers: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> ImageBench:
    """Return the bench of a set of images with the pre-trained ResNet-50.

    Args:
        data: see `open_image_data`.
        weights: `resnet50_caffe_int8.npz`.
        size: pixels of a side that the network sees.
        stored_side: pixels of a side that images are kept with; see `usual_side`.
        workers: processes that decode images.
        progress: called with the name of the work, how much is done, and how much there is.
    """

    def source() -> LabelledImages:
        told = None if progress is None else lambda done, total: progress("Decoding", done, total)
        side = usual_side(data) if stored_side is None else stored_side
        return load_images(open_image_data(data), side, workers=workers, progress=told)

    def tuner(task: Task) -> FineTuner:
        return FineTuner(
            task.source.images,
            backbone("resnet50_caffe", weights),
            augment=CropFlipColor(size, scale=_CROP.get(task.name, _ORDINARY_CROP)),
            resize=Resize(size),
            precision="bfloat16" if torch_device("auto").type == "cuda" else "float32",
        )

    return ImageBench(source, tuner)
