"""Figures in the documentation are those of the result files."""

import re
from pathlib import Path

import pytest

from research import figures
from research.figure_summaries import summaries_of

# Pages on which every number that looks measured names its source, or is told apart as given.
COMPLETE = [
    "README.md",
    *(
        f"docs/{name}.md"
        for name in (
            "architecture",
            "binary-vectors",
            "choosing-a-radius",
            "cli",
            "concepts",
            "copies",
            "data",
            "errors",
            "faq",
            "first-answer",
            "folders",
            "format",
            "gpu",
            "groups",
            "index",
            "math",
            "neighbors",
            "picture-hashes",
            "postgresql",
            "reference",
            "reliability",
            "scale",
            "search",
            "search-benchmark",
            "service",
            "several-codes",
            "stores-of-vectors",
            "texts",
            "threatexchange",
            "training-pictures",
            "when-not-to-use-it",
            "moving-from/faiss",
            "moving-from/imagehash",
            "moving-from/pgvector",
            "moving-from/threatexchange",
        )
    ),
]


@pytest.fixture
def page(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text(
        '{"speed": {"this, 1": {"q": 1234.5, "p": [3, 1, 2]}, "other": {"q": 617.25, "p": [0.5]}},'
        ' "sets": [{"bits": 64, "share": 0.951}, {"bits": 256, "share": 0.5}],'
        ' "runs": [{"bits": 8, "of": {"map": 0.1}}, {"bits": 8, "of": {"map": 0.2}}, {"bits": 8, "of": {"map": 0.9}}]}'
    )
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    figures._content.cache_clear()
    yield tmp_path / "page.md"
    figures._content.cache_clear()


TABLE = """<!-- = a.json#/speed/{row}/{column}
row: this, 1 | other
column: - | q | p ; q
-->

| | queries | ms, queries |
|---|---|---|
| this, with 2 cores | **1,235** | 2.0 ms, 1,230 |
| other | 617.2 | .5 ms, 617 |
"""


def test_a_table_is_compared_and_updated(page):
    page.write_text(TABLE)
    shown = {figure.shown: figure.expected for figure in figures.figures_of(page)}
    assert shown == {"1,235": "1,234", "2.0": "2.0", "1,230": "1,230", "617.2": "617.2", ".5": ".5", "617": "617"}
    (wrong,) = (figure for figure in figures.figures_of(page) if not figure.is_right)
    assert wrong.line == 8
    assert figures.updated(page) == TABLE.replace("1,235", "1,234")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It finds .94<!-- = a.json#/sets/bits=64/share --> of them.", ".95"),
        ("It finds 94%<!-- = a.json#/sets/bits=64/share x 100 --> of them.", "95%"),
        ("It is 3.0 times<!-- = a.json#/speed/this, 1/q / a.json#/speed/other/q --> faster.", "2.0 times"),
        ("About 1 ms<!-- = a.json#/speed/this, 1/p -->, the median.", "2 ms"),
        ("MAP is .30<!-- = a.json#/runs/mean bits=8/of/map -->, the mean over seeds.", ".40"),
        ("MAP is .30<!-- = a.json#/runs/median bits=8/of/map -->, the median over seeds.", ".20"),
    ],
)
def test_a_number_in_a_sentence_is_compared_and_updated(page, text, expected):
    page.write_text(text)
    (figure,) = figures.figures_of(page)
    assert not figure.is_right
    assert expected + "<!--" in figures.updated(page)


@pytest.mark.parametrize(
    "source",
    ["b.json#/a", "a.json#/speed/none/q", "a.json#/sets/bits=65/share", "a.json#/sets", "a.json#/runs/mean bits=9/of"],
)
def test_a_source_that_is_not_there_is_an_error(page, source):
    page.write_text(f"1<!-- = {source} -->")
    with pytest.raises((KeyError, TypeError)):
        figures.figures_of(page)


def test_a_table_of_another_shape_is_an_error(page):
    page.write_text(TABLE.replace("| other | 617.2 | .5 ms, 617 |\n", ""))
    with pytest.raises(ValueError, match="2 names are listed, and the table has 1"):
        figures.figures_of(page)


