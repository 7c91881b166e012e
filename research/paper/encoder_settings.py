"""Settings of an encoder as one flat record, as the results list them, and the encoder that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hamtarget.learn import HammingTargetLoss, HashEncoder, NetworkOptions, ProbingLoss, TrainingOptions

_LOOKUP = (
    "n_bits",
    "radius",
    "dissimilar_weight",
    "probability",
    "sharpness",
    "substring_weight",
    "substrings",
    "substring_cost",
)
_PROBING = ("n_bits", "substrings", "temperature", "sharpness", "choosing_weight", "choosing_temperature")
_NETWORK = ("width", "layers", "center")
_TRAINING = ("steps", "batch_size", "group_size", "learning_rate", "weight_decay", "precision", "patience")


def encoder_of(setting: Mapping[str, Any], *, device: str = "auto") -> HashEncoder:
    """Return an encoder that is still to be fitted.

    Args:
        setting: arguments of its loss, its network and its training by name, and `seed`. With `"objective": "probing"`
            the loss is a `ProbingLoss`, else a `HammingTargetLoss`.
        device: see `HashEncoder`.

    Raises:
        ValueError: a name is not known.
    """
    probing = setting.get("objective") == "probing"
    loss_names = _PROBING if probing else _LOOKUP
    unknown = setting.keys() - {*loss_names, *_NETWORK, *_TRAINING, "objective", "seed"}
    if unknown:
        raise ValueError(f"settings are {', '.join(sorted(unknown))}; expected those of a loss, a network, a training")

    def taken(names: tuple[str, ...]) -> dict[str, Any]:
        return {name: setting[name] for name in names if name in setting}

    return HashEncoder(
        loss=ProbingLoss(**taken(loss_names)) if probing else HammingTargetLoss(**taken(loss_names)),
        network=NetworkOptions(**taken(_NETWORK)),
        # What collapses is reported, too: the paper's own loss does.
        training=TrainingOptions(**taken(_TRAINING), stop_on_collapse=False),
        seed=setting.get("seed", 0),
        device=device,
    )


def same_settings(one: HashEncoder, other: HashEncoder, shape: tuple[int, ...]) -> bool:
    """Return True if two encoders of inputs of this shape learn, or have learned, by the same settings."""
    return _compared(one, shape) == _compared(other, shape)


def _compared(encoder: HashEncoder, shape: tuple[int, ...]) -> list[Any]:
    training = encoder.training or TrainingOptions()
    network = encoder.network.for_inputs(shape) if isinstance(encoder.network, NetworkOptions) else None
    return [repr(encoder.loss), network, encoder.seed, *(getattr(training, name) for name in _TRAINING)]
