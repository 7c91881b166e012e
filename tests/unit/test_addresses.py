"""The public addresses are written into every file that names them, once, and nothing else changes."""

import argparse
import shutil
import tomllib

import pytest
import yaml

from packages import addresses

SOURCE = "https://forge.example/you/hamtarget"
SITE = "https://you.example/hamtarget"


@pytest.fixture
def tree(tmp_path):
    for name in addresses.PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(addresses.ROOT / name, tmp_path / name)
    return tmp_path


def test_every_file_names_the_same_addresses(tree):
    assert addresses.without(tree, SOURCE) == list(addresses.PLACES)
    addresses.write(tree, "https://before.example/x", "https://before.example")
    addresses.write(tree, SOURCE, SITE)
    assert addresses.without(tree, SOURCE) == []
    assert addresses.without(tree, SOURCE[:-1]) == list(addresses.PLACES)
    for name in ("pyproject.toml", "packages/models/pyproject.toml"):
        urls = tomllib.loads((tree / name).read_text("utf-8"))["project"]["urls"]
        assert urls == {
            "Documentation": SITE,
            "Source": SOURCE,
            "Changelog": f"{SITE}/changelog/",
            "Issues": f"{SOURCE}/issues",
        }
    citation = yaml.safe_load((tree / "CITATION.cff").read_text("utf-8"))
    assert (citation["repository-code"], citation["url"]) == (SOURCE, SITE)
    assert f"\nsite_url: {SITE}/\nrepo_url: {SOURCE}\n" in (tree / "mkdocs.yml").read_text("utf-8")
    for name in addresses.PLACES:
        written = (tree / name).read_text("utf-8")
        assert "before.example" not in written
        assert written.replace(addresses.lines(name, SOURCE, SITE), "") == addresses.PLACES[name][0].sub(
            "", (addresses.ROOT / name).read_text("utf-8")
        )


def test_what_is_no_address_is_refused():
    for text in ("hamtarget", "http://you.example", 'https://you.example/"x', "https://"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected https"):
            addresses.address(text)


def test_files_of_the_repository_agree():
    texts = [(addresses.ROOT / name).read_text("utf-8") for name in addresses.PLACES]
    named = [bool(pattern.search(text)) for text, (pattern, _) in zip(texts, addresses.PLACES.values(), strict=True)]
    assert len(set(named)) == 1, "run python packages/addresses.py SOURCE SITE"
