"""Look for the paper's frontier on SIFT 1M: recall of look-up within 2 bits of 64, against comparisons.

    python -m research.trials.sift_frontier pack --data ../shared/data/sift1m --file frontier/data.npz
    python -m research.trials.sift_frontier train --file frontier/data.npz --out frontier/models --minutes 5.5
    python -m research.trials.sift_frontier score --models frontier/models --data ../shared/data/sift1m \
        --out research/results/sift1m

`pack` writes what training and scoring need into one small file. `train` is for a machine with a GPU, where the native
core need not be built: it trains all models, the most telling first, and scores each with rows drawn from the base. It
can be interrupted; models that are there are not trained again. `score` checks some of these scores by the whole base,
sums up over seeds, and writes frontier.json and frontier.png.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import HashModel, TrainingOptions
from hamtarget.learn.networks.builder import DenseNet
from hamtarget.learn.similarity.nearest_neighbors import nearest_neighbors
from research.datasets.vector_sets import open_vector_set
from research.paper.vector_codes import SIMILAR
from research.trials.frontier_ensemble import N_BITS, RADIUS, Setting, StackedModels, load_arrays, train_together
from research.trials.frontier_scores import FrontierData, frontier_scores

LAMBDAS = (100.0, 300.0, 1000.0, 3000.0, 10000.0, 30000.0)
# Soft bits put few rows within the radius: smaller weights reach as many comparisons as the paper's points have.
SMALL_LAMBDAS = (1.0, 3.0, 10.0, 30.0)
DECORRELATIONS = (10.0, 100.0)
SHORT, LONG = 4_000, 50_000
N_QUERIES, N_ROWS = 2_000, 125_000
RUNS = "runs.json"
# A smaller group takes longer a model.
_SLACK = 1.3
# Rows encoded at a time by all models together.
_ROWS = 4096

_ANGLE = [Setting("angle", "per_kind", weight) for weight in LAMBDAS]
_ANGLE_ALL = [Setting("angle", "all_pairs", weight) for weight in LAMBDAS]
_APART = [Setting("angle", "per_kind", weight, each) for each in DECORRELATIONS for weight in LAMBDAS[:3]]
_SOFT = [Setting("soft_bits", "per_kind", weight) for weight in (*SMALL_LAMBDAS, *LAMBDAS)]
# Few models that tell whether longer training helps: in one group, all of them would take too long.
_TELLING = (
    *(Setting("angle", "per_kind", weight) for weight in (300.0, 1000.0, 10000.0)),
    *(Setting("soft_bits", "per_kind", weight) for weight in (10.0, 100.0, 300.0)),
)
_SOFT_ALL = [Setting("soft_bits", "all_pairs", weight) for weight in LAMBDAS]


@dataclass(frozen=True)
class Group:
    """Models that are trained together: settings of one `probability` side by side."""

    steps: int
    seed: int
    settings: tuple[Setting, ...]


def groups() -> list[Group]:
    """Return all models, the most telling first."""
    everything = (*_ANGLE, *_ANGLE_ALL, *_APART, *_SOFT, *_SOFT_ALL)
    first, second = (*_ANGLE, *_SOFT), (*_ANGLE_ALL, *_APART, *_SOFT_ALL)
    return [
        *(Group(SHORT, seed, everything) for seed in range(3)),
        Group(LONG, 0, _TELLING),
        Group(LONG, 0, first),
        Group(LONG, 0, second),
        *(Group(LONG, seed, first) for seed in (1, 2)),
        *(Group(LONG, seed, second) for seed in (1, 2)),
    ]


def train_all(
    data: FrontierData,
    out: Path,
    *,
    minutes: float,
    steps: int | None = None,
    batch_size: int = 1024,
    most: int | None = None,
    cuda_graph: bool = True,
    known: Path | None = None,
) -> None:
    """Train the groups that are not in `out` yet; begin none that would not end in time.

    Args:
        data: vectors on the device to train on.
        out: folder of the results so far.
        minutes: time for everything.
        steps: steps of every group, to try the script; None: those of the group.
        batch_size: vectors in a batch.
        most: models of a group, to try the script; None: all.
        cuda_graph: see `train_together`.
        known: frontier.json of earlier runs, which are not done again if `out` holds none.
    """
    began = time.perf_counter()
    told = _told(out, known)
    neighbors = nearest_neighbors(data.learn, SIMILAR)
    print(f"neighbours after {time.perf_counter() - began:.1f} s", flush=True)
    pace = 0.0
    for planned in groups():
        group = _left(replace(planned, steps=steps or planned.steps, settings=planned.settings[:most]), told["runs"])
        if not group.settings:
            continue
        expected = _SLACK * pace * group.steps * len(group.settings)
        if time.perf_counter() - began + expected > 60 * minutes:
            print(f"{group.steps} steps of seed {group.seed} would take {expected:.0f} s more: left out", flush=True)
            continue
        options = TrainingOptions(steps=group.steps, batch_size=batch_size, group_size=4, seed=group.seed)
        trained = train_together(group.settings, data.learn, neighbors, options, cuda_graph=cuda_graph)
        pace = trained.seconds / group.steps / len(group.settings)
        records = score_models(trained.models, group.settings, data)
        for record, loss in zip(records, trained.losses, strict=True):
            record |= {"steps": group.steps, "seed": group.seed, "loss": loss}
            record |= {"seconds_together": trained.seconds, "models_together": len(group.settings)}
            record |= {"batch_size": batch_size, "cuda_graph": trained.cuda_graph}
        told["runs"] += records
        told["provenance"].append({"steps": group.steps, **provenance(seed=group.seed)})
        if group.seed == 0:
            _keep(trained.models, group, out)
        write_json(out / RUNS, told)
        seconds = time.perf_counter() - began
        print(
            f"{group.steps} steps, seed {group.seed}, {len(group.settings)} models: {trained.seconds:.1f} s, "
            f"graph {trained.cuda_graph}; {seconds:.0f} s in all",
            flush=True,
        )


@torch.inference_mode()
def score_models(models: StackedModels, settings: Sequence[Setting], data: FrontierData) -> list[dict[str, Any]]:
    """Return the setting and the scores of each model."""

    def logits(inputs: Tensor) -> Tensor:
        return torch.cat([models(part) for part in inputs.split(_ROWS)], dim=1)

    queries, nearest, rows = logits(data.queries), logits(data.nearest), logits(data.rows)
    return [
        {
            **asdict(setting),
            **frontier_scores(queries[number], nearest[number], rows[number], setting.probability, data.base_rows),
        }
        for number, setting in enumerate(settings)
    ]


def _left(group: Group, runs: list[dict[str, Any]]) -> Group:
    """Return the group without the models that there are runs of."""
    done = [setting_of(run) for run in runs if (run["steps"], run["seed"]) == (group.steps, group.seed)]
    return replace(group, settings=tuple(each for each in group.settings if each not in done))


def setting_of(run: dict[str, Any]) -> Setting:
    """Return the setting of a run in runs.json."""
    return Setting(run["probability"], run["pair_average"], run["dissimilar_weight"], run["decorrelation"])


def _told(out: Path, known: Path | None) -> dict[str, Any]:
    try:
        told: dict[str, Any] = json.loads((out / RUNS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        if known is None:
            return {"provenance": [], "runs": []}
        result = json.loads(known.read_text(encoding="utf-8"))
        return {"provenance": result["trained"], "runs": result["runs"]}
    return told


def model_name(setting: Setting) -> str:
    """Return the name of a model, without its steps and seed."""
    apart = f", decorrelated {setting.decorrelation:g}" if setting.decorrelation else ""
    return f"{setting.probability}, {setting.pair_average}{apart}, lambda {setting.dissimilar_weight:g}"


def _keep(models: StackedModels, group: Group, out: Path) -> None:
    """Add the models of table 2's reading, mean per kind, to the file, in half the precision; norms keep theirs."""
    path = out / f"models-{group.steps}-seed{group.seed}.npz"
    arrays: dict[str, NDArray[Any]] = {}
    if path.exists():
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            arrays |= {name: kept[name] for name in kept.files}
    for number, setting in enumerate(group.settings):
        if setting.pair_average == "per_kind" and not setting.decorrelation:
            for name, value in models.arrays(number).items():
                half = value.half() if name.startswith("weights") else value
                arrays[f"{model_name(setting)}/{name}"] = half.numpy()
    if arrays:
        np.savez(path, **arrays)  # type: ignore[arg-type]


