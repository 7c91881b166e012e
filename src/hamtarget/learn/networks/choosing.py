"""Pretrained networks by one text: a name, a file, or both."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from hamtarget.learn.networks.backbones import PRETRAINED, RESNET50_CAFFE, SHIPPED, backbone
from hamtarget.learn.networks.frozen import set_picture_shape
from hamtarget.learn.networks.resnet50 import ResNet50

# Side of the pictures that most networks of timm and torchvision were trained on.
_SIDE = 224
_ENDINGS = (".npz", ".safetensors")


def chosen_backbone(choice: str | None, *, size: int | None = None, trained: bool = False) -> nn.Module:
    """Return a pretrained network of pictures; all of its weights are frozen unless it is to be trained.

    Args:
        choice: a name that `backbone` knows, whose weights are fetched if they do not come with the package; NAME=FILE
            with a file of weights; or a FILE of ResNet-50, npz or safetensors. None: the network of the package.
        size: side of the pictures in pixels. None: that of the network; 224 for networks of timm and torchvision.
        trained: True to train the network, too.

    Raises:
        InputError: there is no network of this name.
        FileError: there is no such file, or the weights cannot be fetched.
        CorruptFileError: the file holds no weights of the network.
        MissingExtraError: the network's library is not installed.
    """
    name, _, file = (choice or SHIPPED).partition("=")
    if not file and (name.endswith(_ENDINGS) or Path(name).is_file()):
        name, file = RESNET50_CAFFE, name
    if name in (SHIPPED, RESNET50_CAFFE):
        network = backbone(name, file or None)
    else:
        network = backbone(name, file or PRETRAINED, size=size or _SIDE)
    if size is not None and isinstance(network, ResNet50):
        # It takes any size: nothing has to be resized twice.
        set_picture_shape(network, (3, size, size))
    return network.requires_grad_(trained)
