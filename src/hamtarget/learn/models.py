"""Open models that come with the package, so that an index can be tried without training."""

from __future__ import annotations

from hamtarget.errors import InputError
from hamtarget.learn.encoder import HashEncoder
from hamtarget.learn.networks.backbones import shipped_folder


def shipped_encoder(name: str, *, device: str = "auto") -> HashEncoder:
    """Return an encoder that comes with the package.

    Args:
        name: "sift-64": 64-bit codes of SIFT descriptors, 128 numbers from 0 to 255 each, for search with a
            budget.
        device: "cpu", "cuda", or "auto": a GPU if there is one.

    Raises:
        InputError: there is no encoder of this name; the error lists the names.
        MissingExtraError: the package `hamtarget-models` is not installed.

    Example:
        >>> shipped_encoder("sift-64", device="cpu").n_bits
        64
    """
    folder = shipped_folder()
    names = sorted(path.parent.name for path in folder.glob("*/model.safetensors"))
    if name not in names:
        raise InputError(f"name is {name!r}; expected one of {', '.join(names)}")
    return HashEncoder.load(folder / name, device=device)
