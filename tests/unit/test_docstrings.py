"""Docstrings read like a manual: functions begin with a verb, and nothing begins with a word that says nothing."""

import ast
from pathlib import Path

import pytest

import hamtarget

ROOT = Path(hamtarget.__file__).parent
REPOSITORY = ROOT.parents[1]

# What is checked, relative to the repository.
ROOMS = ("research", "src/hamtarget")
BANNED = ("Nothing", "So", "What", "Whether")
# First words of functions. A new verb is welcome: add it here.
VERBS = frozenset(
    """
    Accept Act Add Advise Allow Answer Append Apply Ask Begin Bring Build Call Cancel Change Check Choose Clear
    Close Collect Combine Commit Compact Compare Compute Connect Continue Convert Copy Count Create Cut Decode
    Delete Describe Divide Do Draw Drop Embed Encode End Enter Estimate Explain Export Fill Find Fit Flip Flush
    Follow Force Forget Free Gather Get Give Group Hash Hold Import Index Insert Join Keep Kill Launch Learn Lend
    Let List Listen Load Lock Look Make Map Mark Match Measure Merge Move Name Note Open Pack Parse Pick Place Plan
    Plant Predict Prepare Print Probe Project Put Raise Rank Read Rebuild Recommend Record Refuse Register Release
    Remember Remove Repeat Replace Report Reset Restore Return Run Sample Save Scale Scan Score Search Send Serve
    Set Show Sort Split Spread Start Stop Store Submit Take Tell Test Time Train Translate Try Turn Unpack Update
    Use Vacuum Verify Wait Warn Wrap Write Yield
    """.split()
)
PROPERTIES = {"property", "cached_property", "functools.cached_property", "abc.abstractproperty"}


def files():
    """Yield every Python file of the checked rooms."""
    for room in ROOMS:
        path = REPOSITORY / room
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def docstrings(source):
    """Yield (line, kind, first word) of every docstring in a source; kind is "function" where a verb is due."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node)
        if text:
            decorators = {ast.unparse(each) for each in getattr(node, "decorator_list", [])}
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            kind = "function" if is_function and not decorators & PROPERTIES else "other"
            yield getattr(node, "lineno", 1), kind, text.split()[0].rstrip(".,:;")


def wrongs(source):
    """Yield what is against the rules in a source, with its line."""
    for line, kind, word in docstrings(source):
        if word in BANNED:
            yield f"{line}: begins with {word!r}"
        elif kind == "function" and word not in VERBS:
            yield f"{line}: begins with {word!r}, which is not in VERBS"


def test_docstrings_of_the_rooms():
    found = [f"{path.relative_to(REPOSITORY)}:{wrong}" for path in files() for wrong in wrongs(path.read_text("utf-8"))]
    assert found == []


def test_rooms_exist():
    assert [room for room in ROOMS if not (REPOSITORY / room).exists()] == []
    assert list(ROOMS) == sorted(ROOMS)


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ('"""Whether it rains."""', True),
        ('class A:\n    """What rains."""', True),
        ('def f():\n    """Nothing; it rains."""', True),
        ('def f():\n    """The rain."""', True),
        ('async def f():\n    """Rain of today."""', True),
        ('def f():\n    """Return the rain."""', False),
        ('class A:\n    @property\n    def f(self):\n        """Millimetres of rain."""', False),
        ('class A:\n    @property\n    def f(self):\n        """Whether it rains."""', True),
        ("def f():\n    return 1", False),
    ],
)
def test_the_rules_see_what_is_against_them(source, wrong):
    assert bool(list(wrongs(source))) is wrong