class KeptEncoder:
    """A model that `train` kept."""

    n_bits = N_BITS
    radius = RADIUS

    def __init__(self, path: Path, name: str) -> None:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            arrays = {key.split("/")[1]: torch.from_numpy(kept[key]) for key in kept.files if key.split("/")[0] == name}
        columns, layers = len(arrays["mean"]), sum(key.startswith("gains") for key in arrays)
        self.model = HashModel(DenseNet(columns, width=len(arrays["gains.0"]), layers=layers), N_BITS)
        load_arrays(self.model, arrays)
        self.model.eval()

    @torch.inference_mode()
    def logits(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Return the real values before the sign, (rows, n_bits)."""
        rows = torch.from_numpy(np.asarray(inputs))
        return np.concatenate([self.model(part).numpy() for part in rows.split(_ROWS)])


def main() -> None:
    """Parse the command and run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    pack = verbs.add_parser("pack", help="write the vectors that training and scoring need")
    pack.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder of the data")
    pack.add_argument("--file", type=Path, required=True, metavar="FILE", help="file to write")
    training = verbs.add_parser("train", help="train and score all models")
    training.add_argument("--file", type=Path, required=True, metavar="FILE", help="file that pack wrote")
    training.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for models and runs.json")
    training.add_argument("--minutes", type=float, default=5.5, help="time for everything (default: %(default)s)")
    training.add_argument("--steps", type=int, default=None, help="steps of every model, to try the script")
    training.add_argument("--batch-size", type=int, default=1024, help="vectors in a batch (default: %(default)s)")
    training.add_argument("--most", type=int, default=None, help="models of a group, to try the script")
    training.add_argument("--known", type=Path, default=None, metavar="FILE", help="frontier.json of earlier runs")
    training.add_argument("--no-graph", action="store_true", help="run steps one by one, not as a CUDA graph")
    score = verbs.add_parser("score", help="check by the whole base, sum up, plot")
    score.add_argument("--models", type=Path, required=True, metavar="DIR", help="folder that train wrote")
    score.add_argument("--data", type=Path, default=None, metavar="DIR", help="folder of the data; none: no check")
    score.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for frontier.json and .png")
    score.add_argument("--minutes", type=float, default=10.0, help="begin no check later (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.verb == "pack":
        vectors = open_vector_set(arguments.data)
        FrontierData.drawn(vectors, n_queries=N_QUERIES, n_rows=N_ROWS, seed=0).save(arguments.file)
    elif arguments.verb == "train":
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        arguments.out.mkdir(parents=True, exist_ok=True)
        train_all(
            FrontierData.load(arguments.file, device),
            arguments.out,
            minutes=arguments.minutes,
            steps=arguments.steps,
            batch_size=arguments.batch_size,
            most=arguments.most,
            cuda_graph=not arguments.no_graph,
            known=arguments.known,
        )
    else:
        from research.trials.frontier_report import write_report

        write_report(arguments.models, arguments.data, arguments.out, minutes=arguments.minutes)


if __name__ == "__main__":
    main()
