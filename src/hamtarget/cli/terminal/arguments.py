"""Options that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

# Text, not a Path: "./phash" is a folder, "phash" is a picture hash.
Model = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="Folder of a trained model, an ONNX file, or a picture hash such as phash."),
]
# Text, not a Path: a path would make "postgresql:/" of "postgresql://".
StorePlace = Annotated[str, typer.Argument(metavar="STORE", help="Folder of a store, or its address postgresql://...")]
Source = Annotated[
    str,
    typer.Argument(
        metavar="INPUT",
        help="Folder of images, image, CSV (path,label), vectors (npy, npz, fvecs, bvecs, hdf5), texts (CSV, TSV, "
        "JSONL, TXT, also .gz), or - for lines.",
    ),
]
TextColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Column with the texts (CSV, TSV, JSONL). Default: text, or the only column."),
]
IdColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="Column with the ids of texts. Default: id, or the line's number.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON instead of text.")]
Key = Annotated[str | None, typer.Option(metavar="NAME", help="Name of the array in an npz or HDF5 file.")]
Seed = Annotated[int, typer.Option(min=0, metavar="S", help="Seed of everything that is random.")]
Workers = Annotated[int, typer.Option(min=0, metavar="N", help="Processes that read images; 0: this one.")]
Batch = Annotated[int, typer.Option(min=1, metavar="N", help="Inputs encoded at a time.")]
Threads = Annotated[int, typer.Option(min=1, metavar="N", help="Threads that search.")]
