"""The notebooks run from top to bottom, and print and draw what they keep."""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

plt = pytest.importorskip("matplotlib.pyplot")
torch = pytest.importorskip("torch")

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells(notebook, kind):
    return [cell for cell in json.loads(notebook.read_text("utf-8"))["cells"] if cell["cell_type"] == kind]


def kept(cell):
    """Return what a cell has printed, and how many pictures it has drawn."""
    printed = "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")
    return printed, sum("image/png" in output.get("data", {}) for output in cell["outputs"])


def without_numbers(text):
    """Return a text in which figures are left out: those of a training differ between processors."""
    return re.sub(r"[\d.,\s]+", " ", text)


@pytest.fixture
def quiet_torch():
    """One thread: as fast for such small work, and it does not wait for others."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_there_are_five():
    assert [path.stem for path in NOTEBOOKS] == ["copies", "own_loss", "pictures", "texts", "vectors"]


@pytest.mark.slow
@pytest.mark.usefixtures("quiet_torch")
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_prints_what_it_keeps(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAMTARGET_CACHE", str(tmp_path / "cache"))
    plt.switch_backend("Agg")
    namespace = {}
    for cell in cells(notebook, "code"):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile("".join(cell["source"]), notebook.name, "exec"), namespace)
        text, n_pictures = kept(cell)
        assert without_numbers(printed.getvalue()) == without_numbers(text)
        assert len(plt.get_fignums()) == n_pictures
        plt.close("all")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_keeps_pictures_and_no_errors(notebook):
    outputs = [output for cell in cells(notebook, "code") for output in cell["outputs"]]
    assert all(output["output_type"] in ("stream", "display_data") for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert notebook.stat().st_size < 500_000


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_links_of_a_notebook_lead_somewhere(notebook):
    text = "\n".join("".join(cell["source"]) for cell in cells(notebook, "markdown"))
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if not link.startswith("http")]
    assert links
    assert [link for link in links if not (FOLDER / link).exists()] == []
