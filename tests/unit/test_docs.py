"""The pages are true: links lead somewhere, examples compile and run, commands and targets exist.

A block of Python that runs here has the line `<!-- run -->` before it. Blocks of a page run in their order, in one
namespace and in an empty folder. If a block of text follows, that is what the block prints.
"""

import ast
import contextlib
import importlib
import io
import re
import shlex
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest

from hamtarget.errors import MissingExtraError

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "research" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
RUN = "<!-- run -->"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, its text, and the line before it."""

    language: str
    text: str
    mark: str
    line: int


def name(path):
    return str(path.relative_to(ROOT))


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


def prose(text):
    """Return a page without its fenced blocks and code spans, in which nothing is a link."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^\s*```.*?^\s*```\s*$", "", text, flags=re.MULTILINE | re.DOTALL))


def links(text):
    """Return the targets of all links and images of a page."""
    return re.findall(r"\]\(([^)\s]+)\)", prose(text))


def anchors(text):
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^\s*```.*?^\s*```\s*$", "", text, flags=re.M | re.S), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page, text):
    """Yield the relative links of a page that lead nowhere."""
    for link in links(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists():
            yield f"{link}: there is no such file"
        elif anchor and anchor not in anchors(text if target == page else target.read_text()):
            yield f"{link}: there is no such heading"


def commands(text):
    """Yield the words of each command in the blocks of a shell; pipes and lists of commands are taken apart."""
    for block in blocks(text):
        if block.language not in ("sh", "bash", "console"):
            continue
        lines = block.text.replace("\\\n", " ").splitlines()
        if block.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        for line in lines:
            for part in re.split(r"\s\|\s|, ", line.partition(" #")[0].strip()):
                words = shlex.split(part, comments=True)
                # Variables may be set before the command.
                while words and re.match(r"\w+=", words[0]):
                    words = words[1:]
                if words:
                    yield words


def inline(text, program):
    """Return the first word after `program` in each code span of a page."""
    return re.findall(rf"`{program} ([\w-]+)[^`]*`", text)


def asked_of(text, program):
    """Return what a page asks of a program: verbs, or targets."""
    return {words[1] for words in commands(text) if Path(words[0]).name == program and len(words) > 1} | set(
        inline(text, program)
    )


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page):
    assert list(broken_links(page, page.read_text())) == []


def test_a_broken_link_is_seen():
    page = ROOT / "README.md"
    text = "# A title\n[a](docs/nowhere.md) ![b](#a-titel) [c](#a-title) [d](https://example.org) `[e](no link)`\n"
    assert [wrong.partition(":")[0] for wrong in broken_links(page, text)] == ["docs/nowhere.md", "#a-titel"]


def test_pages_for_newcomers_have_examples_that_run():
    assert all(RUN in (ROOT / page).read_text() for page in ("README.md", "docs/search.md", "docs/reliability.md"))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_example_compiles(page):
    for block in blocks(page.read_text()):
        if block.language == "python":
            compile(block.text, f"{name(page)}:{block.line}", "exec")


def imports(text):
    """Return (module, name) of all that the examples of a page import from this repository."""
    return {
        (node.module, alias.name)
        for block in blocks(text)
        if block.language == "python"
        for node in ast.walk(ast.parse(block.text))
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] in ("hamtarget", "research")
        for alias in node.names
    }


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_examples_import_names_that_exist(page):
    missing = []
    for module, imported in sorted(imports(page.read_text())):
        try:
            found = importlib.import_module(module)
            if not hasattr(found, imported):
                missing.append(f"{module}.{imported}")
        except MissingExtraError:
            # Such as Spark, which `make test-spark` installs.
            continue
    assert missing == []


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """An empty folder to work in, with a folder `photos`: eight pictures, one of them twice in two sizes."""
    numpy = pytest.importorskip("numpy")
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path / "photos"
    folder.mkdir()
    random = numpy.random.default_rng(0)
    for number in range(8):
        pixels = image.fromarray(random.integers(0, 256, (16, 18), dtype=numpy.uint8))
        pixels.resize((180, 160)).save(folder / f"{number}.png")
        if number == 3:
            pixels.resize((180, 160)).resize((90, 80)).save(folder / "copy-of-3.png")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("photos")
