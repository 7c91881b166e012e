"""What is installed: every extra that a message names exists, and [all] brings nothing large that few need."""

import re
import tomllib
from pathlib import Path

import hamtarget

REPOSITORY = Path(hamtarget.__file__).parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
APART = {
    *("duckdb", "faiss-cpu", "hnswlib", "pandas", "pyarrow", "pyspark", "rabitqlib", "scalable-vs", "scann", "timm"),
    "usearch",
}


def packages(extra):
    """Return the names of all packages that an extra brings, those of the extras in it included."""
    found = set()
    for requirement in EXTRAS[extra]:
        inner = re.fullmatch(r"hamtarget\[(.*)\]", requirement)
        if inner:
            found |= {name for part in inner[1].split(",") for name in packages(part)}
        else:
            found.add(re.match(r"[A-Za-z0-9-]+", requirement)[0])
    return found


def test_extras_that_are_named_exist():
    files = [*REPOSITORY.glob("src/hamtarget/**/*.py"), *REPOSITORY.glob("research/**/*.py"), REPOSITORY / "README.md"]
    files += [*REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("src/hamtarget/**/Dockerfile")]
    named = {
        extra
        for path in files
        for several in re.findall(r"hamtarget\[([a-z0-9,]+)\]", path.read_text("utf-8"))
        for extra in several.split(",")
    }
    assert {"learn", "onnx", "serve"} <= named
    assert named <= set(EXTRAS)


def test_all_is_for_users():
    assert {"torch", "onnxruntime", "typer", "fastapi", "psycopg", "Pillow", "matplotlib"} <= packages("all")
    assert not packages("all") & APART
    assert APART - {"pandas", "pyarrow", "pyspark", "timm"} <= packages("research")


def test_nothing_unused_is_required():
    assert PROJECT["project"]["dependencies"] == ["numpy>=2.0"]


def test_the_wheel_holds_the_package_only():
    assert PROJECT["tool"]["scikit-build"]["wheel"]["packages"] == ["src/hamtarget"]
