"""Bring into the site what pages link to outside of `docs/`: other pages of the repository, result files, notebooks.

A hook of mkdocs. Pages keep links that work in a checkout and on a forge; here they are led to where the site has them.
"""

from __future__ import annotations

import json
import os.path
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
# Pages that lie elsewhere in the repository, and their names in the site.
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "research/README.md": "research.md",
}
_LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s#]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^(\s*```.*?^\s*```\s*$)", re.MULTILINE | re.DOTALL)
# Files of other kinds would be large, or of no use to a reader.
_SHOWN = {".png", ".svg", ".json", ".csv"}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and files of the repository that lie outside of `docs/`, and a page for each notebook."""
    for path, name in PAGES.items():
        files.append(File.generated(config, name, content=led(ROOT / path, name)))
    for notebook in sorted((ROOT / "docs" / "tutorials").glob("*.ipynb")):
        files.append(File.generated(config, f"tutorials/{notebook.stem}.md", content=page_of(notebook)))
    for page in [*ROOT.glob("docs/**/*.md"), *(ROOT / path for path in PAGES)]:
        for target in _targets(page):
            name = _name_in_site(target)
            if name is not None and name.startswith("repository/") and files.get_file_from_path(name) is None:
                files.append(File.generated(config, name, abs_src_path=str(target)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead the links of a page of `docs/` to where the site has their targets."""
    source = page.file.abs_src_path
    return markdown if source is None else _led(markdown, Path(source), page.file.src_uri)


def led(path: Path, name: str) -> str:
    """Return the text of a page, whose links fit the place that it has in the site."""
    return _led(path.read_text(encoding="utf-8"), path, name)


def page_of(notebook: Path) -> str:
    """Return a notebook as a page: its words, its code, what that prints, and its pictures."""
    parts = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(_led(text, notebook, f"tutorials/{notebook.stem}.md"))
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                parts.append(f"![Output of the code above](data:image/png;base64,{data['image/png'].strip()})")
            else:
                printed = "".join(output.get("text") or data.get("text/plain", "")).rstrip()
                parts.append(f"```text\n{printed}\n```")
    return "\n\n".join(parts) + "\n"


def _led(text: str, page: Path, name: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        label, link, anchor = found[1], found[2], found[3] or ""
        if re.match(r"[a-z]+:", link):
            return found[0]
        target = _name_in_site((page.parent / link).resolve())
        if target is None:
            return label.strip("[]")
        return f"{label}({os.path.relpath(target, os.path.dirname(name) or '.')}{anchor})"

    # What is inside of a fenced block is no link.
    pieces = _FENCE.split(text)
    return "".join(piece if number % 2 else _LINK.sub(replaced, piece) for number, piece in enumerate(pieces))


def _targets(page: Path) -> list[Path]:
    links = _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
    return [(page.parent / link).resolve() for _, link, _ in links if not re.match(r"[a-z]+:", link)]


def _name_in_site(target: Path) -> str | None:
    """Return the path in the site of a file of the repository, or None if the site does not have it."""
    if not target.is_relative_to(ROOT):
        return None
    path = target.relative_to(ROOT)
    if path.parts[0] == "docs":
        # A notebook is a page.
        inside = path.relative_to("docs")
        return str(inside.with_suffix(".md") if path.suffix == ".ipynb" else inside)
    if str(path) in PAGES:
        return PAGES[str(path)]
    if str(path) == "README.md":
        return "index.md"
    return f"repository/{path}" if target.is_file() and path.suffix in _SHOWN else None
