"""Reading a file runs no code: nothing in the package can unpickle or evaluate; files that ask for it are refused."""

import ast
import pickle
from pathlib import Path

import numpy as np
import pytest

import hamtarget
from hamtarget.datasets import open_vectors
from hamtarget.errors import HamtargetError

ROOT = Path(hamtarget.__file__).parent
# Modules that turn bytes into code or objects of any class.
MODULES = {"code", "dill", "joblib", "marshal", "pickle", "runpy", "shelve"}
CALLS = {"eval", "exec", "__import__", "torch.load", "yaml.load", "pickle.load", "pickle.loads", "os.system"}


def wrongs(source):
    """Yield what could run code from outside, with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (f"{node.lineno}: imports {name}" for name in names if name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.Call):
            if ast.unparse(node.func) in CALLS:
                yield f"{node.lineno}: calls {ast.unparse(node.func)}"
            for keyword in node.keywords:
                if keyword.arg in ("allow_pickle", "shell") and ast.unparse(keyword.value) != "False":
                    yield f"{node.lineno}: passes {keyword.arg}"


def test_nothing_in_the_package_can():
    sources = {path.relative_to(ROOT): path.read_text() for path in sorted(ROOT.rglob("*.py"))}
    found = [f"{path}:{wrong}" for path, source in sources.items() for wrong in wrongs(source)]
    assert found == []


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from pickle import loads", "torch.load(path)", "np.load(path, allow_pickle=True)", "eval(text)"],
)
def test_the_rule_sees_what_could(source):
    assert list(wrongs(source))


class Evil:
    def __init__(self, touched):
        self.touched = touched

    def __reduce__(self):
        return (Path.touch, (self.touched,))


@pytest.mark.parametrize("name", ["rows.npy", "rows.npz", "rows.fvecs", "rows.bvecs"])
def test_a_file_of_vectors_with_an_object_inside_is_refused(tmp_path, name):
    touched = tmp_path / "touched"
    objects = np.array([Evil(touched)], dtype=object)
    path = tmp_path / name
    if name.endswith(".npy"):
        np.save(path, objects, allow_pickle=True)
    elif name.endswith(".npz"):
        np.savez(path, vectors=objects)
    else:
        path.write_bytes(pickle.dumps(Evil(touched)))
    with pytest.raises(HamtargetError):
        open_vectors(path)[:1]
    assert not touched.exists()
    # The file is what it claims to be: whoever unpickles it runs the code.
    if name.endswith(".npy"):
        np.load(path, allow_pickle=True)
        assert touched.exists()
