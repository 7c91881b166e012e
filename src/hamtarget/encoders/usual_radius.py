"""The radius at which the codes of an encoder are usually searched."""

from __future__ import annotations

from hamtarget.encoders.protocol import Encoder

# Where copies are usually sought by classic hashes, which were trained for no radius.
_OF_CLASSIC_HASHES = {"phash": 8, "dhash": 7, "pdq": 31, "simhash64": 9}


def usual_radius(encoder: Encoder) -> int | None:
    """Return the radius that an encoder was trained for, or that is usual for a classic hash; None: there is none."""
    trained = encoder.radius
    if trained is None:
        return _OF_CLASSIC_HASHES.get(getattr(encoder, "name", ""))
    # Of several targets, the smallest is the one that a look-up in tables suits best.
    return min(trained) if isinstance(trained, tuple | list) else trained
