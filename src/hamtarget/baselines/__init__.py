"""Other methods that turn inputs into codes, all behind `hamtarget.protocol.Encoder`."""

from hamtarget.baselines.itq import ITQ
from hamtarget.baselines.lsh import LSH

__all__ = ["ITQ", "LSH"]
