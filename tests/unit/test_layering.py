"""Who may import whom: the rules of the design, read from the source of every module, at every depth."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hamtarget

ROOT = Path(hamtarget.__file__).parent
REPOSITORY = ROOT.parents[1]
GROUND = {
    "_core",
    "_checks",
    "_exports",
    "_files",
    "_metric",
    "_picture_form",
    "_reading",
    "codes",
    "errors",
    "filters",
    "items",
    "progress",
}

# What is asked, what is wanted, and what is found: above the ground, below everything that answers.
ASKING = GROUND | {"answer", "query", "searchable"}

# For each room, and for each part of a room that has a rule of its own, what it may import besides itself. The longest
# entry that a module lies in is the one that counts. An entry of a set allows that module and all below it.
MAY_IMPORT = {
    **{name: GROUND for name in GROUND},
    "_native": set(),
    # Says one error where the native core is not built.
    "_core": GROUND | {"_native"},
    "answer": GROUND,
    "query": GROUND,
    "searchable": ASKING,
    "encoders": GROUND,
    # Opens what was learned, if torch is there and nothing else can.
    "encoders.opening": GROUND | {"learn"},
    "search": ASKING | {"_native"},
    # Scans on a device of torch: runs where the native core is not built.
    "search.device": ASKING,
    "evaluation": ASKING,
    "evaluation.report": ASKING | {"search.planning"},
    # Alters pictures, and encodes them.
    "evaluation.altered_pictures": ASKING | {"datasets", "encoders.protocol"},
    # Checks vectors as their readers do.
    "evaluation.ground_truth": ASKING | {"datasets"},
    "datasets": GROUND,
    # Reduces pictures for PDQ.
    "datasets.pictures.images": GROUND,
    # Runs where the native core is not built: neither search nor store.
    "learn": GROUND | {"datasets", "encoders.protocol", "encoders.onnx_file", "evaluation.metrics"},
    # Learns on the features of a sentence model, and joins both.
    "learn.fitting.texts": GROUND | {"datasets", "encoders.sentence", "learn"},
    "store": ASKING | {"datasets", "encoders", "search"},
    "copies": ASKING | {"datasets", "encoders", "evaluation", "search"},
    "folders": ASKING | {"copies", "datasets", "encoders", "store"},
    "integrations": GROUND,
    "integrations.ann_benchmarks": ASKING | {"search"},
    "integrations.sklearn": ASKING | {"learn", "search"},
    "integrations.spark": ASKING | {"encoders"},
    "integrations.threatexchange": ASKING | {"search"},
    "demo": ASKING | {"datasets", "encoders", "evaluation", "learn", "search", "store"},
    "serve": ASKING | {"datasets", "encoders", "search", "store"},
    # Whoever calls a service needs none of it.
    "client": GROUND - {"_checks", "_core", "codes"},
    # Everything; and nobody imports cli.
    "cli": ASKING
    | {"copies", "datasets", "demo", "encoders", "evaluation", "folders", "learn", "search", "serve", "store"},
}
# Parts of a room that must not know each other: what lies in the first may import nothing of the second.
STRANGERS = [
    ("store.sqlite", "store.postgres"),
    ("store.postgres", "store.sqlite"),
    ("learn.networks", "learn.losses"),
    ("learn.losses", "learn.networks"),
]
# Packages from outside; "" stands for every room that is not named.
OUTSIDE = {
    "": {"numpy"},
    "client": set(),
    "cli": {"numpy", "rich", "typer"},
    "copies": {"numpy", "PIL"},
    "datasets": {"numpy", "h5py", "PIL"},
    "datasets.pictures.picture_formats": {"PIL", "pillow_heif"},
    "demo": {"numpy", "matplotlib"},
    "encoders": {"numpy"},
    "encoders.onnx_encoder": {"numpy", "onnxruntime"},
    # Joins graphs, and runs them; without torch.
    "encoders.sentence": {"numpy", "onnx", "tokenizers"},
    "evaluation": {"numpy"},
    "evaluation.altered_pictures": {"numpy", "PIL"},
    "evaluation.report": {"numpy", "matplotlib"},
    "integrations.ann_benchmarks": {"numpy", "ann_benchmarks"},
    "integrations.sklearn": {"numpy", "scipy", "sklearn"},
    "integrations.spark": {"numpy", "pandas", "pyarrow", "pyspark"},
    "integrations.threatexchange": {"numpy", "threatexchange"},
    "learn": {"numpy", "onnx", "safetensors", "torch"},
    "learn.losses": {"numpy", "torch"},
    "learn.losses.pair_kernel": {"torch", "triton"},
    "learn.networks": {"numpy", "safetensors", "timm", "torch", "torchvision"},
    "search.device": {"numpy", "torch"},
    "search.device.triton_scan": {"numpy", "torch", "triton"},
    "serve": {"numpy", "PIL", "fastapi", "h11", "prometheus_client", "pydantic", "starlette", "uvicorn", "uvloop"},
    "store.postgres": {"numpy", "psycopg"},
}


def module_of(path):
    """Return the dotted name of a file below the package, without the package's own name."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def lies_in(module, room):
    """Return True if a module is the room, or below it."""
    return module == room or module.startswith(f"{room}.")


