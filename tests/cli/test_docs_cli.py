"""The commands of the pages run, on small data: the blocks of a shell with the mark `<!-- run -->`, page by page.

What readers type is what runs, except that nothing is installed, and that a service does not stay: `hamtarget serve` is
only read by the parser here (tests/unit/test_docs.py), and served in tests/service.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from page_examples import PAGES, SHELLS, blocks, name, reader_folder
from tiny_sentence_model import write_model

# A path of the package's own first, so that the command is that of this interpreter.
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
BEFORE = """
pip() { :; }
command -v jq > /dev/null || jq() { cat > /dev/null; }
hamtarget() { if test "$1" = serve; then :; else command hamtarget "$@"; fi; }
"""


def scripts(page):
    """Return what the marked blocks of a page have a shell do: a text for each folder that they begin in."""
    found = []
    for block in blocks(page.read_text()):
        if block.language in SHELLS and block.need == "":
            text = block.text
            if block.language == "console":
                text = "\n".join(line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ "))
            if block.begins_anew or not found:
                found.append(BEFORE)
            found[-1] += f"echo '{name(page)}:{block.line}'\n{text}\n"
    return found


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if scripts(page)], ids=name)
def test_the_commands_of_a_page_run(page, tmp_path):
    pytest.importorskip("typer")
    for number, script in enumerate(scripts(page)):
        folder = tmp_path / str(number)
        folder.mkdir()
        reader_folder(folder)
        for model in ("DIR", "all-MiniLM-L6-v2"):
            write_model(folder / model)
        done = subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=folder,
            env={**os.environ, "PATH": PATH},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
