"""Write the public addresses of the repository and of the site into every file that names them.

`addresses.py SOURCE SITE` writes them; `addresses.py --check SOURCE` fails unless all files name SOURCE, which is like
https://forge.example/you/hamtarget.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
# Each file with what was written before, and the line that the addresses stand before.
_TABLE = re.compile(r"\[project\.urls\]\n(?:\w+ = .*\n)+\n")
PLACES = {
    "pyproject.toml": (_TABLE, "[project.scripts]\n"),
    "packages/models/pyproject.toml": (_TABLE, "[tool.scikit-build]\n"),
    "mkdocs.yml": (re.compile(r"^(?:site_url|repo_url): .*\n", re.MULTILINE), "docs_dir: "),
    "CITATION.cff": (re.compile(r"^(?:url|repository-code): .*\n", re.MULTILINE), "version: "),
}


def lines(name: str, source: str, site: str) -> str:
    """Return what a file says of the addresses."""
    if name.endswith(".toml"):
        return (
            f'[project.urls]\nDocumentation = "{site}"\nSource = "{source}"\n'
            f'Changelog = "{site}/changelog/"\nIssues = "{source}/issues"\n\n'
        )
    if name == "mkdocs.yml":
        return f"site_url: {site}/\nrepo_url: {source}\n"
    return f"repository-code: {source}\nurl: {site}\n"


def write(root: Path, source: str, site: str) -> None:
    """Write the addresses into all files below `root`, in place of those of before."""
    for name, (before, anchor) in PLACES.items():
        text = before.sub("", (root / name).read_text("utf-8"))
        if text.count(f"\n{anchor}") != 1:
            raise SystemExit(f"{name}: expected one line that begins with {anchor.strip()!r}")
        (root / name).write_text(text.replace(f"\n{anchor}", f"\n{lines(name, source, site)}{anchor}"), "utf-8")


def without(root: Path, source: str) -> list[str]:
    """Return the files that do not name `source` as the address of the repository."""
    named = re.compile(rf'(?:Source = "|repo_url: |repository-code: ){re.escape(source)}"?$', re.MULTILINE)
    return [name for name in PLACES if not named.search((root / name).read_text("utf-8"))]


def address(text: str) -> str:
    """Return an address without a slash at its end."""
    parts = urlsplit(text)
    if parts.scheme != "https" or not parts.netloc or re.search(r"[\s\"'<>]", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an address; expected https://...")
    return text.rstrip("/")


def main() -> None:
    """Write or check the addresses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=address, help="address of the repository")
    parser.add_argument("site", type=address, nargs="?", help="address of the site")
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    if arguments.check:
        missing = without(ROOT, arguments.source)
        if missing:
            sys.exit(f"{', '.join(missing)}: not {arguments.source}; run python packages/addresses.py SOURCE SITE")
    elif arguments.site is None:
        parser.error("expected two addresses, of the repository and of the site")
    else:
        write(ROOT, arguments.source, arguments.site)


if __name__ == "__main__":
    main()
