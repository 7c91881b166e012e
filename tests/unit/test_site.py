"""The site: every page is in its navigation, and links that leave `docs/` are led to what the site has."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="mkdocs is not installed: make docs")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site():
    spec = importlib.util.spec_from_file_location("site_links", ROOT / "packages" / "site_links.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("link", "led"),
    [
        ("[a](../CHANGELOG.md)", "[a](changelog.md)"),
        ("[a](search.md#which-call-for-what)", "[a](search.md#which-call-for-what)"),
        ("![a](../research/results/search_speed.png)", "![a](repository/research/results/search_speed.png)"),
        ("[a](tutorials/copies.ipynb)", "[a](tutorials/copies.md)"),
        ("[`a`](../src/hamtarget/store)", "`a`"),
        ("[a](https://example.org/x)", "[a](https://example.org/x)"),
        ("```text\n[a](../CHANGELOG.md)\n```", "```text\n[a](../CHANGELOG.md)\n```"),
    ],
)
def test_links_are_led_to_what_the_site_has(site, link, led):
    assert site._led(link, ROOT / "docs" / "cli.md", "cli.md") == led


def test_links_of_a_page_in_a_folder(site):
    page = ROOT / "docs" / "moving-from" / "faiss.md"
    assert site._led("[a](../peers.md#results)", page, "moving-from/faiss.md") == "[a](../peers.md#results)"
    assert site._led("[a](../../SECURITY.md)", page, "moving-from/faiss.md") == "[a](../security.md)"


def test_a_notebook_becomes_a_page(site, tmp_path):
    notebook = tmp_path / "short.ipynb"
    code = {"cell_type": "code", "source": ["print(1)"], "outputs": [{"output_type": "stream", "text": ["1\n"]}]}
    picture = {"cell_type": "code", "source": ["draw()"], "outputs": [{"data": {"image/png": "AAAA\n"}}]}
    cells = [{"cell_type": "markdown", "source": ["# A title\n", "words"]}, code, picture]
    notebook.write_text(json.dumps({"cells": cells}))
    assert site.page_of(notebook) == (
        "# A title\nwords\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n```python\ndraw()\n```\n\n"
        "![Output of the code above](data:image/png;base64,AAAA)\n"
    )


def test_every_page_is_in_the_navigation(site):
    named = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]))
    docs = ROOT / "docs"
    pages = {str(path.relative_to(docs)) for path in docs.rglob("*.md")} | set(site.PAGES.values())
    assert named == pages | {f"tutorials/{path.stem}.md" for path in docs.glob("tutorials/*.ipynb")}


def test_the_reference_has_every_public_name():
    text = (ROOT / "docs" / "reference.md").read_text()
    surface = (ROOT / "tests" / "unit" / "test_public_names.py").read_text()
    part = surface[surface.index("SURFACE = {") : surface.index("\n}\n")]
    errors = re.search(r'"hamtarget\.errors": \[.*?\]', part, flags=re.DOTALL)[0]
    names = set(re.findall(r'"(\w+)"', part.replace(errors, ""))) - {"hamtarget"}
    missing = {name for name in names if not re.search(rf"^::: [\w.]+\.{name}$", text, flags=re.MULTILINE)}
    assert missing == set()