@pytest.mark.parametrize("page", [page for page in PAGES if RUN in page.read_text()], ids=name)
def test_marked_examples_run_and_print_what_the_page_says(page):
    text = page.read_text()
    here = blocks(text)
    marked = [block for block in here if block.language == "python" and block.mark == RUN]
    assert len(marked) == text.count(RUN)
    namespace = {}
    for block, after in zip(here, [*here[1:], None], strict=True):
        if block not in marked:
            continue
        with contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
            warnings.simplefilter("error")
            exec(compile(block.text, f"{name(page)}:{block.line}", "exec"), namespace)
        if after is not None and after.language == "text" and not after.mark:
            assert printed.getvalue() == after.text, f"{name(page)}:{block.line}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_verb_exists(page):
    typer = pytest.importorskip("typer")
    from hamtarget.cli.main import app

    verbs = set(typer.main.get_command(app).commands)
    asked = {verb for verb in asked_of(page.read_text(), "hamtarget") if not verb.startswith("-") and verb != "VERB"}
    assert asked - verbs == set()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_target_exists(page):
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert asked_of(page.read_text(), "make") - targets == set()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_module_that_is_started_exists(page):
    main = ast.parse((ROOT / "research" / "__main__.py").read_text())
    verbs = {
        node.name
        for node in main.body
        if isinstance(node, ast.FunctionDef) and any("command" in ast.unparse(each) for each in node.decorator_list)
    }
    for module, verb in re.findall(r"python -m (research[\w.]*)(?: (\w+))?", page.read_text()):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module
        assert module != "research" or not verb or verb in verbs, f"{module} {verb}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_file_that_is_named_exists(page):
    text = page.read_text()
    named = re.findall(r"`((?:research|tests|src|native|docs)/[\w./-]+)`", text)
    inside = re.findall(r"`(\w+/[\w./-]+\.py)`", text)
    package = ROOT / "src" / "hamtarget"
    wrong = [path for path in named if not (ROOT / path).exists()]
    wrong += [path for path in inside if not (ROOT / path).exists() and not (package / path).exists()]
    assert wrong == []


def test_the_architecture_names_every_folder():
    text = (ROOT / "docs" / "architecture.md").read_text()
    tree = next(block.text for block in blocks(text) if "src/hamtarget/" in block.text)
    named = set(re.findall(r"^\s*(\w+)/", tree, flags=re.MULTILINE)) | {"hamtarget"}
    folders = {
        folder.name
        for room in ("native", "src/hamtarget", "research")
        for folder in (ROOT / room).iterdir()
        if folder.is_dir() and any(folder.iterdir()) and not folder.name.startswith(("_", "."))
    }
    assert folders - named == set()
    tests = {
        folder.name for folder in (ROOT / "tests").iterdir() if folder.is_dir() and not folder.name.startswith("_")
    }
    assert {name for name in tests if f"tests/{name}`" not in text} == set()


def hops(text):
    """Yield (names, file) of each line of a page's drawings that names a file of the package or the core."""
    for block in blocks(text):
        for line in block.text.splitlines() if block.language == "text" else ():
            hop = re.match(r"[^\w]*(\w[^/]*?)\s{2,}([\w/]+\.(?:py|cpp|hpp))\b", line)
            if hop is not None:
                yield re.findall(r"[\w.]+", re.sub(r"\(.*?\)", "", hop[1])), hop[2]


def test_the_walks_name_functions_that_exist():
    walks = list(hops((ROOT / "docs" / "architecture.md").read_text()))
    assert len(walks) > 20
    wrong = []
    for names, file in walks:
        path = ROOT / file if file.startswith("native/") else ROOT / "src" / "hamtarget" / file
        text = path.read_text() if path.is_file() else ""
        for part in {part for each in names for part in each.split(".")}:
            definition = rf"^\s*(?:async )?(?:def|class) {part}\b" if path.suffix == ".py" else rf"\b{part}(?:\(| {{)"
            if not re.search(definition, text, flags=re.MULTILINE):
                wrong.append(f"{file}: {part}")
    assert wrong == []
