"""Measure the tables and figures of the paper anew: `python -m research`.

Each command writes its results (JSON with provenance, and a picture) to the folder `--out`. What it measures lives in
`research.paper`, which is imported when the command runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hamtarget.cli.terminal.bars import named_progress_on_stderr, progress_on_stderr
from hamtarget.cli.terminal.failures import CommandGroup

app = typer.Typer(
    cls=CommandGroup,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Measure the tables and figures of the paper anew. Benchmarks and trials are modules of their own: see "
    "research/README.md.",
)

Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results; created if it does not exist.")]
Seed = Annotated[int, typer.Option(min=0, metavar="S", help="Seed of all random choices.")]
Data = Annotated[
    Path,
    typer.Option(
        metavar="DIR", help="Vectors: a folder with base, learn and query, or an HDF5 file of ann-benchmarks."
    ),
]
Models = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of trained models; by default inside --out.")]
Steps = Annotated[int, typer.Option(min=1, metavar="N", help="Batches that each model is trained on.")]


@app.command(epilog="Example: python -m research figure2 --out results/figure2 --seed 1")
def figure2(
    out: Out,
    trials: Annotated[int, typer.Option(min=1, metavar="N", help="Pairs of vectors to draw.")] = 1_000_000,
    seed: Seed = 0,
) -> None:
    """Compare the Hamming distance of two random vectors at 15 degrees with the binomial.

    Writes figure2.json and figure2.png, and shows a table.
    """
    from research.paper.figure2 import table, write_figure2

    with progress_on_stderr("Drawing vectors") as progress:
        distributions = write_figure2(out, trials=trials, seed=seed, progress=progress)
    typer.echo(table(distributions), nl=False)


@app.command(
    epilog="Example: python -m research table1 --data tiny-imagenet100 --weights resnet50.npz --out out/table1"
)
def table1(
    out: Out,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Images: a packed set or a copy of ImageNet. Without it, only runs in OUT/runs are scored.",
        ),
    ] = None,
    weights: Annotated[Path | None, typer.Option(metavar="FILE", help="Weights of the network to start from.")] = None,
    methods: Annotated[list[str] | None, typer.Option(help="Only this method; repeatable.")] = None,
    bits: Annotated[list[int] | None, typer.Option(help="Only codes of this length; repeatable.")] = None,
    tasks: Annotated[
        list[str] | None, typer.Option(help="Only this task: whole, unseen (classes) or mosaic; repeatable.")
    ] = None,
    setting: Annotated[
        str,
        typer.Option(help="chosen; paper (HDT exactly as published); swapped (what HDT adds is given to others); all."),
    ] = "chosen",
    size: Annotated[
        int, typer.Option(min=64, metavar="N", help="Side in pixels of the images that the network sees.")
    ] = 224,
    stored_side: Annotated[
        int | None,
        typer.Option(
            min=8,
            metavar="N",
            help="Side in pixels to which images are scaled once and kept in memory, before they are cut and changed. "
            "Default: 256 for a copy of ImageNet (26 GB), else 64.",
        ),
    ] = None,
    epochs: Annotated[float, typer.Option(metavar="E", help="How many times each image is seen.")] = 6.0,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Seeds of the methods compared most closely.")] = 1,
    minutes: Annotated[
        float | None, typer.Option(metavar="M", help="Begin no run that would end after this time.")
    ] = None,
    workers: Annotated[int, typer.Option(min=0, metavar="N", help="Processes that decode images.")] = 0,
) -> None:
    """Measure MAP@1000 of codes for images, by HDT and other methods, all trained alike.

    Trains the runs that are not in OUT/runs yet: each takes half a minute on a GPU, an hour on a CPU. Writes
    table1.json and table1.png, and shows the table beside the paper's.
    """
    from hamtarget.errors import InputError
    from research.paper import table1 as table
    from research.paper.image_bench import open_bench, usual_side
    from research.paper.image_runs import SMALL_SIDE
    from research.paper.image_table import text

    side = stored_side or (SMALL_SIDE if data is None else usual_side(data))
    plan = table.Plan(
        tuple(methods or ()),
        tuple(bits or ()),
        tuple(tasks or ()),
        seeds,
        setting,
        epochs=epochs,
        size=size,
        stored_side=side,
    )
    if data is not None:
        if weights is None:
            raise InputError("--data is given without --weights; expected --weights resnet50_caffe_int8.npz, too")
        with named_progress_on_stderr() as progress:
            bench = open_bench(data, weights, size=size, stored_side=side, workers=workers, progress=progress)
            left = table.do_missing(plan.runs(), bench, out / "runs", minutes=minutes, progress=progress)
        if left:
            typer.echo(f"{len(left)} runs are left; run the command again for them.", err=True)
    typer.echo(text(table.write_table1(out / "runs", out)), nl=False)


@app.command(epilog="Example: python -m research figure3 --runs results/table1/runs --out results/table1")
def figure3(
    runs: Annotated[Path, typer.Option(metavar="DIR", help="Folder `runs` that the command table1 filled.")],
    out: Out,
    methods: Annotated[list[str] | None, typer.Option(help="Only this method; repeatable.")] = None,
) -> None:
    """Measure precision and recall of codes for images within each Hamming radius.

    Writes figure3.json and figure3.png, and shows some radii.
    """
    from research.paper import figure3 as figure

    typer.echo(figure.text(figure.write_figure3(runs, out, methods=tuple(methods or ()))), nl=False)


@app.command(epilog="Example: python -m research table2 --data sift1m --out results/sift1m --models models")
def table2(
    data: Data,
    out: Out,
    models: Models = None,
    bits: Annotated[list[int] | None, typer.Option(help="Only codes of this length, 16, 32 or 64; repeatable.")] = None,
    steps: Steps = 4000,
    seed: Seed = 0,
) -> None:
    """Measure recall and cost of exact look-up with re-ranking on SIFT 1M, for three code lengths.

    Trains the models that are missing: minutes on a GPU, hours on a CPU (fewer steps are quicker). Writes table2.json
    after every model, and shows the table beside the paper's.
    """
    from research.datasets.vector_sets import open_vector_set
    from research.paper import table2 as table
    from research.paper.vector_models import Training

    vectors = open_vector_set(data)
    training = Training(steps=steps, seed=seed)
    with named_progress_on_stderr() as progress:
        records = table.write_table2(
            vectors, out, models or out / "models", training, n_bits=tuple(bits or ()), progress=progress
        )
    typer.echo(table.text(records), nl=False)


@app.command(epilog="Example: python -m research figure4 --data sift1m --out out/sift1m --models models --peers peers")
def figure4(
    data: Data,
    out: Out,
    models: Models = None,
    peers: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of built indexes of faiss.")] = None,
    steps: Steps = 4000,
    lookup_steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The same for models for look-up within a radius.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Timings of each search; the median counts.")] = 5,
    seed: Seed = 0,
) -> None:
    """Measure recall on SIFT 1M against comparisons, speed and memory, beside faiss.

    Trains the models that are missing, and builds faiss's indexes, which takes half an hour on a CPU. Writes
    figure4.json after every curve, and three pictures. Shows the fastest settings at a recall of .95.
    """
    from research.datasets.vector_sets import open_vector_set
    from research.paper import figure4 as figure
    from research.paper.vector_models import Training

    vectors = open_vector_set(data)
    with named_progress_on_stderr() as progress:
        curves = figure.write_figure4(
            vectors,
            out,
            models or out / "models",
            Training(steps=steps, seed=seed),
            Training(steps=lookup_steps or steps, seed=seed),
            repeats=repeats,
            peers=peers,
            progress=progress,
            report=lambda line: typer.echo(line, err=True),
        )
    typer.echo(figure.text(curves), nl=False)


if __name__ == "__main__":
    app(prog_name="python -m research")
