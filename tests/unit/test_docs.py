"""The pages are true: links lead somewhere, examples compile and run, commands, options and targets exist.

How examples are marked, and where those run that do not run here, is in tests/page_examples.py.
"""

import ast
import importlib
import json
import re
import shlex
import shutil
from functools import cache
from pathlib import Path

import pytest

from hamtarget.errors import MissingExtraError
from page_examples import GIVEN, NEEDS, PAGES, ROOT, SHELLS, blocks, name, pages_that_need, reader_folder, run_page


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
        if block.language not in SHELLS:
            continue
        lines = block.text.replace("\\\n", " ").splitlines()
        if block.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        for line in lines:
            read = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
            read.whitespace_split = True
            words, skip = [], False
            for word in [*read, ";"]:
                if word.strip("|;&") == "":
                    # Variables may be set before the command.
                    while words and re.match(r"\w+=", words[0]):
                        words = words[1:]
                    if words:
                        yield words
                    words = []
                elif word.strip("<>") == "":
                    # What follows is the name of a file.
                    skip = True
                elif skip:
                    skip = False
                else:
                    words.append(word)


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


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_says_what_it_is_and_every_example_whether_it_runs(page):
    here = blocks(page.read_text())
    assert [block.line for block in here if not block.language] == []
    assert [block.line for block in here if block.language == "python" and not block.is_marked] == []
    assert {word for block in here for word in block.given} <= set(GIVEN)
    # Every mark stands before a block that can run.
    runs = [block for block in here if block.need is not None]
    assert all(block.language in ("python", *SHELLS) for block in runs)
    assert len(runs) == len(re.findall(r"^\s*<!-- run\b.*-->$", page.read_text(), flags=re.MULTILINE))


def test_a_mark_is_read_as_it_is_meant():
    fence = "```python\n1\n```\n"
    marks = ["run", "run: training, given ids, codes", "does not run: no", "nothing", "run: nothing"]
    here = blocks("".join(f"<!-- {mark} -->\n{fence}\n" for mark in marks))
    assert [block.need for block in here] == ["", "training", None, None, "nothing"]
    assert [block.given for block in here] == [[], ["ids", "codes"], [], [], []]
    assert [block.is_marked for block in here] == [True, True, True, False, False]


def test_what_examples_need_is_there():
    assert all(pages_that_need(need) for need in NEEDS)
    assert all((ROOT / file).is_file() and f'"{need}"' in (ROOT / file).read_text() for need, file in NEEDS.items())


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """The files of a reader."""
    pytest.importorskip("PIL")
    folder = tmp_path_factory.mktemp("reader")
    reader_folder(folder)
    return folder


@pytest.mark.parametrize("page", pages_that_need(""), ids=name)
def test_marked_examples_run_and_print_what_the_page_says(page, files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    run_page(page)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_json_of_pages_is_json(page):
    for block in blocks(page.read_text()):
        if block.language == "json":
            json.loads(block.text.replace("[...]", "[]"))


@cache
def parser():
    """Return the parser of the command."""
    typer = pytest.importorskip("typer")
    from hamtarget.cli.main import app

    return typer.main.get_command(app)


def parse(words):
    """Parse the words of a command `hamtarget ...` by the command's own parser; nothing is done.

    Raises:
        UsageError: the words are wrong.
    """
    command, context = parser(), None
    while hasattr(command, "commands"):
        context = command.make_context(words[0], list(words[1:]), parent=context)
        words = [*context._protected_args, *context.args]
        command = command.commands[words[0]]
    command.make_context(words[0], list(words[1:]), parent=context)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_is_one_that_the_parser_takes(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in commands(page.read_text()):
        if Path(words[0]).name == "hamtarget" and "--help" not in words:
            parse(words)


def test_a_wrong_option_is_seen():
    # typer has its own copy of click, or does not, by its version.
    with pytest.raises(Exception, match="No such option: --nearst"):
        parse(["hamtarget", "search", "store", "--id", "7", "--nearst", "3"])


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_options_in_the_prose_exist(page):
    verbs = parser().commands
    for verb, rest in re.findall(r"`hamtarget ([a-z]+)\b([^`]*)`", re.sub(r"\s*\n\s*", " ", page.read_text())):
        command = verbs[verb]
        parameters = [found for each in (command, *getattr(command, "commands", {}).values()) for found in each.params]
        known = {option for found in parameters for option in (*found.opts, *found.secondary_opts)}
        asked = {word.partition("=")[0] for word in rest.split() if re.match(r"--[a-z]", word)}
        assert asked - known - {"--help"} == set(), f"hamtarget {verb}{rest}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_verb_exists(page):
    verbs = set(parser().commands)
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
    named = set(re.findall(r"(\w+)/", tree))
    folders = {
        folder.name
        for room in ("native", "src/hamtarget", "research", "tests")
        for folder in (ROOT / room).iterdir()
        if folder.is_dir() and any(folder.iterdir()) and not folder.name.startswith(("_", "."))
    }
    assert folders - named == set()


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
