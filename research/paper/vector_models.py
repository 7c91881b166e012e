"""The models of table 2 and figure 4: their names and settings. Training them needs no native core."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from research.datasets.vector_sets import VectorSet
from research.paper.vector_codes import NamedProgress, TrainedEncoder, trained_encoder

# The (n_bits, radius) and the values of lambda of table 2.
LENGTHS = ((16, 0), (32, 1), (64, 2))
LAMBDAS = (100.0, 300.0, 1000.0)
# The paper exactly, and what this project found better for the same purpose (docs/experiments.md).
WAYS: dict[str, dict[str, Any]] = {
    "angle": {"probability": "angle"},
    "soft_bits": {"probability": "soft_bits", "sharpness": 4.0},
}
# Figure 4 is about codes of this length.
N_BITS = 64
# Three substrings of 21 bits put rows into the finest order. Four of 16 bits are the fastest: fewer, fuller buckets.
FINE, FAST = 3, 4
# A larger radius includes more rows: figure 4 shows how many.
WIDE_RADIUS = 4
WIDE_LAMBDAS = (100.0, 300.0)


@dataclass(frozen=True)
class Training:
    """How long each model is trained; batch and group sizes are the paper's."""

    steps: int = 4000
    batch_size: int = 1024
    group_size: int = 4
    seed: int = 0

    def setting(self) -> dict[str, Any]:
        """Return the settings that are the same for every model, see `encoder_of`."""
        return {
            "steps": self.steps,
            "batch_size": self.batch_size,
            "group_size": self.group_size,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class VectorModel:
    """A model by its name and its settings, see `encoder_of`."""

    name: str
    setting: dict[str, Any]

    def trained(self, vectors: VectorSet, models: Path, *, progress: NamedProgress | None = None) -> TrainedEncoder:
        """Return the model from the folder `models`, or train it on `vectors.learn` and put it there."""
        return trained_encoder(vectors, self.setting, models / self.name, name=self.name, progress=progress)


def lookup_model(n_bits: int, radius: int, dissimilar_weight: float, way: str, training: Training) -> VectorModel:
    """Return a model for look-up within a radius; `way` is a name in `WAYS`."""
    return VectorModel(
        f"{n_bits}-bits-r{radius}-{way}-lambda{dissimilar_weight:g}-seed{training.seed}",
        {
            "n_bits": n_bits,
            "radius": radius,
            "dissimilar_weight": dissimilar_weight,
            **WAYS[way],
            **training.setting(),
        },
    )


def fast_model(training: Training) -> VectorModel:
    """Return the model for the fastest probing: four substrings, a quick network, and codes that choose rows well."""
    return VectorModel(
        f"{N_BITS}-bits-fast-{FAST}-substrings-seed{training.seed}",
        {
            "n_bits": N_BITS,
            "substrings": FAST,
            "objective": "probing",
            "layers": 2,
            "choosing_weight": 1.0,
            "choosing_temperature": 1.0,
            **training.setting(),
        },
    )


def probing_model(substrings: int, training: Training) -> VectorModel:
    """Return a model for probing with a number of substrings, whose codes are not trained to choose rows."""
    return VectorModel(
        f"{N_BITS}-bits-probing-{substrings}-substrings-seed{training.seed}",
        {
            "n_bits": N_BITS,
            "substrings": substrings,
            "objective": "probing",
            "choosing_weight": 0.0,
            "choosing_temperature": 0.5,
            **training.setting(),
        },
    )
