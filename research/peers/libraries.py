"""All libraries of the benchmark of nearest neighbours."""

from __future__ import annotations

from hamtarget.errors import InputError
from research.peers.faiss_library import Faiss
from research.peers.graph_libraries import Hnswlib, Usearch, Voyager
from research.peers.hamtarget_library import Hamtarget
from research.peers.library import Library
from research.peers.rabitq_library import Rabitq
from research.peers.scann_library import Scann
from research.peers.svs_library import Svs

OURS = Hamtarget.name

LIBRARIES: dict[str, Library] = {
    library.name: library
    for library in (Hamtarget(), Faiss(), Scann(), Hnswlib(), Usearch(), Voyager(), Svs(), Rabitq())
}
"""Every library by its name in tables."""


def library_of(name: str) -> Library:
    """Return a library by name, in any case.

    Raises:
        InputError: there is none of this name.
    """
    for library in LIBRARIES.values():
        if library.name.lower() == name.lower():
            return library
    raise InputError(f"library is {name!r}; expected one of {', '.join(LIBRARIES)}")
