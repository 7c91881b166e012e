"""The examples in docstrings run and print what they say. New ones are found by themselves."""

import doctest
import importlib
from pathlib import Path

import numpy as np
import pytest

import hamtarget
from hamtarget.errors import MissingExtraError

ROOT = Path(hamtarget.__file__).parent
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def modules_with_examples():
    """Return the names of all modules of the package whose text holds an example."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        if ">>> " in path.read_text():
            parts = path.relative_to(ROOT.parent).with_suffix("").parts
            found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


@pytest.mark.parametrize("module", modules_with_examples())
def test_examples(module, tmp_path, monkeypatch):
    try:
        code = importlib.import_module(module)
    except MissingExtraError as error:
        pytest.skip(str(error))
    # An example may write files, and finds none of another.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAMTARGET_CACHE", str(tmp_path / "cache"))
    report = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    # A lazy package shows in dir() what other modules define; the finder leaves out what is not the module's own.
    examples = [test for test in doctest.DocTestFinder(exclude_empty=True).find(code, module) if test.examples]
    for example in examples:
        source = "".join(step.source for step in example.examples)
        # As in numpy's own examples, readers know where np comes from, and where the package's first names do.
        known = {name: getattr(hamtarget, name) for name in hamtarget.__all__ if name in source}
        example.globs = {"np": np, **known, **example.globs}
        runner.run(example, out=report.append)
    assert examples, f"{module} holds >>> outside of a docstring that doctest finds"
    assert not report, "".join(report)


def test_there_are_examples_in_every_settled_room():
    rooms = {module.split(".")[1] for module in modules_with_examples() if "." in module}
    assert {"codes", "datasets", "encoders", "errors", "evaluation"} <= rooms