@pytest.mark.parametrize("path", figures.pages(), ids=lambda path: path.name)
def test_the_documentation_shows_what_was_measured(path: Path):
    assert not [str(figure) for figure in figures.figures_of(path) if not figure.is_right]


def test_the_documentation_names_sources():
    assert sum(len(figures.figures_of(path)) for path in figures.pages()) >= 1000


@pytest.mark.parametrize("name", COMPLETE)
def test_every_measured_number_of_a_complete_page_names_its_source(name):
    assert not [str(number) for number in figures.unmarked_of(figures.ROOT / name)]


@pytest.mark.parametrize(
    "text",
    [
        "It finds .95 of them.",
        "It takes 12 ms.",
        "It is 3 times faster.",
        "5,921 requests a second",
        "| 45.4x |",
        "It has 39 bytes a row.",
    ],
)
def test_a_number_that_looks_measured_is_noticed(page, text):
    page.write_text(f"A page.\n\n{text}\n")
    (number,) = figures.unmarked_of(page)
    assert number.line == 3


@pytest.mark.parametrize(
    "text",
    [
        "64 bits, 10 of 1,000,000 rows, version 0.2.1",
        "It takes 12 ms<!-- given -->.",
        "<!-- given: limits -->\n\nIt takes 12 ms.\n\n<!-- /given -->",
        "`recall=0.95` and [a page](a-1.5-b.md)",
        "```python\nrecall = 0.95\n```",
        "It finds .95<!-- = a.json#/sets/bits=64/share --> of them.",
        TABLE.replace("with 2 cores", "in 2 s"),
    ],
)
def test_settings_code_and_marked_figures_are_not_noticed(page, text):
    page.write_text(text)
    assert figures.unmarked_of(page) == []


def test_a_part_that_is_given_ends(page):
    page.write_text(
        "<!-- given: limits -->\n12 ms\n<!-- /given -->\n13 ms\n<!-- given: more -->\n14 ms\n<!-- /given -->\n"
    )
    assert [number.shown for number in figures.unmarked_of(page)] == ["13 ms"]


def test_summaries_have_the_fastest_setting_and_means_over_seeds():
    def row(recall, seconds):
        return {
            "k": 10,
            "setting": {},
            "nearest_found": 1.0,
            "recall": recall,
            "seconds": seconds,
            "bytes_per_row": None,
        }

    def index(library, *rows):
        return {"library": library, "label": "", "rows": rows, "bytes_per_row": 8, "build_cpu_seconds": 1}

    indexes = [
        index("hamtarget", row(0.96, [1.0])),
        index("faiss", row(0.94, [0.1]), row(0.95, [4.0, 2.0, 9.0]), row(0.99, [5.0])),
    ]
    found = summaries_of("neighbors/a.json", {"setting": {"n_queries": 100}, "indexes": indexes})["fastest"]
    assert found["10 of 10, .95"]["faiss"]["queries_per_second"] == 25
    assert found["10 of 10, .95"]["other"]["queries_per_second"] == 25
    assert found["10 of 10, .95"]["hamtarget"]["queries_per_second"] == 100
    assert set(found["10 of 10, .99"]) == {"faiss", "other"}

    def record(seed, value):
        run = {"task": "whole", "method": "HDT", "variant": "", "n_bits": 16, "seed": seed}
        return {"run": run, "scores": {"database": {"map": value}}}

    two = summaries_of("table1/table1.json", {"records": [record(0, 0.5), record(1, 0.7)]})
    assert two["means"]["whole"]["HDT"]["16"]["database"]["map"] == pytest.approx(0.6)
    assert two["deviations"]["whole"]["HDT"]["16"]["database"]["map"] == pytest.approx(0.02**0.5)
    assert summaries_of("table1/table1.json", {"records": [record(0, 0.5)]})["deviations"] == {}


def test_every_table_of_the_log_names_a_file_or_a_commit():
    log = (figures.ROOT / "docs" / "experiments.md").read_text()
    sections = re.split(r"^## ", log, flags=re.MULTILINE)
    without = [
        section.partition("\n")[0]
        for section in sections
        if re.search(r"^\|[-: |]+\|$", section, flags=re.MULTILINE)
        and not re.search(r"\w\.json\b|results/\w+|\bcommit `?[0-9a-f]{7}\b", section)
    ]
    assert without == []
