"""The public surface: every name a user may import, held in one list, so that it changes only on purpose."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import hamtarget
from hamtarget.errors import MissingExtraError

ROOT = Path(hamtarget.__file__).parent
MOST_NAMES = 96

# The complete surface. A name that several modules show counts once. Types that only results have, such as that of an
# evaluation or of the costs of a batch, are not in it: calls return them, and their modules show them to annotations.
SURFACE = {
    "hamtarget": [
        "Asked",
        "Bounds",
        "Encoder",
        "FlatIndex",
        "HammingTargetLoss",
        "HashEncoder",
        "HashModel",
        "MultiIndex",
        "NeighborIndex",
        "OnnxEncoder",
        "Query",
        "Store",
        "Work",
        "open_encoder",
    ],
    "hamtarget.answer": ["Answer", "Hit"],
    "hamtarget.client": ["AsyncClient", "Client"],
    "hamtarget.codes": ["distances", "from_logits", "pack", "unpack"],
    "hamtarget.copies": ["find_copies"],
    "hamtarget.datasets": [
        "ImageSet",
        "fashion_sample",
        "open_vectors",
        "read_images",
    ],
    "hamtarget.encoders": ["Encoder", "ITQ", "LSH", "OnnxEncoder", "open_encoder", "register_encoder"],
    "hamtarget.errors": [
        "BusyError",
        "ClosedError",
        "CorruptFileError",
        "CrowdedCodesWarning",
        "DtypeError",
        "FileError",
        "HamtargetError",
        "ImageError",
        "InputError",
        "InputRangeWarning",
        "LimitError",
        "LockedError",
        "LostChangesError",
        "LostChangesWarning",
        "MissingExtraError",
        "NotFiniteError",
        "NotFittedError",
        "PrivilegeError",
        "ReadOnlyError",
        "ServerError",
        "ServiceError",
        "ShapeError",
        "SimilarityError",
        "TrainingError",
        "UnsupportedFileError",
        "WriteError",
    ],
    "hamtarget.evaluation": [
        "advise_radius",
        "by_label",
        "evaluate_codes",
        "exact_neighbors",
        "mean_average_precision",
        "precision_recall_by_radius",
    ],
    "hamtarget.filters": ["Condition", "Filter", "Range"],
    "hamtarget.folders": ["sync_folder"],
    "hamtarget.integrations.sklearn": ["HashTransformer", "NeighborTransformer"],
    "hamtarget.integrations.spark": ["check_codes", "encode", "near_duplicates", "radius_join"],
    "hamtarget.items": ["Item"],
    "hamtarget.learn": [
        "ClassCodes",
        "CropFlipColor",
        "Custom",
        "GroupBatchSampler",
        "HammingTargetLoss",
        "HashEncoder",
        "HashModel",
        "Labels",
        "MultiLabels",
        "Neighbors",
        "NetworkOptions",
        "PairLoss",
        "ProbingLoss",
        "SimilarPairs",
        "Similarity",
        "TrainingOptions",
        "backbone",
        "train",
    ],
    "hamtarget.query": ["Asked", "Bounds", "Query", "Work"],
    "hamtarget.search": [
        "Answer",
        "Embeddings",
        "FlatIndex",
        "Hit",
        "MultiIndex",
        "NeighborIndex",
        "pairs_within",
        "unit_int8",
    ],
    "hamtarget.searchable": ["Searchable"],
    "hamtarget.serve": ["ServiceSettings", "run", "serving"],
    "hamtarget.store": ["Item", "Mirror", "Range", "Store"],
}

# A docstring that begins so tells a reader nothing.
BANNED = ("Nothing", "Whether", "What")


def imported(module):
    """Return the module, or skip the test if an optional package is missing."""
    try:
        return importlib.import_module(module)
    except MissingExtraError as error:
        pytest.skip(str(error))


def docstring(module, name):
    """Return the docstring that was written for a public name, or None."""
    found = getattr(imported(module), name)
    if inspect.isclass(found) or inspect.isroutine(found):
        text = vars(found).get("__doc__") if inspect.isclass(found) else found.__doc__
        # Dataclasses and named tuples without a docstring get one that repeats their arguments.
        return None if text is None or text.startswith(f"{name}(") else inspect.cleandoc(text)
    return attribute_docstring(module, name)


def attribute_docstring(module, name):
    """Return the string that follows the assignment of a constant or a type alias, wherever its room defines it."""
    home = ROOT.joinpath(*module.split(".")[1:])
    files = sorted(home.rglob("*.py")) if home.is_dir() else [home.with_suffix(".py")]
    for path in [*files, *sorted(ROOT.glob("*.py"))]:
        body = ast.parse(path.read_text()).body
        for statement, after in zip(body, body[1:], strict=False):
            targets = getattr(statement, "targets", [getattr(statement, "target", None)])
            named = any(isinstance(target, ast.Name) and target.id == name for target in targets)
            if named and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                return inspect.cleandoc(str(after.value.value))
    return None


def written_all(path):
    """Return the names of `__all__` as the file writes them, or None if it has none."""
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return [ast.literal_eval(element) for element in statement.value.elts]
    return None


def test_there_are_few_names():
    names = {name for names in SURFACE.values() for name in names}
    assert len(names) <= MOST_NAMES, f"{len(names)} public names"


def test_the_list_is_sorted():
    assert list(SURFACE) == sorted(SURFACE)
    assert [module for module, names in SURFACE.items() if names != sorted(names)] == []


def test_the_list_knows_every_public_module():
    public = {
        f"hamtarget.{path.stem}"
        for path in ROOT.iterdir()
        if not path.name.startswith("_") and (path.suffix == ".py" or (path / "__init__.py").is_file())
    }
    # Users start the command line and the demonstration, and import neither. `integrations` only holds others.
    apart = {"hamtarget.cli", "hamtarget.demo", "hamtarget.integrations", "hamtarget.progress"}
    assert public - apart <= set(SURFACE)


@pytest.mark.parametrize("module", sorted(SURFACE))
def test_the_names_of_a_module(module):
    path = ROOT.joinpath(*module.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    assert (written_all(path) or []) == SURFACE[module]
    assert dir(imported(module)) == SURFACE[module]


@pytest.mark.parametrize(("module", "name"), [(module, name) for module in sorted(SURFACE) for name in SURFACE[module]])
def test_the_docstring_of_a_name(module, name):
    text = docstring(module, name)
    assert text, f"{module}.{name} has no docstring"
    assert not re.match(rf"({'|'.join(BANNED)})\b", text), text.splitlines()[0]


def test_a_name_that_does_not_exist_is_an_attribute_error():
    for module in sorted(SURFACE):
        with pytest.raises(AttributeError, match="no_such_name"):
            _ = imported(module).no_such_name
