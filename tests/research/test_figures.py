"""Figures in the documentation are those of the result files."""

from pathlib import Path

import pytest

from research import figures


@pytest.fixture
def page(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text(
        '{"speed": {"this, 1": {"q": 1234.5, "p": [3, 1, 2]}, "other": {"q": 617.25, "p": [0.5]}},'
        ' "sets": [{"bits": 64, "share": 0.951}, {"bits": 256, "share": 0.5}]}'
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
    ],
)
def test_a_number_in_a_sentence_is_compared_and_updated(page, text, expected):
    page.write_text(text)
    (figure,) = figures.figures_of(page)
    assert not figure.is_right
    assert expected + "<!--" in figures.updated(page)


@pytest.mark.parametrize("source", ["b.json#/a", "a.json#/speed/none/q", "a.json#/sets/bits=65/share", "a.json#/sets"])
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
    assert sum(len(figures.figures_of(path)) for path in figures.pages()) >= 200
