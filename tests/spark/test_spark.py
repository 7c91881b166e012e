"""Joins in Spark find what comparing everything finds, to the last pair; bad input is named before a job starts."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

from hamtarget.codes import distances
from hamtarget.encoders.onnx_encoder import OnnxEncoder
from hamtarget.errors import DtypeError, FileError, InputError, ShapeError
from hamtarget.search import MultiIndex, pairs_within
from page_examples import name as page_name
from page_examples import pages_that_need, run_page

for package in ("pyspark", "pyarrow", "pandas"):
    pytest.importorskip(package, reason=f"{package} is not installed, Spark's joins are NOT tested: make test-spark")
if shutil.which("java") is None:
    pytest.skip("Java is not installed: Spark cannot start, its joins are NOT tested", allow_module_level=True)

from py4j.protocol import Py4JJavaError  # noqa: E402
from pyspark.errors import PySparkException  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402

from hamtarget.integrations.spark import check_codes, encode, near_duplicates, radius_join  # noqa: E402


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """One small session for all tests."""
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        # So little work is done before the better compiler has started.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("hamtarget tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as patch:
        # Workers are to find the packages that are here.
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


def clustered(n_rows, n_bytes, *, seed, flip=0.03):
    random = np.random.default_rng(seed)
    n_centres = max(1, n_rows // 8)
    codes = random.integers(0, 256, (n_centres, n_bytes), dtype=np.uint8)[random.integers(0, n_centres, n_rows)]
    return codes ^ np.packbits(random.random((n_rows, 8 * n_bytes)) < flip, axis=1, bitorder="little")


def longs(codes):
    """Little-endian longs of packed codes, filled up with zeros."""
    padded = np.zeros((len(codes), -(-codes.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : codes.shape[1]] = codes
    return padded.view("<i8").tolist()


def table(spark, codes, kind="binary", ids=None):
    """A DataFrame of ids and codes."""
    ids = range(len(codes)) if ids is None else ids
    if kind == "binary":
        values, type_ = [bytearray(code.tobytes()) for code in codes], "binary"
    elif kind == "long":
        values, type_ = [words[0] for words in longs(codes)], "bigint"
    else:
        values, type_ = longs(codes), "array<bigint>"
    id_type = "string" if len(codes) and isinstance(ids[0], str) else "bigint"
    return spark.createDataFrame(list(zip(ids, values, strict=True)), f"id {id_type}, code {type_}")


def found(df):
    """Rows of a result, sorted; a pair that is there twice is there twice."""
    assert df.columns == ["a", "b", "distance"]
    return sorted(tuple(row) for row in df.collect())


def naive_pairs(codes, radius):
    apart = distances(codes, codes, 8 * codes.shape[1])
    a, b = np.nonzero(np.triu(apart <= radius, k=1))
    return list(zip(a.tolist(), b.tolist(), apart[a, b].tolist(), strict=True))


@pytest.mark.parametrize(
    ("n_bytes", "kind", "radius", "tile_rows"),
    [
        (8, "binary", 2, None),
        (8, "long", 0, None),
        (3, "long", 3, 5),
        (16, "array", 6, None),
        (9, "binary", 2, None),
    ],
)
def test_all_near_duplicates_and_no_other(spark, n_bytes, kind, radius, tile_rows):
    codes = clustered(250, n_bytes, seed=n_bytes + radius)
    wanted = naive_pairs(codes, radius)
    assert len(wanted) > 20
    df = table(spark, codes, kind)
    assert found(near_duplicates(df, radius, n_bits=8 * n_bytes, tile_rows=tile_rows)) == wanted


@pytest.mark.parametrize("tile_rows", [None, 3])
def test_a_join_of_two_sets_whose_columns_have_other_types(spark, tile_rows):
    codes = clustered(400, 8, seed=1)
    left, right = codes[:150], codes[150:]
    names = [f"row {number:03}" for number in range(len(right))]
    apart = distances(left, right, 64)
    wanted = [(a, names[b], int(apart[a, b])) for a, b in np.argwhere(apart <= 2).tolist()]
    assert len(wanted) > 20
    joined = radius_join(table(spark, left), table(spark, right, "long", names), 2, tile_rows=tile_rows)
    assert found(joined) == wanted


def test_many_rows_equal_the_index_and_go_through_parquet(spark, tmp_path):
    codes = clustered(8_000, 8, seed=2)
    random = np.random.default_rng(2)
    ids = random.permutation(10**12 + np.arange(len(codes)))
    # One substring that a quarter of the rows share: 2,000 rows, tiles of 500.
    codes[::4, :2], codes[::4, 2] = 0, codes[::4, 2] & 0xC0
    index = MultiIndex(64, 2)
    index.add(ids, codes)
    wanted = sorted(pair for block in pairs_within(index) for pair in zip(*(c.tolist() for c in block), strict=True))
    table(spark, codes, ids=ids.tolist()).repartition(4).write.parquet(str(tmp_path / "codes"))
    near_duplicates(spark.read.parquet(str(tmp_path / "codes")), 2, tile_rows=500).write.parquet(str(tmp_path / "out"))
    assert found(spark.read.parquet(str(tmp_path / "out"))) == wanted


def test_a_frequent_substring_is_cut_into_tiles(spark):
    from hamtarget.integrations.spark import _CodeTable, _Cut, _large_buckets

    codes = np.random.default_rng(3).integers(0, 256, (600, 8), dtype=np.uint8)
    codes[:300, :3] = 7
    rows = _CodeTable(table(spark, codes), 64, "id", "code", "df").rows()
    large = _large_buckets(rows, rows.where("id < 60"), _Cut(64, 2), 50).collect()
    # The bits of bytes 0 to 2 hold the first substring, of 22 bits; 300 and 60 rows, in tiles of 50.
    assert [(row["row_tiles"], row["column_tiles"]) for row in large] == [(6, 2)]


def test_tiles_of_a_bucket_are_shared_among_tasks(spark):
    # One bucket, and nothing but it: 200 rows that share the first 22 bits and differ by one or two of the others.
    codes = np.zeros((200, 8), dtype=np.uint8)
    codes[np.arange(200), 3 + np.arange(200) % 5] = 1 << np.arange(200) // 5 % 8
    df = table(spark, codes)
    tasks = {
        tile_rows: near_duplicates(df, 2, tile_rows=tile_rows).select(F.spark_partition_id()).distinct().count()
        for tile_rows in (None, 20)
    }
    assert tasks == {None: 1, 20: 2}


def test_no_rows_give_no_pairs(spark):
    empty = spark.createDataFrame([], "id bigint, code binary")
    assert found(radius_join(empty, table(spark, clustered(5, 8, seed=0)), 2)) == []
    assert check_codes(empty) == 0


def test_columns_may_have_any_name(spark):
    codes = clustered(60, 8, seed=5)
    df = table(spark, codes).toDF("the.id", "a `code`")
    assert found(near_duplicates(df, 2, tile_rows=None, id="the.id", code="a `code`")) == naive_pairs(codes, 2)


@pytest.mark.parametrize(
    ("schema", "arguments", "kind", "text"),
    [
        ("key bigint, code binary", {}, InputError, "df has no columns 'id'; its columns are key, code"),
        ("id bigint, code string", {}, DtypeError, "'code' has type string; expected codes: binary, bigint"),
        ("id bigint, code array<int>", {}, DtypeError, "'code' has type array<int>"),
        ("id double, code binary", {}, DtypeError, "'id' has type double; expected integers or strings"),
        ("id bigint, code bigint", {"n_bits": 128}, ShapeError, "a bigint of 64 bits; n_bits is 128"),
        ("id bigint, code binary", {"n_bits": 65}, InputError, "n_bits is 65"),
        ("id bigint, code binary", {"radius": 64}, InputError, "radius is 64"),
        ("id bigint, code binary", {"radius": "2"}, DtypeError, "radius is '2'"),
        ("id bigint, code binary", {"tile_rows": 0}, InputError, "tile_rows is 0; expected at least 1"),
        ("id bigint, code binary", {"tile_rows": 1.5}, DtypeError, "tile_rows is 1.5; expected an integer or None"),
    ],
)
def test_what_columns_tell_is_refused_before_a_job(spark, schema, arguments, kind, text):
    arguments = dict(arguments)
    radius = arguments.pop("radius", 2)
    df = spark.createDataFrame([], schema)
    with pytest.raises(kind, match=text):
        near_duplicates(df, radius, **arguments)
    right = spark.createDataFrame([], "id bigint, code binary")
    with pytest.raises(kind, match=text.replace("df", "left")):
        radius_join(df, right, radius, **arguments)


def test_something_else_than_a_dataframe_is_refused(spark):
    with pytest.raises(DtypeError, match="df is ndarray; expected a Spark DataFrame"):
        near_duplicates(np.zeros((3, 8), np.uint8), 2)


@pytest.mark.parametrize(
    ("row", "type_", "text"),
    [
        ((2, None), "binary", "'code' holds null"),
        ((None, bytearray(8)), "binary", "'id' holds null"),
        ((2, bytearray(9)), "binary", "'code' holds a code of another width; expected 64 bits"),
        ((2, [1, 2]), "array<bigint>", "'code' holds a code of another width"),
        ((2, [None]), "array<bigint>", "'code' holds a code of another width"),
    ],
)
def test_what_only_rows_tell_is_refused_when_they_are_read(spark, row, type_, text):
    good = [1] if type_.startswith("array") else bytearray(8)
    df = spark.createDataFrame([(0, good), (1, good), row], f"id bigint, code {type_}")
    with pytest.raises(InputError, match=rf"^df: column {text}.* \(1 of 3 rows"):
        check_codes(df)
    with pytest.raises((PySparkException, Py4JJavaError), match=f"hamtarget: df: column {text}"):
        near_duplicates(df, 2, tile_rows=None).collect()


def test_every_side_and_every_way_of_a_join_reads_and_refuses(spark):
    good = table(spark, clustered(4, 8, seed=0))
    bad = spark.createDataFrame([(2, None)], "id bigint, code binary")
    for left, right, name in ((bad, good, "left"), (good, bad, "right")):
        with pytest.raises((PySparkException, Py4JJavaError), match=f"hamtarget: {name}: column 'code' holds null"):
            radius_join(left, right, 2).collect()


def test_bits_past_the_end_of_a_code_are_refused(spark):
    df = spark.createDataFrame([(0, 1), (1, 1 << 24)], "id bigint, code bigint")
    with pytest.raises(InputError, match="another width; expected 24 bits"):
        check_codes(df, 24)
    assert check_codes(df, 32) == 2


def test_neither_torch_nor_the_core_comes_with_it_and_a_missing_package_is_named():
    absent = ["torch", "hamtarget._native", "onnxruntime"]
    script = f"import hamtarget.integrations.spark, sys; print([name for name in {absent} if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
    script = "import sys; sys.modules['pyspark'] = None; import hamtarget.integrations.spark"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "MissingExtraError: hamtarget.integrations.spark needs pyspark, pyarrow and pandas" in told.stderr


def trained_encoder(n_bits):
    """An encoder of 12 numbers, hardly trained, and inputs."""
    from hamtarget.learn import HashEncoder, NetworkOptions, TrainingOptions

    inputs = np.random.default_rng(0).normal(size=(300, 12)).astype(np.float32)
    training = TrainingOptions(steps=3, batch_size=32)
    encoder = HashEncoder(n_bits, "radius", network=NetworkOptions(width=8), training=training, device="cpu")
    return encoder.fit(inputs, np.arange(len(inputs)) % 5), inputs


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """An encoder of 12 numbers, and its file."""
    encoder, inputs = trained_encoder(32)
    path = encoder.export_onnx(tmp_path_factory.mktemp("model"))
    return OnnxEncoder(path), path, inputs


@pytest.mark.filterwarnings("ignore::hamtarget.errors.CrowdedCodesWarning")
def test_workers_encode_without_torch(spark, exported):
    encoder, path, inputs = exported
    df = spark.createDataFrame(
        [(row, values.tolist()) for row, values in enumerate(inputs)], "id int, vector array<double>"
    )
    with_codes = encode(df.repartition(3), path)
    assert dict(with_codes.dtypes) == {"id": "int", "vector": "array<double>", "code": "binary"}
    codes = np.stack([np.frombuffer(row["code"], np.uint8) for row in with_codes.orderBy("id").collect()])
    assert np.array_equal(codes, encoder.encode(inputs))
    assert check_codes(with_codes, 32) == 300
    # Of an open encoder, under another name, and straight into a join.
    pairs = near_duplicates(encode(df, encoder, code="hash"), 2, n_bits=32, code="hash", tile_rows=None)
    assert found(pairs) == naive_pairs(codes, 2)


@pytest.mark.filterwarnings("ignore::hamtarget.errors.CrowdedCodesWarning")
def test_an_encoder_refuses_what_it_cannot_take(spark, exported, tmp_path):
    _, path, _ = exported
    df = spark.createDataFrame([(1, [0.5] * 12, "x")], "id int, vector array<double>, name string")
    with pytest.raises(InputError, match="no columns 'picture'"):
        encode(df, path, inputs="picture")
    with pytest.raises(DtypeError, match="'name' has type string; expected arrays of numbers"):
        encode(df, path, inputs="name")
    with pytest.raises(InputError, match="df has a column 'name' already"):
        encode(df, path, code="name")
    with pytest.raises(FileError, match=r"nothing\.onnx"):
        encode(df, tmp_path / "nothing.onnx")
    for vector, text in (([0.5] * 11, "an array of 11 numbers; .* of 12"), (None, "holds null"), ([None] * 12, "NaN")):
        bad = spark.createDataFrame([(vector,)], "vector array<double>")
        with pytest.raises(PySparkException, match=text):
            encode(bad, path).collect()


@pytest.mark.filterwarnings("ignore::hamtarget.errors.CrowdedCodesWarning")
@pytest.mark.parametrize("page", pages_that_need("spark"), ids=page_name)
def test_examples_in_spark_run(spark, page, tmp_path, monkeypatch):
    trained_encoder(64)[0].export_onnx(tmp_path)
    monkeypatch.chdir(tmp_path)
    # The process of Java began in another folder.
    files = spark._jvm.org.apache.hadoop.fs
    files.FileSystem.get(spark._jsc.hadoopConfiguration()).setWorkingDirectory(files.Path(str(tmp_path)))
    rows = [(row, [float(row + column) for column in range(12)]) for row in range(20)]
    spark.createDataFrame(rows, "id bigint, vector array<float>").write.parquet("vectors")
    new_codes = table(spark, clustered(10, 8, seed=0))
    run_page(page, "spark", namespace={"spark": spark, "new_codes": new_codes}, ignore=[ResourceWarning])