def rule_of(module, rules):
    """Return what the longest rule says that the module lies in; None where there is none."""
    known = [room for room in rules if room and lies_in(module, room)]
    return rules[max(known, key=len)] if known else rules.get("")


def imports_of(path):
    """Yield every module that a file imports, wherever in the file that stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports():
    """Yield (importing module, imported name) of the whole package."""
    for path in sorted(ROOT.rglob("*.py")):
        module = module_of(path)
        if module:
            yield from ((module, name) for name in imports_of(path))


def wrongs(found):
    """Yield what is against the rules."""
    for module, name in found:
        package, _, inner = name.partition(".")
        if package != "hamtarget":
            if package not in sys.stdlib_module_names | rule_of(module, OUTSIDE):
                yield f"{module} imports {name}"
            continue
        # The package itself holds the version and imports nothing by itself.
        if not inner or inner == "__version__":
            continue
        # What the package shows at its top lives in some room.
        inner = hamtarget._HOMES.get(inner, inner).removeprefix("hamtarget.")
        room = module.partition(".")[0]
        allowed = rule_of(module, MAY_IMPORT)
        if allowed is None:
            yield f"{module} is in no room"
        elif not lies_in(inner, room) and not any(lies_in(inner, each) for each in allowed):
            yield f"{module} imports {name}"
        elif any(lies_in(module, one) and lies_in(inner, other) for one, other in STRANGERS):
            yield f"{module} imports {name}, which it must not know"


def test_rooms_import_only_what_lies_below_them():
    assert list(wrongs(imports())) == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("search.multi", "hamtarget.store.Store"),
        ("search.multi", "torch"),
        ("learn.losses.probing", "hamtarget.learn.networks.head.HashHead"),
        ("learn.encoder", "hamtarget.search.MultiIndex"),
        ("learn.encoder", "hamtarget.encoders.onnx_encoder.OnnxEncoder"),
        ("store.sqlite.engine", "hamtarget.store.postgres.engine.PostgresEngine"),
        ("store.postgres.engine", "hamtarget.store.sqlite.engine.FolderEngine"),
        ("store.sqlite.engine", "psycopg"),
        ("serve.app", "hamtarget.cli.main.app"),
        ("client", "numpy"),
        ("store.store", "research.peers.faiss_peers"),
        ("attic", "hamtarget.codes.pack"),
    ],
)
def test_the_rules_see_what_is_against_them(module, name):
    assert list(wrongs([(module, name)]))


def test_the_rules_see_every_room():
    rooms = {module.partition(".")[0] for module, _ in imports()}
    assert rooms <= {name.partition(".")[0] for name in MAY_IMPORT}
    assert {"learn", "search", "store"} <= rooms


def test_research_is_beside_the_package():
    assert not any("research" in name.split(".") for _, name in imports())
    assert (REPOSITORY / "research" / "__main__.py").is_file()


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("hamtarget", ["torch", "numpy", "hamtarget._native", "matplotlib", "rich"]),
        ("hamtarget.copies", ["torch", "numpy", "onnxruntime", "PIL", "hamtarget._native"]),
        ("hamtarget.folders", ["torch", "numpy", "onnxruntime", "PIL", "hamtarget._native"]),
        ("hamtarget.encoders", ["torch", "onnx", "onnxruntime", "hamtarget._native"]),
        ("hamtarget.evaluation", ["torch", "matplotlib", "hamtarget._native"]),
        (
            "hamtarget.learn",
            [
                "hamtarget._native",
                "hamtarget.store",
                "matplotlib",
                "onnx",
                "onnxruntime",
                "timm",
                "torchvision",
                "triton",
            ],
        ),
        ("hamtarget.search", ["torch", "numpy", "hamtarget._native"]),
        ("hamtarget.search.planning", ["torch"]),
        ("hamtarget.store", ["torch", "onnxruntime", "PIL", "psycopg", "hamtarget.datasets", "hamtarget.learn"]),
        ("hamtarget.store.postgres.engine", ["torch", "psycopg"]),
        ("hamtarget.cli.main", ["torch", "numpy", "hamtarget._native", "matplotlib"]),
        ("hamtarget.serve", ["torch", "hamtarget._native", "fastapi", "uvicorn"]),
        ("hamtarget.client", ["torch", "numpy", "hamtarget._native", "fastapi", "http.server"]),
        ("hamtarget.datasets", ["torch", "hamtarget._native", "h5py", "PIL"]),
        # Train and score on a machine that only computes.
        ("research.paper.table1", ["hamtarget._native", "matplotlib", "rich", "typer", "PIL"]),
        ("research.peers.faiss_peers", ["torch", "hamtarget._native", "faiss"]),
    ],
)
def test_nothing_slow_or_absent_is_imported(module, absent):
    script = f"import {module}, sys; print([m for m in {absent} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert found.stdout.strip() == "[]"


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


def test_files_of_tests_have_unique_names():
    """Two test files of one name cannot be collected in one run."""
    names = [path.name for path in (REPOSITORY / "tests").rglob("*.py") if path.name != "conftest.py"]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
