"""`files` of Parquet and Zarr."""

import numpy as np
import pyarrow as pa
import pytest
import zarr
from pyarrow import parquet

import arrayferry as af


def test_parquet(tmp_path):
    for number in range(2):
        x = np.arange(6) + 10 * number
        table = pa.table(
            {
                "x": x,
                "pixels": pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(x, 2)), 2),
                "name": ["a"] * 6,
            }
        )
        parquet.write_table(table, tmp_path / f"{number}.parquet", row_group_size=4)
    stream = af.stream(af.files(f"{tmp_path}/*.parquet", ["x", "pixels"]), "torch")
    assert [block["x"].tolist() for block in stream] == [
        [0, 1, 2, 3],
        [4, 5],
        [10, 11, 12, 13],
        [14, 15],
    ]
    assert stream[1]["pixels"].tolist() == [[4, 4], [5, 5]]


def test_a_column_that_cannot_be_converted_is_named(tmp_path):
    parquet.write_table(pa.table({"x": [1], "name": ["a"]}), tmp_path / "x.parquet")
    with pytest.raises(af.UnsupportedDtypeError, match=r"string.*x\.parquet'\]\['name'\].*names="):
        af.files(tmp_path / "x.parquet")
    with pytest.raises(af.OptionError, match=r"has no 'y'. It has x, name\."):
        af.files(tmp_path / "x.parquet", "y")


def test_missing_values(tmp_path):
    parquet.write_table(pa.table({"x": [1, None]}), tmp_path / "x.parquet")
    words = r"missing values.*x\.parquet'\]\['x'\].*without nulls"
    with pytest.raises(af.ArrayFerryError, match=words):
        af.stream(af.files(tmp_path / "x.parquet"), "torch")[0]


def test_a_zarr_array_without_rows(tmp_path):
    zarr.create_array(tmp_path / "0.zarr", data=np.zeros((0, 2)))
    zarr.create_array(tmp_path / "1.zarr", data=np.ones((3, 2)))
    assert af.convert(af.files(tmp_path / "0.zarr"), "numpy").shape == (0, 2)
    assert af.convert(af.files(tmp_path), "numpy").tolist() == [[1.0, 1.0]] * 3


@pytest.mark.parametrize("named", [False, True])
def test_zarr(tmp_path, named):
    for number in range(2):
        path = tmp_path / f"{number}.zarr"
        data = np.arange(10).reshape(5, 2) + 100 * number
        if named:
            zarr.open_group(path, mode="w").create_array("x", data=data, chunks=(2, 2))
        else:
            zarr.create_array(path, data=data, chunks=(2, 2))
    arrays = af.files(f"{tmp_path}/*.zarr")
    stream = af.stream(arrays["x"] if named else arrays, "numpy")
    assert [len(block) for block in stream] == [2, 2, 1] * 2
    assert stream[5].tolist() == [[108, 109]]


@pytest.mark.parametrize(
    ("suffix", "is_folder"), [("parquet", False), ("zarr", False), ("zarr", True)]
)
def test_a_damaged_file_is_named(suffix, is_folder, tmp_path):
    path = tmp_path / f"bad.{suffix}"
    path.mkdir() if is_folder else path.write_bytes(b"damaged")
    with pytest.raises(af.OptionError, match=rf"bad\.{suffix} cannot be read"):
        af.files([path])


def test_a_damaged_row_group_is_named(tmp_path):
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"x": [77] * 5}), path, compression="none", use_dictionary=False)
    stream = af.stream(af.files(path), "torch")
    path.write_bytes(path.read_bytes()[:20] + b"\xff" * 30 + path.read_bytes()[50:])
    with pytest.raises(af.BlockError, match=r"x\.parquet cannot be read"):
        stream[0]
