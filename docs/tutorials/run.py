"""Run the notebooks of this folder again, and keep what they print and draw.

python docs/tutorials/run.py [NAME ...]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent


def run(path: Path) -> None:
    """Run a notebook in an empty folder, and write it back without what changes from run to run."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=120, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", []):
            output.get("metadata", {}).clear()
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb")):
        run(FOLDER / f"{name}.ipynb")
        sys.stdout.write(f"{name}\n")
