"""The methods of table 1 and the settings that each is measured with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from hamtarget.errors import CorruptFileError, FileError, InputError
from hamtarget.learn import HammingTargetLoss
from hamtarget.learn.fitting.objectives import PartlyLabelled
from hamtarget.learn.losses.base import BatchLoss, LabelLoss
from hamtarget.learn.losses.class_codes import codes_by_likeness
from hamtarget.learn.losses.guided import GuidedLoss
from hamtarget.learn.losses.proxies import ProxyLoss
from research.comparators import CSQLoss, DBRLoss, DHNLoss, HashNetLoss, NoPairs, OrthoHashLoss


@dataclass(frozen=True)
class Setting:
    """The settings of one method, beside those that are the same for all.

    Attributes:
        learning_rate: highest rate of the head.
        backbone_rate: factor on it for the backbone.
        batch_size, group_size: see `TrainingOptions`.
        pull: how strongly codes are pulled towards those of classes after training, see `ClassPull`; 0: not at all.
        loss: arguments of the loss. HDT has defaults of its own here, by the length of the codes, and takes
            `proxy_weight` and `proxy_scale` (see `ProxyLoss`), too; with proxies and `pairs` False, its pairs cost
            nothing. Methods with codes of classes take `likeness` of these codes (see `codes_by_likeness`) and
            `guide_bits` (length of a guide, see `GuidedLoss`).
    """

    learning_rate: float = 2e-3
    backbone_rate: float = 0.05
    batch_size: int = 256
    group_size: int = 4
    pull: float = 0.0
    loss: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LossTask:
    """The facts about a task that a loss may use.

    Attributes:
        n_bits: length of a code.
        n_labels: how many labels the rows to learn from have.
        steps: of the training.
        class_means: returns the mean features of each class from the untrained backbone, see `class_means`.
    """

    n_bits: int
    n_labels: int
    steps: int
    class_means: Callable[[], Tensor]


@dataclass(frozen=True)
class Method:
    """A trained method.

    Attributes:
        name: name in tables.
        normalize: True if the head ends in batch norm, as in its paper.
        build: makes its loss from the task and the arguments of the loss.
    """

    name: str
    normalize: bool
    build: Callable[[LossTask, Mapping[str, Any]], BatchLoss]


def _hdt(task: LossTask, setting: Mapping[str, Any]) -> BatchLoss:
    own = dict(setting)
    weight, scale = own.pop("proxy_weight", 0.0), own.pop("proxy_scale", None)
    likeness, guide_bits = own.pop("likeness", 1.0), own.pop("guide_bits", 0)
    if not weight:
        return _pairs(task.n_bits, own)
    loss = _proxied(task, own, weight, scale, likeness)
    if not guide_bits:
        return loss
    # The guide has the defaults of its own length, without the terms about classes; it has pairs if the code has.
    guide = {"pairs": own.get("pairs", True)}
    return GuidedLoss(loss, _proxied(replace(task, n_bits=guide_bits), guide, weight, None, likeness))


def _pairs(n_bits: int, setting: Mapping[str, Any]) -> HammingTargetLoss:
    usual = PartlyLabelled(n_bits)
    own = {"radius": usual.radius, "dissimilar_weight": usual.dissimilar_weight, "sharpness": usual.sharpness}
    return HammingTargetLoss(n_bits, **{**own, **setting})


def _proxied(
    task: LossTask, setting: Mapping[str, Any], weight: float, scale: float | None, likeness: float | None
) -> ProxyLoss:
    proxies = None if likeness is None else codes_by_likeness(task.class_means(), task.n_bits, likeness=likeness)
    own = dict(setting)
    pairs = _pairs(task.n_bits, own) if own.pop("pairs", True) else NoPairs(task.n_bits)
    return ProxyLoss(pairs, task.n_labels, proxy_weight=weight, proxies=proxies, scale=scale)


def _by_classes(loss: Callable[..., LabelLoss]) -> Callable[[LossTask, Mapping[str, Any]], BatchLoss]:
    """Return a function that builds a loss with fixed codes of classes, which can take what HDT has beside pairs."""

    def build(task: LossTask, setting: Mapping[str, Any]) -> BatchLoss:
        own = dict(setting)
        likeness, guide_bits = own.pop("likeness", None), own.pop("guide_bits", 0)

        def of_length(n_bits: int, **settings: Any) -> LabelLoss:
            codes = None if likeness is None else codes_by_likeness(task.class_means(), n_bits, likeness=likeness)
            return loss(n_bits, task.n_labels, codes=codes, **settings)

        code = of_length(task.n_bits, **own)
        return GuidedLoss(code, of_length(guide_bits)) if guide_bits else code

    return build


_ALL = (
    Method("HDT", True, _hdt),
    Method("DBR", False, _by_classes(DBRLoss)),
    Method("HashNet", False, lambda task, setting: HashNetLoss(task.n_bits, steps=task.steps, **setting)),
    Method("DHN", False, lambda task, setting: DHNLoss(task.n_bits, **setting)),
    Method("CSQ", False, _by_classes(CSQLoss)),
    Method("OrthoHash", True, _by_classes(OrthoHashLoss)),
)
METHODS = {method.name: method for method in _ALL}
# Signs of a linear map of the backbone's features, which is not trained.
UNTRAINED = ("ITQ", "LSH")
NAMES = (*METHODS, *UNTRAINED)
LENGTHS = (16, 32, 64)
# Weights of the pull that are compared: one training serves all of them.
PULLS = (0.0, 0.25, 0.5, 1.0, 2.0)

# Chosen on rows kept aside from those to learn from, by research.trials.image_trials --fine-tune, with as many trials
# for each method and length (research/results/table1/trials.json).
_CHOSEN: dict[tuple[str, int], Setting] = {
    ("HDT", 16): Setting(
        learning_rate=0.004, backbone_rate=0.0125, group_size=1, pull=1.0, loss={"guide_bits": 64, "proxy_weight": 12.0}
    ),
    ("HDT", 32): Setting(
        learning_rate=0.004, backbone_rate=0.0125, group_size=1, pull=1.0, loss={"guide_bits": 64, "proxy_weight": 12.0}
    ),
    ("HDT", 64): Setting(
        learning_rate=0.004,
        backbone_rate=0.025,
        group_size=1,
        pull=0.5,
        loss={"guide_bits": 0, "likeness": None, "proxy_weight": 12.0},
    ),
    ("DBR", 16): Setting(learning_rate=0.008, backbone_rate=0.01, group_size=1, loss={"slope": 0.7}),
    ("DBR", 32): Setting(learning_rate=0.004, backbone_rate=0.02, group_size=1, loss={"slope": 0.7}),
    ("DBR", 64): Setting(learning_rate=0.004, backbone_rate=0.01, group_size=1, loss={"slope": 1.0}),
    ("HashNet", 16): Setting(learning_rate=0.004, backbone_rate=0.01, loss={"product_scale": 5.0}),
    ("HashNet", 32): Setting(backbone_rate=0.025, group_size=1, loss={"product_scale": 5.0}),
    ("HashNet", 64): Setting(backbone_rate=0.02, group_size=1, loss={"product_scale": 7.0}),
    ("DHN", 16): Setting(
        learning_rate=0.004,
        backbone_rate=0.01,
        group_size=2,
        loss={"pair_average": "per_kind", "quantization_weight": 0.1},
    ),
    ("DHN", 32): Setting(
        backbone_rate=0.02, group_size=1, loss={"pair_average": "per_kind", "quantization_weight": 0.3}
    ),
    ("DHN", 64): Setting(group_size=1, loss={"pair_average": "per_kind", "quantization_weight": 0.1}),
    ("CSQ", 16): Setting(learning_rate=0.004, backbone_rate=0.01, group_size=1, loss={"quantization_weight": 0.05}),
    ("CSQ", 32): Setting(learning_rate=0.004, backbone_rate=0.01, group_size=1, loss={"quantization_weight": 0.2}),
    ("CSQ", 64): Setting(learning_rate=0.008, backbone_rate=0.005, group_size=1, loss={"quantization_weight": 0.2}),
    ("OrthoHash", 16): Setting(learning_rate=0.008, backbone_rate=0.01, group_size=1, loss={"scale": 2.0}),
    ("OrthoHash", 32): Setting(learning_rate=0.008, backbone_rate=0.01, group_size=1),
    ("OrthoHash", 64): Setting(learning_rate=0.008, backbone_rate=0.0125, group_size=1, loss={"scale": 5.6}),
}
# HDT exactly as in the paper, whose source names the batch and group sizes.
PAPER_SETTING = Setting(
    batch_size=128,
    group_size=2,
    loss={"radius": 2, "dissimilar_weight": 2000.0, "probability": "angle", "sharpness": 1.0},
)


def check_method(name: str) -> str:
    """Return the name if it is that of a method.

    Raises:
        InputError: there is no such method.
    """
    if name not in NAMES:
        raise InputError(f"method is {name!r}; expected one of {', '.join(NAMES)}")
    return name


def chosen_setting(method: str, n_bits: int, chosen: Mapping[tuple[str, int], Setting] = _CHOSEN) -> Setting:
    """Return the setting that a method is measured with, of the nearest length that was tried."""
    tried = [bits for name, bits in chosen if name == method]
    if not tried:
        return Setting()
    return chosen[method, min(tried, key=lambda bits: abs(bits - n_bits))]


def read_settings(paths: Sequence[Path]) -> dict[tuple[str, int], Setting]:
    """Return the best setting of each method and length in files of research.trials.image_trials; later files win.

    Raises:
        FileError: there is no such file.
        CorruptFileError: the file holds something else.
    """
    settings = {}
    for path in paths:
        try:
            for winner in json.loads(path.read_text(encoding="utf-8"))["winners"]:
                settings[winner["method"], winner["n_bits"]] = Setting(**winner["setting"])
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            wanted = "expected what research/trials/image_trials.py writes"
            raise CorruptFileError(f"{path} holds no trials; {wanted}") from error
    return settings
