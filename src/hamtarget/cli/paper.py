"""`hamtarget paper`: the tables and figures of the paper, measured anew.

A verb takes the folder `--out` for its results (JSON with provenance, and a picture) and, where it needs vectors, the
folder `--data`; what it measures lives in `hamtarget.paper`, imported when the verb runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hamtarget.cli.progress import progress_on_stderr

app = typer.Typer(no_args_is_help=True, help="Tables and figures of the paper, measured anew.")

Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results; made if it is not there.")]
Seed = Annotated[int, typer.Option(min=0, metavar="S", help="Seed of everything that is random.")]


@app.command(epilog="Example: hamtarget paper figure2 --out results/figure2 --seed 1")
def figure2(
    out: Out,
    trials: Annotated[int, typer.Option(min=1, metavar="N", help="Pairs of vectors to draw.")] = 1_000_000,
    seed: Seed = 0,
) -> None:
    """Hamming distance of two random vectors at 15 degrees, against the binomial.

    Writes figure2.json and figure2.png, and shows a table.
    """
    from hamtarget.paper.figure2 import table, write_figure2

    with progress_on_stderr("Drawing vectors") as progress:
        distributions = write_figure2(out, trials=trials, seed=seed, progress=progress)
    typer.echo(table(distributions), nl=False)
