"""Figure 2: the Hamming distance of two random vectors at a fixed angle, beside the binomial approximation.

Two uniformly random unit vectors of `n_bits` dimensions, conditioned on the angle theta between them, differ in each
sign with probability theta / pi, so the mean of their Hamming distance is exactly that of binomial(n_bits, theta / pi).
The loss of the paper (2.1.2) further treats the bits as independent, and the figure shows how far this is true. They
are not quite: the coordinates of two unit vectors at a fixed angle constrain each other, which makes the distance vary
less. With p = theta / pi, its variance tends to n_bits (p (1 - p) - sin(theta)^2 / pi^2), against the binomial's
n_bits p (1 - p): at 15 degrees 8.9% less, a share that does not vanish as n_bits grows.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import check_n_bits
from hamtarget.errors import HamtargetError, InputError, MissingExtraError
from hamtarget.evaluation.provenance import command_line, provenance, write_json
from hamtarget.progress import Progress

N_BITS = (16, 64)
ANGLE_DEGREES = 15.0
TRIALS = 1_000_000

# Cells of vectors drawn at a time: the working memory stays near 10 MB. Another number gives other vectors for a seed.
_CELLS_AT_A_TIME = 1 << 18
# Distances rarer than this are not drawn.
_SHOWN_PROBABILITY = 5e-4

_EXAMPLE = "example:\n  python -m research.paper.figure2 --out results/figure2 --trials 1000000 --seed 0"


@dataclass(frozen=True, eq=False)
class DistanceDistribution:
    """Distribution of the Hamming distance at a fixed angle: as drawn, and by the binomial.

    `empirical` and `binomial` hold the probability of each distance, (n_bits + 1,). `total_variation` is half the sum
    of their absolute differences: the largest error of the probability of any set of distances.
    """

    n_bits: int
    angle_degrees: float
    trials: int
    seed: int
    empirical: NDArray[np.float64]
    binomial: NDArray[np.float64]
    total_variation: float
    empirical_mean: float
    empirical_variance: float
    binomial_mean: float
    binomial_variance: float


def distance_distribution(
    n_bits: int,
    *,
    angle_degrees: float = ANGLE_DEGREES,
    trials: int = TRIALS,
    seed: int = 0,
    progress: Progress | None = None,
) -> DistanceDistribution:
    """Draw the distribution of the Hamming distance between the signs of two random unit vectors.

    Args:
        n_bits: dimensions of the vectors.
        angle_degrees: the angle between the two, above 0 and below 180.
        trials: pairs to draw.
        seed: the same seed gives the same pairs.
        progress: called with the number of pairs drawn and of all pairs.

    Raises:
        InputError: an argument is out of range.
    """
    n_bits = check_n_bits(n_bits)
    if not 0 < angle_degrees < 180:
        raise InputError(f"angle_degrees is {angle_degrees}; expected above 0 and below 180")
    if trials < 1:
        raise InputError(f"trials is {trials}; expected at least 1")
    if seed < 0:
        raise InputError(f"seed is {seed}; expected 0 or more")
    # With n_bits in the seed, the panels of the figure are drawn independently.
    random = np.random.default_rng([seed, n_bits])
    counts = np.zeros(n_bits + 1, dtype=np.int64)
    rows = _CELLS_AT_A_TIME // n_bits
    for start in range(0, trials, rows):
        distances = _random_distances(random, min(rows, trials - start), n_bits, math.radians(angle_degrees))
        counts += np.bincount(distances, minlength=n_bits + 1)
        if progress is not None:
            progress(min(start + rows, trials), trials)
    empirical = counts / trials
    binomial = binomial_pmf(n_bits, angle_degrees / 180)
    empirical_mean, empirical_variance = _mean_and_variance(empirical)
    binomial_mean, binomial_variance = _mean_and_variance(binomial)
    return DistanceDistribution(
        n_bits=n_bits,
        angle_degrees=angle_degrees,
        trials=trials,
        seed=seed,
        empirical=empirical,
        binomial=binomial,
        total_variation=float(np.abs(empirical - binomial).sum() / 2),
        empirical_mean=empirical_mean,
        empirical_variance=empirical_variance,
        binomial_mean=binomial_mean,
        binomial_variance=binomial_variance,
    )


def binomial_pmf(n_bits: int, probability: float) -> NDArray[np.float64]:
    """Return the probability of each number of differing bits, 0 to `n_bits`, if bits differ independently."""
    # In logarithms, because C(n, k) overflows and p^k underflows long before their product does.
    return np.array(
        [
            math.exp(
                math.lgamma(n_bits + 1)
                - math.lgamma(k + 1)
                - math.lgamma(n_bits - k + 1)
                + k * math.log(probability)
                + (n_bits - k) * math.log1p(-probability)
            )
            for k in range(n_bits + 1)
        ]
    )


def draw(distributions: Sequence[DistanceDistribution], path: Path) -> None:
    """Draw the figure to `path` as PNG, one panel for each distribution.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        # pyplot keeps global state and may look for a display.
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib is not installed; to draw: pip install 'hamtarget[plot]'") from error
    figure = Figure(figsize=(4.8 * len(distributions), 4.0), layout="constrained")
    panels = figure.subplots(1, len(distributions), squeeze=False)[0]
    for panel, distribution in zip(panels, distributions, strict=True):
        shown = np.flatnonzero(np.maximum(distribution.empirical, distribution.binomial) >= _SHOWN_PROBABILITY)
        distances = np.arange(shown[0], shown[-1] + 1)
        bars = panel.bar(distances, distribution.empirical[distances], width=0.82, color="#9ec1e3")
        (line,) = panel.plot(
            distances, distribution.binomial[distances], color="#b3261e", linewidth=1.2, marker="o", markersize=4
        )
        bars.set_label(f"empirical, {distribution.trials:,} trials")
        line.set_label(r"binomial$(n, \theta/\pi)$")
        panel.set_title(rf"$n = {distribution.n_bits}$, $\theta = {distribution.angle_degrees:g}\degree$")
        panel.annotate(
            f"mean {distribution.empirical_mean:.3f} (binomial {distribution.binomial_mean:.3f})\n"
            f"variance {distribution.empirical_variance:.3f} (binomial {distribution.binomial_variance:.3f})\n"
            f"total variation {distribution.total_variation:.4f}",
            (0.99, 0.98),
            xycoords="axes fraction",
            ha="right",
            va="top",
            fontsize=8.5,
            color="#444444",
        )
        # Room for the text above the columns, wherever the distribution has its peak.
        panel.set_ylim(0, 1.3 * max(distribution.empirical.max(), distribution.binomial.max()))
        panel.set_xlabel("Hamming distance")
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("probability")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path, dpi=160)


