"""FrozenBackbone: a pretrained network that stays as it is, and the layers on its features that are learned."""

from __future__ import annotations

import hashlib
from typing import Self

import torch
from torch import Tensor, nn

from hamtarget.errors import InputError
from hamtarget.learn.networks.standardize import Standardize

# Pictures that a network is asked about, to tell it from one that has the same weights and does something else.
_ASKED = 2


class FeatureLayers(nn.Module):
    """Layers between the features of a frozen network and a hash head: one hidden layer, beside the features.

    Args:
        in_features: columns of the features.
        width: units of the hidden layer.
        dropout: share of the features that each row of a training batch is learned without. It keeps codes from
            depending on few features, and so from failing on classes that were not learned.
    """

    def __init__(self, in_features: int, *, width: int = 256, dropout: float = 0.5) -> None:
        super().__init__()
        self.out_features = in_features + width
        self.standardize = Standardize((in_features,))
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Sequential(
            nn.Linear(in_features, width, bias=False), nn.BatchNorm1d(width), nn.ReLU(inplace=True)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Return the standardised features and the units of the hidden layer side by side, (rows, out_features)."""
        kept = self.dropout(self.standardize(features))
        return torch.cat([kept, self.hidden(kept)], dim=1)

    def settings(self) -> dict[str, float]:
        """Return the arguments by name, without the number of features."""
        return {"width": self.out_features - self.standardize.out_features, "dropout": self.dropout.p}


class FrozenBackbone(nn.Module):
    """A network that is not trained, with layers on its features that are.

    Args:
        network: turns inputs into features. It stays in evaluation mode.
        layers: layers on the features, which are learned.
    """

    def __init__(self, network: nn.Module, layers: FeatureLayers) -> None:
        super().__init__()
        self.network = network.requires_grad_(False)
        self.layers = layers
        self.out_features = layers.out_features

    def train(self, mode: bool = True) -> Self:
        """Set the mode of the layers; batch norms of the network keep their statistics."""
        super().train(mode)
        self.network.eval()
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """Return features, (rows, out_features)."""
        features: Tensor = self.layers(features_of(self.network, inputs))
        return features


def is_frozen(network: object) -> bool:
    """Return True if a network has weights, and none of them is to be trained."""
    if not isinstance(network, nn.Module):
        return False
    parameters = list(network.parameters())
    return bool(parameters) and not any(parameter.requires_grad for parameter in parameters)


def features_of(network: nn.Module, inputs: Tensor) -> Tensor:
    """Return the features of inputs, (rows, columns); maps are averaged."""
    features: Tensor = network(inputs)
    return features.flatten(2).mean(dim=2) if features.ndim > 2 else features


def picture_shape(network: nn.Module) -> tuple[int, ...]:
    """Return the shape of the pictures that a network takes, (channels, height, width).

    Raises:
        InputError: the network does not tell.
    """
    shape = getattr(network, "input_shape", None)
    if not isinstance(shape, tuple) or len(shape) not in (2, 3):
        raise InputError(
            f"{type(network).__name__} does not tell the size of its pictures (no input_shape); expected a network "
            "such as backbone(network, size=224)"
        )
    return shape


def set_picture_shape(network: nn.Module, shape: tuple[int, ...]) -> None:
    """Let a network that takes pictures of any size have them in this one."""
    network.input_shape = shape  # type: ignore[assignment]


@torch.inference_mode()
def feature_count(network: nn.Module, shape: tuple[int, ...]) -> int:
    """Return the number of features that a network on the CPU gives of a picture of this shape."""
    return int(features_of(network.eval(), torch.zeros(1, *shape)).shape[1])


def weights_digest(network: nn.Module) -> str:
    """Return the SHA-256 of a network's weights and their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


@torch.inference_mode()
def fingerprint(network: nn.Module) -> str:
    """Return a text that two networks share only if they give the same features of pictures.

    It depends on weights, layers, the size of pictures, and what the network, on the CPU, says of two of them.
    """
    shape = picture_shape(network)
    asked = torch.randint(0, 256, (_ASKED, *shape), generator=torch.Generator().manual_seed(0)).float()
    # Sums differ in their last digits from machine to machine.
    answer = f"{float(features_of(network.eval(), asked).double().norm()):.3g}"
    whole = "\0".join([weights_digest(network), repr(network), str(shape), answer])
    return hashlib.sha256(whole.encode()).hexdigest()
