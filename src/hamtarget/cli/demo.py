"""`hamtarget demo`: learns, stores, searches and compares on bundled images, step by step."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hamtarget.cli.terminal.arguments import Seed
from hamtarget.cli.terminal.bars import progress_on_stderr
from hamtarget.cli.terminal.output import Column, write_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from hamtarget.cli.terminal.bars import Telling
    from hamtarget.demo import DuplicateCount, Score
    from hamtarget.learn.training.checkpoint import TrainingProgress


def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the model, the store, the picture and the numbers.")
    ] = Path("out"),
    bits: Annotated[int, typer.Option(metavar="N", help="Bits of a code.")] = 32,
    radius: Annotated[int, typer.Option(min=0, metavar="R", help="Hamming distance target.")] = 2,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Training steps.")] = 300,
    seed: Seed = 0,
) -> None:
    """Learn codes of 5,000 bundled images, store them, search, compare with LSH and ITQ, find copies, and verify.

    It takes a minute or two, and leaves a picture, a table, a model and two stores to try the other verbs on.
    """
    from hamtarget import demo as walk

    walk.check_installed()
    from hamtarget.datasets import fashion_sample
    from hamtarget.evaluation.provenance import provenance, write_json
    from hamtarget.store import Store

    began = time.perf_counter()
    settings = walk.DemoSettings(bits, radius, steps, seed)
    sample = fashion_sample()
    typer.echo(
        f"{len(sample.images):,} images of Fashion-MNIST to learn from and to search, "
        f"{len(sample.query_images):,} others to search with.\n"
    )

    _heading(1, f"Learn {bits}-bit codes: images of a class within {radius} bits, all others outside")
    with progress_on_stderr("Learning codes") as tell:
        encoder = walk.learn(sample, settings, _shown(tell))
    encoder.save(out / "model")
    typer.echo(f"   {out / 'model'}\n")

    _heading(2, "Keep the codes in a store, which survives crashes")
    stored = walk.store_images(out / "store", encoder, sample)
    typer.echo(f"   {stored.items:,} images encoded and on disk in {stored.seconds:.1f} s: {out / 'store'}\n")

    _heading(3, f"Find everything within {radius} bits of a query")
    searched = walk.search_store(out / "store", sample)
    typer.echo(
        f"   {searched.queries:,} queries encoded and answered in {searched.seconds:.2f} s, {searched.hits:,} hits\n"
    )
    with progress_on_stderr("Comparing methods") as tell:
        methods = [("HDT (hamtarget)", encoder), *walk.others(sample, settings)]
        scores = []
        for name, method in methods:
            scores.append(walk.score(name, method, sample, radius))
            tell(len(scores), len(methods))
    _show_scores(scores)

    _heading(4, "Learn what a copy is, and find 100 altered copies among the images")
    with progress_on_stderr("Learning copies") as tell:
        duplicates = walk.find_duplicates(out / "copies", sample, steps=steps, seed=seed, progress=_shown(tell))
    _show_duplicates(duplicates)

    _heading(5, "Verify the stores: every checksum, every row against the index")
    problems = 0
    for folder in (out / "store", out / "copies"):
        with Store.open(folder, read_only=True) as store:
            report = store.verify()
        problems += report.n_problems
        typer.echo(f"   {folder}: {report.items:,} items, {report.n_problems} problems")
    typer.echo()

    queries = walk.shown_queries(sample)
    nearest = walk.nearest_images(out / "store", sample, queries)
    walk.draw_demo(out / "demo.png", sample, queries, nearest, scores, radius=radius, duplicates=duplicates)
    write_json(
        out / "demo.json",
        {
            "provenance": provenance(seed=seed),
            "setting": vars(settings),
            "scores": [{name: value for name, value in vars(score).items() if name != "curve"} for score in scores],
            "stored": vars(stored),
            "searched": vars(searched),
            "duplicates": {
                "planted": duplicates.planted,
                "found": duplicates.found,
                "other_pairs": duplicates.other_pairs,
                "all_pairs": duplicates.all_pairs,
            },
            "problems": problems,
        },
    )
    typer.echo(f"Picture: {out / 'demo.png'}   Numbers: {out / 'demo.json'}")
    typer.echo(f"Done in {time.perf_counter() - began:.0f} s.\n")
    typer.echo(f"Look around:   hamtarget info {out / 'store'}; hamtarget search {out / 'store'} --id 0 --nearest 5")
    typer.echo("With your own: hamtarget dups FOLDER (copies of pictures); hamtarget train FOLDER --model DIR")


def _heading(number: int, text: str) -> None:
    typer.secho(f"{number}. {text}", bold=True)


def _shown(tell: Telling) -> Callable[[TrainingProgress], None]:
    return lambda progress: tell(progress.step, progress.steps, note=f"loss {progress.loss:.3f}")


def _show_scores(scores: list[Score]) -> None:
    headings = ("precision", "recall", "MAP@1000", "hits", "candidates")
    write_table(
        [Column("method"), *(Column(heading, number=True) for heading in headings)],
        [
            (
                score.name,
                f"{score.precision:.3f}",
                f"{score.recall:.3f}",
                f"{score.mean_average_precision:.3f}",
                f"{score.hits:,.0f}",
                f"{score.candidates:,.0f}",
            )
            for score in scores
        ],
    )
    typer.echo(
        "\n   Images of the query's class; HDT has learned from the labels of the images searched, the others cannot.\n"
        "   hits: images within the radius. candidates: images that exact look-up reads. MAP: ties in random order.\n"
    )


def _show_duplicates(duplicates: DuplicateCount) -> None:
    rate = duplicates.other_pairs / (duplicates.all_pairs - duplicates.planted)
    typer.echo(
        f"   {duplicates.found} of {duplicates.planted} copies lie within the radius of their original; so do "
        f"{duplicates.other_pairs:,} other pairs, {rate:.5%} of all\n"
    )
