"""Every idea is said once: rules of the house that are read from the source of every module."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import hamtarget

ROOT = Path(hamtarget.__file__).parent
VERBS = {"search", "search_batch", "nearest", "nearest_batch", "match", "match_batch", "probe", "probe_batch"}
# Whoever answers the verbs for other things than codes, or for another machine.
OTHER_VERBS = {
    # Finds vectors, and speaks the same words.
    "search.neighbor_index.NeighborIndex": {"nearest", "nearest_batch"},
    # Asks a service, which has a word of its own for a search with a budget.
    "client.blocking_client.Client": VERBS - {"match_batch"},
    "client.asyncio_client.AsyncClient": VERBS - {"match_batch"},
    # Answers requests of such clients.
    "serve.service.Service": {"search", "search_batch", "match"},
    "serve.lanes.work.ServiceWork": {"search"},
}
# What one argument, `work`, says.
PARTS_OF_WORK = {"bounds", "limits", "threads", "progress", "cost", "costs"}


def modules():
    """Yield the dotted name and the tree of every module."""
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        yield name, ast.parse(path.read_text())


def functions(tree, inside=()):
    """Yield the functions of a module with the names that they lie in; those within functions are not seen."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from functions(node, (*inside, node.name))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (*inside, node.name), node


def every_function():
    """Yield the dotted name and the node of each function, however deep it lies."""
    for module, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{module}.{node.name}", node


def names_of(function):
    """Return the names of a function's arguments."""
    given = function.args
    return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def annotated(function):
    """Return the arguments of a function that are a `Work`."""
    given = function.args
    arguments = (*given.posonlyargs, *given.args, *given.kwonlyargs)
    return {
        each.arg
        for each in arguments
        if each.annotation is not None and ast.unparse(each.annotation) in ("Work", "Work | None")
    }


def takes_parts(function):
    """Return what a function takes of a `Work` where it should take the whole."""
    parts = PARTS_OF_WORK & set(names_of(function))
    return parts | annotated(function) if len(parts) > 1 or (parts and annotated(function)) else set()


def keeps_work(function):
    """Yield the attributes in which a function keeps a `Work` that it was given, or makes one."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            value = node.value
            is_made = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "Work"
            is_given = isinstance(value, ast.Name) and value.id in annotated(function)
            if is_made or is_given:
                yield from (each.attr for each in node.targets if isinstance(each, ast.Attribute))


def test_one_class_writes_the_verbs():
    found = defaultdict(set)
    for module, tree in modules():
        for (*inside, name), _ in functions(tree):
            if name in VERBS and inside:
                found[".".join((module, *inside))].add(name)
    assert found.pop("searchable.Searchable") == VERBS - {"probe", "probe_batch"}
    assert {place: names - OTHER_VERBS.get(place, set()) for place, names in found.items()} == {
        place: set() for place in found
    }


def test_no_public_function_takes_whatever_is_given():
    wrong = [
        ".".join((module, *name))
        for module, tree in modules()
        for name, node in functions(tree)
        if node.args.kwarg is not None and not any(part.startswith("_") for part in (*module.split("."), *name))
    ]
    assert wrong == []


def test_work_is_one_argument():
    assert {name: sorted(takes_parts(node)) for name, node in every_function() if takes_parts(node)} == {}


def test_work_travels_as_an_argument():
    assert [(name, attribute) for name, node in every_function() for attribute in keeps_work(node)] == []
    imported = {
        name
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and "contextvars" in ast.unparse(node)
    }
    assert imported == set()


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("def f(codes, threads): ...", set()),
        ("def f(codes, threads, progress): ...", {"threads", "progress"}),
        ("def f(codes, *, work: Work | None, limits): ...", {"work", "limits"}),
        ("def f(codes, *, work: Work): ...", set()),
    ],
)
def test_the_rules_see_what_is_against_them(source, parts):
    (function,) = ast.parse(source).body
    assert takes_parts(function) == parts


def test_the_rules_see_work_that_is_kept():
    (function,) = ast.parse("def f(self, work: Work):\n    self.work = work\n    self.other = Work()").body
    assert [*keeps_work(function)] == ["work", "other"]