def table(distributions: Sequence[DistanceDistribution]) -> str:
    """Return mean, variance and total variation of each distribution as lines of text."""
    lines = ["bits   mean (binomial)      variance (binomial)   total variation"]
    lines += [
        f"{each.n_bits:4d}   {each.empirical_mean:7.4f} ({each.binomial_mean:.4f})     "
        f"{each.empirical_variance:7.4f} ({each.binomial_variance:.4f})      {each.total_variation:.4f}"
        for each in distributions
    ]
    return "\n".join(lines) + "\n"


def write_figure2(
    folder: Path, *, trials: int = TRIALS, seed: int = 0, command: str | None = None, progress: Progress | None = None
) -> list[DistanceDistribution]:
    """Compute the distributions, write figure2.json and figure2.png to `folder`, and return the distributions.

    Args:
        folder: created if it does not exist.
        trials: pairs to draw for each number of bits.
        seed: the same seed gives the same figure.
        command: what was typed, for the provenance; by default this process's own arguments.
        progress: called with the number of pairs drawn and of all pairs.

    Raises:
        InputError: an argument is out of range.
        MissingExtraError: matplotlib is not installed; the JSON file is written nevertheless.
    """
    distributions = []
    for place, n_bits in enumerate(N_BITS):

        def tell(done: int, total: int, *, before: int = place) -> None:
            if progress is not None:
                progress(before * total + done, len(N_BITS) * total)

        distributions.append(distance_distribution(n_bits, trials=trials, seed=seed, progress=tell))
    write_json(
        folder / "figure2.json",
        {
            "distributions": [asdict(distribution) for distribution in distributions],
            "provenance": provenance(seed=seed, command=command),
        },
    )
    draw(distributions, folder / "figure2.png")
    return distributions


def main(arguments: Sequence[str] | None = None) -> None:
    """Write figure2.json and figure2.png to the folder `--out`, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m research.paper.figure2",
        description="The paper's figure 2: Hamming distance of two random vectors at 15 degrees, against the binomial.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for figure2.json and .png")
    parser.add_argument("--trials", type=int, default=TRIALS, metavar="N", help=f"pairs to draw (default {TRIALS:,})")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the random vectors (default 0)")
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(arguments)
    try:
        command = command_line(parser.prog, arguments)
        sys.stdout.write(table(write_figure2(options.out, trials=options.trials, seed=options.seed, command=command)))
    except HamtargetError as error:
        parser.error(str(error))


def _random_distances(random: np.random.Generator, rows: int, n_bits: int, angle: float) -> NDArray[np.int64]:
    """Return Hamming distances between the signs of `rows` pairs of random unit vectors, `angle` radians apart."""
    first = _unit(random.standard_normal((rows, n_bits), dtype=np.float32))
    across = random.standard_normal((rows, n_bits), dtype=np.float32)
    across -= np.einsum("ij,ij->i", first, across)[:, None] * first
    second = math.cos(angle) * first + math.sin(angle) * _unit(across)
    distances: NDArray[np.int64] = np.count_nonzero((first > 0) != (second > 0), axis=1)
    return distances


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths: NDArray[np.float32] = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    return vectors / lengths[:, None]


def _mean_and_variance(probabilities: NDArray[np.float64]) -> tuple[float, float]:
    distances = np.arange(len(probabilities))
    mean = float(distances @ probabilities)
    return mean, float((distances - mean) ** 2 @ probabilities)


if __name__ == "__main__":
    main()
