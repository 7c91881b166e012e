"""From the `loss` of a `HashEncoder` to a loss that can be trained: a word, a recipe, or a loss object."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal, get_args

from hamtarget.codes import check_n_bits
from hamtarget.errors import InputError
from hamtarget.learn.losses.base import BatchLoss, LabelLoss
from hamtarget.learn.losses.guided import GuidedLoss
from hamtarget.learn.losses.hamming_target import HammingTargetLoss
from hamtarget.learn.losses.keep_neighbors import KeepNeighbors
from hamtarget.learn.losses.probing import ProbingLoss
from hamtarget.learn.losses.proxies import ProxyLoss
from hamtarget.learn.similarity.labels import Labels, MultiLabels
from hamtarget.learn.similarity.relation import Similarity

LossWord = Literal["auto", "radius", "probing", "classes"]

# With labels, and without: bits of a code, and the weight of dissimilar pairs.
_LABELLED_BITS, _BITS = 32, 64
_LABELLED_WEIGHT, _WEIGHT = 30.0, 300.0
# The paper's radius at 64 bits.
_RADIUS = 2
# Radii that train the whole ranking, at lengths where they were chosen by trials; else these shares of the bits.
_RANKING_RADII = {16: (0, 1, 2, 4), 32: (1, 3, 6, 9), 64: (4, 8, 12, 16, 20)}
_RANKING_SHARES = (0.06, 0.12, 0.19, 0.28)
# The weight of dissimilar pairs with several radii, and where there are few bits.
_RANKING_WEIGHT, _RANKING_WEIGHT_OF_FEW_BITS = 200.0, 50.0
_FEW_BITS = 16


@dataclass(frozen=True)
class ClassCodes:
    """Codes for collections in which everything belongs to a class that was learned from.

    A class gets a code of its own, its proxy. The codes of its inputs are learned to be near to it, and `encode` moves
    each code toward the proxy of the class that its logits favour. A search then finds more of a class, above all where
    there are many classes and few bits. An input of another class is moved to one of the known classes: use
    `HammingTargetLoss` for collections that hold such inputs.

    Attributes:
        n_bits: length of a code.
        radius: Hamming distance target, or several targets whose losses are averaged.
        dissimilar_weight: weight of dissimilar pairs, see `HammingTargetLoss`.
        proxy_weight: weight of the loss that draws inputs to the proxy of their class, see `ProxyLoss`.
        guide_bits: shorter codes are learned beside logits for so many bits, which tell the classes apart but are not
            stored, see `GuidedLoss`.
        class_weight: how far a code moves toward the proxy, see `ClassPull`.
        class_scale: how much the nearest class outweighs the others, see `ClassPull`.

    Example:
        >>> import numpy as np
        >>> from hamtarget.learn import HashEncoder, NetworkOptions, TrainingOptions
        >>> random = np.random.default_rng(0)
        >>> labels = np.arange(80) % 4
        >>> vectors = 5 * np.eye(4)[labels] + random.normal(size=(80, 4))
        >>> training = TrainingOptions(steps=20, batch_size=32)
        >>> encoder = HashEncoder(loss=ClassCodes(16), network=NetworkOptions(width=8), training=training)
        >>> encoder.fit(vectors, labels).encode(vectors).shape
        (80, 2)
    """

    n_bits: int = _LABELLED_BITS
    radius: int | tuple[int, ...] = _RADIUS
    dissimilar_weight: float = _LABELLED_WEIGHT
    proxy_weight: float = 10.0
    guide_bits: int = 64
    class_weight: float = 0.5
    class_scale: float = 20.0

    def __post_init__(self) -> None:
        check_n_bits(self.n_bits)
        self._pair_loss(self.n_bits)

    def loss_for(self, n_labels: int, *, seed: int = 0) -> LabelLoss:
        """Return the loss of codes of so many classes."""

        def proxied(n_bits: int) -> ProxyLoss:
            return ProxyLoss(self._pair_loss(n_bits), n_labels, proxy_weight=self.proxy_weight, seed=seed)

        code = proxied(self.n_bits)
        return code if self.n_bits >= self.guide_bits else GuidedLoss(code, proxied(self.guide_bits))

    def _pair_loss(self, n_bits: int) -> HammingTargetLoss:
        """Return the pair loss of codes of this length; its radius is the same share of the bits."""
        radii = (self.radius,) if isinstance(self.radius, int) else self.radius
        scaled = [round(radius * n_bits / self.n_bits) for radius in radii]
        return HammingTargetLoss(n_bits, scaled, dissimilar_weight=self.dissimilar_weight)


@dataclass(frozen=True)
class PartlyLabelled:
    """Codes for inputs of which some have a label, and others may be of classes that nobody has named.

    There are two trainings. The first learns from the labelled inputs. Its codes tell which of the others seem to be of
    labelled classes, which are left out, and which of the rest are alike: two are similar if each is among the nearest
    of the other. The second learns from the labels and from these pairs.

    Attributes:
        n_bits: length of a code.
        radius: Hamming distance target, or several. None: several that train the whole ranking, see `ranking_radii`.
        dissimilar_weight: weight of dissimilar pairs, see `HammingTargetLoss`. None: 200, and 50 up to 16 bits.
        sharpness: sharpness of the soft bits, see `HammingTargetLoss`.
        neighbors: nearest ones of an input among which those like it are. None: the size of the median label.

    Example:
        >>> import numpy as np
        >>> from hamtarget.learn import HashEncoder, NetworkOptions, TrainingOptions
        >>> random = np.random.default_rng(0)
        >>> classes = np.arange(80) % 4
        >>> vectors = 5 * np.eye(4)[classes] + random.normal(size=(80, 4))
        >>> labels = [None if number > 1 else int(number) for number in classes]
        >>> training = TrainingOptions(steps=20, batch_size=32)
        >>> encoder = HashEncoder(loss=PartlyLabelled(16), network=NetworkOptions(width=8), training=training)
        >>> encoder.fit(vectors, labels).encode(vectors).shape
        (80, 2)
    """

    n_bits: int = _LABELLED_BITS
    radius: int | tuple[int, ...] | None = None
    dissimilar_weight: float | None = None
    sharpness: float = 2.0
    neighbors: int | None = None

    def __post_init__(self) -> None:
        check_n_bits(self.n_bits)
        if self.neighbors is not None and self.neighbors < 1:
            raise InputError(f"neighbors is {self.neighbors}; expected 1 or more, or None")
        # The dataclass is frozen; what was left to it is filled in once.
        if self.radius is None:
            object.__setattr__(self, "radius", ranking_radii(self.n_bits))
        if self.dissimilar_weight is None:
            weight = _RANKING_WEIGHT if self.n_bits > _FEW_BITS else _RANKING_WEIGHT_OF_FEW_BITS
            object.__setattr__(self, "dissimilar_weight", weight)
        self.pair_loss()

    def pair_loss(self) -> HammingTargetLoss:
        """Return the loss of both trainings."""
        if self.radius is None or self.dissimilar_weight is None:
            raise TypeError("radius and dissimilar_weight are None; expected what __post_init__ has filled in")
        return HammingTargetLoss(
            self.n_bits, self.radius, dissimilar_weight=self.dissimilar_weight, sharpness=self.sharpness
        )


def ranking_radii(n_bits: int) -> tuple[int, ...]:
    """Return radii that train the whole ranking: up to a bit more than a quarter of the bits."""
    return _RANKING_RADII.get(n_bits) or tuple(round(n_bits * share) for share in _RANKING_SHARES)


Recipe = ClassCodes | PartlyLabelled
"""What says how to learn, and from what a loss is made once the labels are known."""

Loss = str | BatchLoss | Recipe
"""What a `HashEncoder` takes as its loss."""


def loss_by_word(
    word: str,
    similarity: Similarity | None,
    *,
    of_vectors: bool = False,
    n_bits: int | None = None,
    radius: int | tuple[int, ...] | None = None,
    dissimilar_weight: float | None = None,
) -> BatchLoss | Recipe:
    """Return the loss that a word stands for; None for a setting means its default.

    Args:
        word: "radius", "probing", "classes", or "auto": probing if there is neither a similarity nor a radius;
            `PartlyLabelled` if some labels are missing; else radius, and for vectors with labels in a loss that keeps
            neighbourhoods, too.
        similarity: tells which inputs are similar. None: near neighbours are.
        of_vectors: True if inputs are vectors, whose directions tell more than labels do.
        n_bits: length of a code. Default: 32 with labels, else 64.
        radius: Hamming distance target. Default: 2; several if some labels are missing.
        dissimilar_weight: weight of dissimilar pairs. Default: 30 with labels, 200 if some are missing, else 300.

    Raises:
        InputError: there is no such word, or a setting does not belong to this loss.
    """
    if word not in get_args(LossWord):
        raise InputError(f"loss is {word!r}; expected a loss object, or one of {', '.join(get_args(LossWord))}")
    labelled = isinstance(similarity, Labels | MultiLabels)
    n_bits = n_bits or (_LABELLED_BITS if labelled else _BITS)
    if word == "probing" or (word == "auto" and similarity is None and radius is None):
        for name, value in (("radius", radius), ("dissimilar_weight", dissimilar_weight)):
            if value is not None:
                raise InputError(
                    f"{name} is {value}, but codes for probing have none; leave it out, or learn codes for a radius"
                )
        return ProbingLoss(n_bits)
    if word == "auto" and _some_are_missing(similarity):
        return PartlyLabelled(n_bits, radius, dissimilar_weight)
    radius = _RADIUS if radius is None else radius
    if dissimilar_weight is None:
        dissimilar_weight = _LABELLED_WEIGHT if labelled else _WEIGHT
    if word == "classes":
        return ClassCodes(n_bits, radius, dissimilar_weight)
    targets = HammingTargetLoss(n_bits, radius, dissimilar_weight=dissimilar_weight)
    return KeepNeighbors(targets) if word == "auto" and labelled and of_vectors else targets


def chosen_loss(
    loss: Loss, n_bits: int | None, similarity: Similarity | None, *, of_vectors: bool
) -> BatchLoss | Recipe:
    """Return a copy of the loss that `HashEncoder(n_bits, loss)` stands for; training changes it.

    Raises:
        InputError: `loss` is no loss, or contradicts `n_bits` or the similarity.
    """
    if isinstance(loss, str):
        chosen = loss_by_word(loss, similarity, of_vectors=of_vectors, n_bits=n_bits)
    elif isinstance(loss, BatchLoss | Recipe):
        chosen = copy.deepcopy(loss)
    else:
        raise InputError(f"loss is {loss!r}; expected a loss object, or one of {', '.join(get_args(LossWord))}")
    if n_bits not in (None, chosen.n_bits):
        raise InputError(f"n_bits is {n_bits}, but the loss has {chosen.n_bits} bits; pass one of the two")
    return chosen


def _some_are_missing(similarity: Similarity | None) -> bool:
    """Return True if there are items without a label, and two labels or more, one of them of several items."""
    if not isinstance(similarity, Labels) or similarity.n_labels < 2:
        return False
    return bool(similarity.unlabelled.any()) and int(similarity.counts().max()) > 0


def trainable_loss(chosen: BatchLoss | Recipe, similarity: Similarity | None, *, seed: int) -> BatchLoss:
    """Return the loss to train by, which for `ClassCodes` depends on the number of classes.

    Raises:
        InputError: the loss needs one label for each input.
    """
    if isinstance(chosen, BatchLoss):
        return chosen
    if not isinstance(similarity, Labels):
        found = "None" if similarity is None else type(similarity).__name__
        name = type(chosen).__name__
        raise InputError(f"{name} need one label for each input, but similar is {found}; expected labels (rows,)")
    if isinstance(chosen, PartlyLabelled):
        return chosen.pair_loss()
    return chosen.loss_for(similarity.n_labels, seed=seed)
