"""Time what a stranger waits for: from `pip install` to the first answer, for photos, vectors and texts.

    python -m research.benchmarks.first_answer --wheel dist/hamtarget-*.whl --out research/results/first_answer.json

Each task has a fresh environment of this interpreter, without pip's cache and with nothing else on PATH. Photos,
vectors and texts are generated; some have copies, and an answer that misses most of them ends the run with an error.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from hamtarget.evaluation.provenance import provenance, write_json

ROOT = Path(__file__).parents[2]
N_PHOTOS, N_VECTORS, N_TEXTS, N_COPIES = 500, 100_000, 10_000, 50
_VECTORS = """
import numpy as np
from hamtarget import NeighborIndex

vectors = np.load("vectors.npy")
index = NeighborIndex(metric="cosine", recall=0.95).fit(vectors)
print(*index.nearest_batch(vectors[:50], k=10).ids[:, 0])
"""


@dataclass(frozen=True)
class Task:
    """Somebody's data, what they install and type, and how many of the copies in it the answer must name."""

    name: str
    requirement: str
    command: list[str]
    prepare: Callable[[Path], None]
    n_named: Callable[[str], int]


def photos(folder: Path) -> None:
    """Write pictures of shapes at random, and smaller copies of some."""
    random = np.random.default_rng(0)
    (folder / "photos").mkdir()
    for number in range(N_PHOTOS - N_COPIES):
        photo = Image.new("RGB", (640, 480), _colour(random))
        draw = ImageDraw.Draw(photo)
        for shape in range(20):
            x, y, width, height = random.integers(0, (640, 480, 300, 300)).tolist()
            corners = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            (draw.ellipse if shape % 2 else draw.rectangle)(corners, fill=_colour(random))
        photo.save(folder / "photos" / f"{number}.jpg", quality=90)
        if number < N_COPIES:
            photo.resize((320, 240)).save(folder / "photos" / f"copy-of-{number}.jpg", quality=70)


def _colour(random: np.random.Generator) -> tuple[int, int, int]:
    red, green, blue = random.integers(0, 256, 3).tolist()
    return red, green, blue


def vectors(folder: Path) -> None:
    """Write vectors around topics, as embeddings are, and the program that searches them."""
    random = np.random.default_rng(0)
    topics = random.standard_normal((1000, 128))
    rows = topics[random.integers(1000, size=N_VECTORS)] + 0.5 * random.standard_normal((N_VECTORS, 128))
    np.save(folder / "vectors.npy", rows.astype(np.float32))
    (folder / "answer.py").write_text(_VECTORS, encoding="utf-8")


def texts(folder: Path) -> None:
    """Write texts of words at random, and copies of some in which a word is missing."""
    random = np.random.default_rng(0)
    vocabulary = ["".join(random.choice(list("abcdefghijklmnopqrstuvwxyz"), 6)) for _ in range(3000)]
    lines = ["id,body"]
    for number in range(N_TEXTS - N_COPIES):
        words = [vocabulary[place] for place in random.integers(len(vocabulary), size=60)]
        lines.append(f"{number},{' '.join(words)}")
        if number < N_COPIES:
            lines.append(f"copy-of-{number},{' '.join(words[:30] + words[31:])}")
    (folder / "texts.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


TASKS = [
    Task(
        f"{N_PHOTOS} photos of 640 x 480 pixels",
        "hamtarget[cli,vision,onnx]",
        ["hamtarget", "dups", "photos"],
        photos,
        lambda printed: printed.count("copy-of-"),
    ),
    Task(
        f"{N_VECTORS:,} vectors of 128 numbers",
        "hamtarget",
        ["python", "answer.py"],
        vectors,
        lambda printed: sum(word == str(row) for row, word in enumerate(printed.split())),
    ),
    Task(
        f"{N_TEXTS:,} texts of 60 words",
        "hamtarget[cli]",
        ["hamtarget", "dups", "texts.csv", "--text-column", "body"],
        texts,
        lambda printed: printed.count("copy-of-"),
    ),
]


def measured(task: Task, wheel: Path) -> dict[str, object]:
    """Return the seconds that a task takes in a fresh environment, and how large that becomes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        task.prepare(folder)
        subprocess.run([sys.executable, "-m", "venv", folder / "environment"], check=True)
        environment = {
            **os.environ,
            "PATH": str(folder / "environment" / "bin"),
            "HAMTARGET_CACHE": str(folder / "cache"),
        }
        environment.pop("PYTHONPATH", None)
        packages = sum(path.stat().st_size for path in (folder / "environment").rglob("*") if path.is_file())
        requirement = f"{task.requirement} @ {wheel.resolve().as_uri()}"
        install = ["python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
        install += ["--only-binary", ":all:", "-c", str(ROOT / "constraints.txt"), requirement]
        began = time.perf_counter()
        _run(install, folder, environment)
        installed = time.perf_counter()
        printed = _run(task.command, folder, environment)
        ended = time.perf_counter()
        after = sum(path.stat().st_size for path in (folder / "environment").rglob("*") if path.is_file())
    named = task.n_named(printed)
    if named < 0.9 * N_COPIES:
        raise SystemExit(f"{task.name}: the answer names {named} of {N_COPIES}; expected nearly all:\n{printed[:2000]}")
    return {
        "has": task.name,
        "installs": task.requirement,
        "types": " ".join(task.command),
        "install_seconds": round(installed - began, 1),
        "answer_seconds": round(ended - installed, 1),
        "total_seconds": round(ended - began, 1),
        "named": named,
        "installed_megabytes": round((after - packages) / 1e6),
    }


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    program = folder / "environment" / "bin" / command[0]
    done = subprocess.run([program, *command[1:]], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def main() -> None:
    """Measure each task, write the file, and print the table of docs/first-answer.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, required=True, help="wheel of hamtarget for this interpreter")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    found = [measured(task, options.wheel) for task in TASKS]
    write_json(options.out, {"provenance": provenance(seed=0), "tasks": found})
    print("| you have | you install | you type | install, s | answer, s | in all, s | MB installed |")
    print("|---|---|---|---:|---:|---:|---:|")
    for row in found:
        print(
            f"| {row['has']} | `{row['installs']}` | `{row['types']}` | {row['install_seconds']} | "
            f"{row['answer_seconds']} | {row['total_seconds']} | {row['installed_megabytes']} |"
        )


if __name__ == "__main__":
    main()
