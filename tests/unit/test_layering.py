"""Who may import whom: the rules of the design, read from the source of every module."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hamtarget

ROOT = Path(hamtarget.__file__).parent
GROUND = {"codes", "errors", "expected_precision", "files", "metrics", "onnx_file", "planning", "protocol"}
MAY_IMPORT = {
    **{name: GROUND for name in GROUND},
    "_native": set(),
    "data": GROUND,
    "search": GROUND | {"_native"},
    "learn": GROUND,
    "onnx_encoder": GROUND,
    "encoders": GROUND | {"learn", "onnx_encoder"},
    "store": GROUND | {"data", "encoders", "search"},
    "evaluation": GROUND,
    "sklearn": GROUND | {"learn"},
    "spark": GROUND | {"onnx_encoder"},
    "baselines": GROUND | {"learn", "search"},
    "paper": GROUND | {"baselines", "data", "learn", "search"},
    "demo": GROUND | {"baselines", "data", "learn", "search", "store"},
    "serve": GROUND | {"data", "encoders", "search", "store"},
    # Whoever calls a service needs none of it.
    "client": GROUND,
    # Everything; and nobody imports cli.
    "cli": GROUND
    | {
        "baselines",
        "data",
        "demo",
        "encoders",
        "evaluation",
        "learn",
        "onnx_encoder",
        "paper",
        "search",
        "serve",
        "store",
    },
}
# Packages from outside; "" stands for every layer that is not named.
OUTSIDE = {
    "": {"numpy"},
    "baselines": {"numpy", "faiss"},
    "data": {"numpy", "h5py", "PIL"},
    "learn": {"numpy", "onnx", "safetensors", "timm", "torch", "torchvision", "triton"},
    "evaluation": {"numpy", "matplotlib"},
    "onnx_encoder": {"numpy", "onnxruntime"},
    "paper": {"numpy", "matplotlib", "torch"},
    "sklearn": {"numpy", "sklearn"},
    "store": {"numpy", "psycopg"},
    "spark": {"numpy", "pandas", "pyarrow", "pyspark"},
    "demo": {"numpy", "matplotlib"},
    "cli": {"numpy", "rich", "typer"},
    "serve": {"numpy", "PIL", "fastapi", "h11", "prometheus_client", "pydantic", "starlette", "uvicorn"},
    "client": set(),
}


def imports():
    """(file, layer, imported module) of every import, wherever in the file it stands."""
    for path in sorted(ROOT.rglob("*.py")):
        layer = path.relative_to(ROOT).with_suffix("").parts[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for name in names:
                yield str(path.relative_to(ROOT)), layer, name


def test_layers_import_only_what_lies_below_them():
    wrong = []
    for file, layer, name in imports():
        parts = name.split(".")
        if layer == "__init__":
            continue
        if name == "hamtarget":
            # The package itself holds the version and imports nothing by itself.
            continue
        if parts[0] == "hamtarget":
            if parts[1] != layer and parts[1] not in MAY_IMPORT[layer]:
                wrong.append(f"{file} imports {name}")
        elif parts[0] not in sys.stdlib_module_names | OUTSIDE.get(layer, OUTSIDE[""]):
            wrong.append(f"{file} imports {name}")
    assert wrong == []


def test_the_rules_see_every_layer():
    layers = {layer for _, layer, _ in imports()}
    assert layers - {"__init__"} <= set(MAY_IMPORT)
    assert {"learn", "search", "metrics"} <= layers


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("hamtarget", ["torch", "hamtarget._native", "matplotlib", "rich"]),
        ("hamtarget.encoders", ["torch", "onnxruntime", "hamtarget._native"]),
        ("hamtarget.onnx_encoder", ["torch", "onnx", "onnxruntime", "hamtarget._native"]),
        ("hamtarget.learn", ["hamtarget._native", "hamtarget.search", "matplotlib", "timm", "torchvision", "triton"]),
        ("hamtarget.learn", ["onnx", "onnxruntime"]),
        ("hamtarget.search", ["torch"]),
        ("hamtarget.store", ["torch", "onnxruntime", "PIL", "psycopg", "hamtarget.data", "hamtarget.learn"]),
        ("hamtarget.store.postgres.engine", ["torch", "psycopg"]),
        ("hamtarget.baselines", ["torch", "hamtarget._native", "faiss"]),
        ("hamtarget.baselines.faiss_peers", ["torch", "hamtarget._native", "faiss"]),
        ("hamtarget.cli.main", ["torch", "numpy", "hamtarget._native", "matplotlib", "hamtarget.paper.figure2"]),
        # Trains and scores on a machine that only computes.
        ("hamtarget.paper.table1", ["hamtarget._native", "matplotlib", "rich", "typer", "PIL"]),
        ("hamtarget.serve", ["torch", "hamtarget._native", "fastapi", "uvicorn"]),
        ("hamtarget.client", ["torch", "hamtarget._native", "fastapi", "http.server"]),
        ("hamtarget.data", ["torch", "hamtarget._native", "h5py", "PIL"]),
    ],
)
def test_nothing_slow_or_absent_is_imported(module, absent):
    script = f"import {module}, sys; print([m for m in {absent} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_public_names_are_sorted_and_there():
    import hamtarget.baselines
    import hamtarget.data
    import hamtarget.learn
    import hamtarget.search
    import hamtarget.store
    import hamtarget.store.postgres

    layers = (hamtarget.learn, hamtarget.search, hamtarget.store, hamtarget.baselines, hamtarget.data)
    for module in (hamtarget, *layers, hamtarget.store.postgres):
        assert module.__all__ == sorted(module.__all__)
        for name in module.__all__:
            assert getattr(module, name) is not None
            assert name in dir(module)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        hamtarget.nothing  # noqa: B018


def test_there_is_one_version():
    from importlib.metadata import version

    assert version("hamtarget") == hamtarget.__version__


def test_validation_does_not_use_assert():
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted(ROOT.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assert)
    ]
    assert wrong == []
