"""Advice on the radius that separates copies from coincidences, for codes at hand and a number of rows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget.codes import Codes, check_codes, check_n_bits, distances
from hamtarget.errors import DtypeError, InputError, ShapeError
from hamtarget.evaluation.distance_tail import FEWEST_CODES, Counts, Shares, assumed_tail, fit_tail, pair_distances
from hamtarget.progress import Progress

# By default at most one wrong pair is expected for so many rows: few among the pairs that a person looks through.
ROWS_PER_FALSE_PAIR = 1000
# In small collections that would allow large radii, about which few codes say little.
_LARGEST_SHARE = 1e-5
# Words of 64 bits that are compared: about two seconds on one core.
_WORDS = 4e8
# With fewer codes, what the encoder recorded about itself counts, too.
_ENOUGH_CODES = 1000
# Codes that differ in this share of their bits are of different things, if there are few of them ...
_DIFFERENT = 1 / 8
# ... and of none if each has more copies than this. Shorter codes are too much alike to tell.
_COPIES_OF_EACH = 30
_FEWEST_BITS = 32
# A larger radius that finds so few more copies is not worth its false pairs.
_RECALL_GAIN = 0.002
# The table ends where one pair in so many is within the radius.
_LAST_SHARE = 1e-2
# Equal codes are told of if so many rows share one.
_HOT_ROWS = 10


@dataclass(frozen=True)
class RadiusRow:
    """Expectations for one radius."""

    radius: int
    expected_false_pairs: float
    """Pairs of different things within the radius, among `n_rows` rows."""
    pairs_found: float
    """Pairs within the radius among the codes that were given; an estimate if only a sample of them was compared."""
    recall: float | None
    """Share of known copies within the radius; None if none are known."""


@dataclass(frozen=True)
class RadiusAdvice:
    """A radius, the reason for it, and what to expect of others."""

    radius: int
    """The recommended radius."""
    reason: str
    """Why this radius, in a few sentences with numbers."""
    table: tuple[RadiusRow, ...]
    """Expectations by radius, from 0 on."""
    n_rows: int
    """Rows that the expectations are for."""
    n_bits: int
    n_codes: int
    """Codes that were given."""
    compared: int
    """Codes of which all pairs were compared."""
    counted_from: int | None
    """Smallest radius whose false pairs were counted; below, they are extrapolated. None if all are assumed."""
    most_equal: int
    """Compared rows that have the most frequent code, such as that of blank pictures."""

    def __repr__(self) -> str:
        return f"RadiusAdvice(radius={self.radius}, n_rows={self.n_rows}, reason={self.reason!r})"


def advise_radius(
    codes: ArrayLike,
    *,
    n_rows: int | None = None,
    encoder: object | None = None,
    copy_distances: ArrayLike | None = None,
    false_pairs: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> RadiusAdvice:
    """Advise on a radius: the largest at which few pairs of different things are expected within it.

    All pairs of a sample of the codes are compared; the share of pairs too rare to be counted is extrapolated (see
    `hamtarget.evaluation.distance_tail`). Copies among the codes do not count as false pairs.

    Example:
        >>> codes = np.random.default_rng(0).integers(0, 256, (2000, 8), dtype=np.uint8)
        >>> advise_radius(codes, n_rows=100_000).radius
        9

    Args:
        codes: packed codes, (rows, n_bits / 8); a random sample if there are more rows than these.
        n_rows: rows that will be searched; by default as many as there are codes.
        encoder: what made the codes. If it has recorded its own shares and recall by radius, recall is taken from
            there unless `copy_distances` are given, and shares are considered if there are few codes.
        copy_distances: Hamming distances of known copies, such as `label_distances` returns; recall is measured on
            them.
        false_pairs: how many false pairs to allow among `n_rows` rows; by default one for 1,000 rows, which suits a
            person who looks through the groups. For deletion without a look, pass 0.01 or less.
        seed: the same seed compares the same sample.
        progress: called with the share of comparisons done.

    Raises:
        ShapeError: the codes are not (rows, bytes).
        DtypeError: the codes are not uint8, or `n_rows` is not an integer.
        InputError: `n_rows` is below 1, `false_pairs` is not above 0, or a distance is not from 0 to n_bits.
    """
    array = np.asarray(codes)
    if array.ndim != 2:
        raise ShapeError(f"codes have {array.ndim} dimensions; expected 2: (rows, bytes)")
    n_bits = check_n_bits(8 * array.shape[1])
    checked = check_codes(array, n_bits)
    rows = len(checked) if n_rows is None else _check_n_rows(n_rows)
    if false_pairs is not None and not (np.isfinite(false_pairs) and false_pairs > 0):
        raise InputError(f"false_pairs is {false_pairs}; expected a number above 0, such as 0.01")
    recall = _recall(n_bits, copy_distances, encoder)

    sample = _sample(checked, n_bits, seed)
    evidence = _compare(sample, n_bits, encoder, progress)
    shares = evidence.shares
    found = np.cumsum(evidence.pairs) * _pairs(len(checked)) / max(1.0, _pairs(len(sample)))
    expected = shares * _pairs(rows)

    allowed = rows / ROWS_PER_FALSE_PAIR if false_pairs is None else float(false_pairs)
    share = allowed / _pairs(rows) if rows > 1 else _LARGEST_SHARE
    if false_pairs is None:
        share = min(share, _LARGEST_SHARE)
    bound = radius = _largest(shares[:n_bits], share)
    if recall is not None:
        radius = int(np.argmax(recall[: radius + 1] >= recall[radius] - _RECALL_GAIN))
    last = max(int(np.searchsorted(shares, _LAST_SHARE)), radius + 1)
    table = tuple(
        RadiusRow(each, float(expected[each]), float(found[each]), None if recall is None else float(recall[each]))
        for each in range(min(last, n_bits - 1) + 1)
    )
    whose = "of known copies" if copy_distances is not None else "of the copies that the encoder was measured on"
    reason = _reason(table, evidence, radius, bound, rows=rows, compared=len(sample), allowed=allowed, whose=whose)
    counted_from = evidence.counted_from
    return RadiusAdvice(
        radius, reason, table, rows, n_bits, len(checked), len(sample), counted_from, evidence.most_equal
    )


def label_distances(
    codes: ArrayLike, labels: Sequence[Hashable | None], *, most: int = 200_000, seed: int = 0
) -> NDArray[np.int64]:
    """Return the distances of pairs of codes that have the same label: known copies of each other.

    Args:
        codes: packed codes, (rows, n_bits / 8).
        labels: one for each code; a code whose label is None is no known copy of anything.
        most: pairs that are taken at most; of large groups, some pairs are drawn.
        seed: the same seed draws the same pairs.

    Raises:
        ShapeError: there is not one label for each code.
    """
    array = np.asarray(codes)
    if array.ndim != 2 or len(labels) != len(array):
        raise ShapeError(
            f"codes have shape {array.shape} and there are {len(labels)} labels; expected one for each row"
        )
    checked = check_codes(array, check_n_bits(8 * array.shape[1]))
    groups: dict[Hashable, list[int]] = {}
    for row, label in enumerate(labels):
        if label is not None:
            groups.setdefault(label, []).append(row)
    members = [np.array(rows) for rows in groups.values() if len(rows) > 1]
    rng = np.random.default_rng(seed)
    left, right = [], []
    wanted = sum(_pairs(len(rows)) for rows in members)
    for rows in members:
        a, b = np.triu_indices(len(rows), 1) if len(rows) <= 200 else rng.integers(0, len(rows), (2, 20_000))
        kept = a != b
        if wanted > most:
            # Every group gives some of its pairs.
            kept &= rng.random(len(a)) < max(most / wanted, 1 / len(a))
        left.append(rows[a[kept]])
        right.append(rows[b[kept]])
    if not left:
        return np.zeros(0, dtype=np.int64)
    differing = checked[np.concatenate(left)] ^ checked[np.concatenate(right)]
    return np.asarray(np.bitwise_count(differing).sum(axis=1, dtype=np.int64))


def _sample(codes: Codes, n_bits: int, seed: int) -> Codes:
    """Return all codes, or so many random ones that their pairs can be compared quickly."""
    words = -(-n_bits // 64) + 2
    most = int(np.sqrt(2 * _WORDS / words))
    if len(codes) <= most:
        return codes
    return codes[np.sort(np.random.default_rng(seed).choice(len(codes), most, replace=False))]


@dataclass(frozen=True, eq=False)
class _Evidence:
    """Results of comparing the codes of a sample."""

    pairs: Counts
    """Pairs at each distance, copies among them."""
    shares: Shares
    """Share of false pairs within each radius."""
    counted_from: int | None
    source: str
    """Where the shares come from, if not only from these codes."""
    things: int
    """Different things among the codes; not counted beyond the number that is enough."""
    most_equal: int
    is_hot: bool
    """True if so many rows have one code that it is no coincidence."""


def _compare(sample: Codes, n_bits: int, encoder: object | None, progress: Progress | None) -> _Evidence:
    pairs = pair_distances(sample, progress=progress)
    keys = np.ascontiguousarray(sample).view(f"V{sample.shape[1]}").ravel()
    _, first, times = np.unique(keys, return_index=True, return_counts=True)
    most_equal = int(times.max()) if len(times) else 0
    recorded = _recorded_shares(encoder, n_bits)
    things = _different_things(sample, n_bits)
    if len(first) < 2 or (things < FEWEST_CODES and len(sample) <= _COPIES_OF_EACH * things):
        shares = assumed_tail(n_bits) if recorded is None else recorded
        source = (
            "false pairs are estimated as if half of the bits were free"
            if recorded is None
            else "false pairs are those of the encoder's record"
        )
        return _Evidence(pairs, shares, None, source, things, most_equal, most_equal >= _HOT_ROWS)
    tail = fit_tail(pairs, len(sample))
    is_hot = bool(most_equal >= _HOT_ROWS + 5 * len(sample) * tail.shares[0])
    if is_hot:
        # Rows of one code, such as blank pictures, make up many pairs with all others. Each code counts once instead.
        tail = fit_tail(pair_distances(sample[np.sort(first)]), len(first))
    if recorded is None or len(first) >= _ENOUGH_CODES:
        return _Evidence(pairs, tail.shares, tail.counted_from, "", things, most_equal, is_hot)
    source = "if the encoder's record expects more false pairs, its figure is taken"
    return _Evidence(
        pairs, np.maximum(tail.shares, recorded), tail.counted_from, source, len(first), most_equal, is_hot
    )


def _different_things(sample: Codes, n_bits: int) -> int:
    """Return how many codes differ from each other in an eighth of their bits, or as many as are enough."""
    if n_bits < _FEWEST_BITS:
        return min(len(sample), FEWEST_CODES)
    things = 0
    while len(sample) and things < FEWEST_CODES:
        things += 1
        sample = sample[distances(sample[0], sample, n_bits)[0] > _DIFFERENT * n_bits]
    return things


def _recall(n_bits: int, copy_distances: ArrayLike | None, encoder: object | None) -> Shares | None:
    """Return the share of copies within each radius, if it is known."""
    if copy_distances is None:
        return _recorded_curve(encoder, "recall_within", n_bits)
    known = np.asarray(copy_distances)
    if known.size == 0:
        return None
    if known.dtype.kind not in "iu":
        raise DtypeError(f"copy_distances have dtype {known.dtype}; expected integers")
    if known.min() < 0 or known.max() > n_bits:
        raise InputError(f"copy_distances are {known.min()} to {known.max()}; expected 0 to {n_bits}")
    counts = np.bincount(known.ravel().astype(np.int64), minlength=n_bits + 1)
    return np.asarray(np.cumsum(counts) / known.size)


def _recorded_shares(encoder: object | None, n_bits: int) -> Shares | None:
    """Return the shares that an encoder has recorded; below the smallest that it met, each bit less halves them."""
    curve = _recorded_curve(encoder, "share_within", n_bits)
    if curve is None or not curve.any():
        return None
    first = int(np.flatnonzero(curve)[0])
    curve[:first] = curve[first] * 0.5 ** np.arange(first, 0, -1)
    return curve


def _recorded_curve(encoder: object | None, name: str, n_bits: int) -> Shares | None:
    """Return what an encoder's record says for each radius; None if it says nothing that can be used.

    The record is the encoder's attribute `recorded`: a mapping whose entry `name` has a number for each radius. A
    mapping of such lists, one for each kind of alteration, is averaged.
    """
    recorded = getattr(encoder, "recorded", None)
    value: Any = recorded.get(name) if isinstance(recorded, Mapping) else None
    if isinstance(value, Mapping) and value:
        curves = [np.asarray(each, dtype=np.float64) for each in value.values()]
        if len({curve.shape for curve in curves}) > 1:
            return None
        value = np.mean(curves, axis=0)
    if not isinstance(value, list | tuple | np.ndarray) or len(value) == 0:
        return None
    curve = np.asarray(value, dtype=np.float64)
    if curve.ndim != 1 or not np.isfinite(curve).all():
        return None
    # A record may end where everything is found, or where nobody searches.
    filled = np.concatenate([curve[: n_bits + 1], np.full(max(0, n_bits + 1 - len(curve)), curve[-1])])
    return np.clip(np.maximum.accumulate(filled), 0.0, 1.0)


def _check_n_rows(n_rows: int) -> int:
    if not isinstance(n_rows, int | np.integer) or isinstance(n_rows, bool):
        raise DtypeError(f"n_rows is {n_rows!r}; expected an integer")
    if n_rows < 1:
        raise InputError(f"n_rows is {n_rows}; expected 1 or more: the number of rows that will be searched")
    return int(n_rows)


def _pairs(rows: int) -> float:
    return rows * (rows - 1) / 2


def _largest(shares: Shares, most: float) -> int:
    """Return the largest radius with a share of at most `most`, 0 if there is none; the one below, if it is as good."""
    radius = max(0, int(np.searchsorted(shares, most, side="right")) - 1)
    # Codes that all have as many ones have even distances only: an odd radius finds nothing that a smaller one misses.
    return radius - 1 if radius > 0 and shares[radius - 1] > shares[radius] * (1 - 1e-9) else radius


def _reason(
    table: tuple[RadiusRow, ...],
    evidence: _Evidence,
    radius: int,
    bound: int,
    *,
    rows: int,
    compared: int,
    allowed: float,
    whose: str,
) -> str:
    here, expected = table[radius], [row.expected_false_pairs for row in table]
    larger = next((row for row in table[bound:] if row.expected_false_pairs > expected[bound]), None)
    among = f"{rows:,} row{'s' if rows != 1 else ''}"
    first = f"Within radius {radius}, about {figure(here.expected_false_pairs)} false pairs are expected among {among}"
    if here.expected_false_pairs > allowed:
        told = [f"{first}, more than the {figure(allowed)} allowed: these codes do not tell so many things apart."]
    elif radius < bound:
        told = [f"{first}; {bound} is allowed, too, but finds hardly more copies."]
    elif larger is None:
        told = [f"{first}."]
    elif larger.expected_false_pairs > allowed:
        there = figure(larger.expected_false_pairs)
        told = [f"{first}; within {larger.radius} there are {there}, more than the {figure(allowed)} allowed."]
    else:
        told = [f"{first}; in a small collection, too, more than one false pair in 100,000 is not advised."]
    if here.recall is not None:
        told.append(f"{here.recall:.1%} {whose} are found.")
    if evidence.source:
        few = f"Codes of {evidence.things} different thing{'s' if evidence.things != 1 else ''}"
        who = few if evidence.things < FEWEST_CODES else f"{compared:,} codes"
        told.append(f"{who} say little: {evidence.source}.")
    elif evidence.counted_from is not None and radius < evidence.counted_from:
        told.append(f"False pairs are counted from radius {evidence.counted_from} on, and extrapolated below.")
    if evidence.is_hot:
        told.append(
            f"{evidence.most_equal:,} of {compared:,} rows have one code: look whether they are copies, or have "
            "nothing to tell them apart by, like blank pictures."
        )
    return " ".join(told)


def figure(value: float) -> str:
    """Return a number of pairs for people to read."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2g}" if value >= 0.001 or value == 0 else f"{value:.0e}"
