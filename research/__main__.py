"""`python -m research`: the tables and figures of the paper, measured anew.

A verb takes the folder `--out` for its results (JSON with provenance, and a picture) and, where it needs vectors, the
folder `--data`; what it measures lives in `research.paper`, imported when the verb runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hamtarget.cli.terminal.errors import CommandGroup
from hamtarget.cli.terminal.progress import named_progress_on_stderr, progress_on_stderr

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Tables and figures of the paper, measured anew.",
)

Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results; made if it is not there.")]
Seed = Annotated[int, typer.Option(min=0, metavar="S", help="Seed of everything that is random.")]
Data = Annotated[
    Path, typer.Option(metavar="DIR", help="Vectors: folder with base, learn and query, or an ann-benchmarks file.")
]
Models = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder in which trained models are kept; by default inside --out.")
]
Steps = Annotated[int, typer.Option(min=1, metavar="N", help="Batches that each model is trained on.")]


@app.command(epilog="Example: python -m research figure2 --out results/figure2 --seed 1")
def figure2(
    out: Out,
    trials: Annotated[int, typer.Option(min=1, metavar="N", help="Pairs of vectors to draw.")] = 1_000_000,
    seed: Seed = 0,
) -> None:
    """Hamming distance of two random vectors at 15 degrees, against the binomial.

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
        typer.Option(metavar="DIR", help="Images: a packed set or a copy of ImageNet. Without it, nothing is trained."),
    ] = None,
    weights: Annotated[Path | None, typer.Option(metavar="FILE", help="Of the network to start from.")] = None,
    methods: Annotated[list[str] | None, typer.Option(help="Only this method; repeatable.")] = None,
    bits: Annotated[list[int] | None, typer.Option(help="Only codes of this length; repeatable.")] = None,
    tasks: Annotated[
        list[str] | None, typer.Option(help="Only this task: whole, unseen (classes) or mosaic; repeatable.")
    ] = None,
    setting: Annotated[
        str, typer.Option(help="chosen; paper: HDT to the letter; swapped: its pull given to others; or all.")
    ] = "chosen",
    size: Annotated[int, typer.Option(min=64, metavar="N", help="Pixels of a side that the network sees.")] = 224,
    epochs: Annotated[float, typer.Option(metavar="E", help="How often each image is seen.")] = 6.0,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Seeds of the methods compared most closely.")] = 1,
    minutes: Annotated[float | None, typer.Option(metavar="M", help="Begin no run that would end later.")] = None,
    workers: Annotated[int, typer.Option(min=0, metavar="N", help="Processes that decode images.")] = 0,
) -> None:
    """MAP@1000 of codes for images: HDT against other methods, all trained alike.

    Trains what is not in OUT/runs yet: half a minute a run on a GPU, an hour on a CPU. Writes table1.json and
    table1.png, and shows the table beside the paper's.
    """
    from hamtarget.errors import InputError
    from research.paper import table1 as table
    from research.paper.image_bench import open_bench
    from research.paper.image_table import text

    plan = table.Plan(
        tuple(methods or ()), tuple(bits or ()), tuple(tasks or ()), seeds, setting, epochs=epochs, size=size
    )
    if data is not None:
        if weights is None:
            raise InputError("--data without --weights; expected resnet50_caffe_int8.npz, too")
        with named_progress_on_stderr() as progress:
            bench = open_bench(data, weights, size=size, workers=workers, progress=progress)
            left = table.do_missing(plan.runs(), bench, out / "runs", minutes=minutes, progress=progress)
        if left:
            typer.echo(f"{len(left)} runs are left; call again for them.", err=True)
    typer.echo(text(table.write_table1(out / "runs", out)), nl=False)


@app.command(epilog="Example: python -m research figure3 --runs results/table1/runs --out results/table1")
def figure3(
    runs: Annotated[Path, typer.Option(metavar="DIR", help="Folder `runs` that table1 has filled.")],
    out: Out,
    methods: Annotated[list[str] | None, typer.Option(help="Only this method; repeatable.")] = None,
) -> None:
    """Precision and recall of codes for images within each Hamming radius.

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
    """Recall and cost of exact look-up with re-ranking on SIFT 1M, for three code lengths.

    Trains what is not among the models yet: minutes on a GPU, hours on a CPU (fewer steps are quicker). Writes
    table2.json, also after every model, and shows the table beside the paper's.
    """
    from hamtarget.datasets import open_vector_set
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
    peers: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder in which built indexes of faiss are kept.")
    ] = None,
    steps: Steps = 4000,
    lookup_steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The same of models for look-up within a radius.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Timings of each search; the median counts.")] = 5,
    seed: Seed = 0,
) -> None:
    """Recall on SIFT 1M against comparisons, queries a second and memory, beside faiss.

    Trains what is not among the models yet and builds faiss's indexes, which takes half an hour on a CPU. Writes
    figure4.json, also after every curve, and three pictures; shows the fastest settings at a recall of .95.
    """
    from hamtarget.datasets import open_vector_set
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
