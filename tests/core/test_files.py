"""`files`: a run of files as one source of blocks."""

import pickle
import sys
import zipfile

import numpy as np
import pytest

import arrayferry as af

N = 3


def write(folder, number, **arrays):
    np.savez(folder / f"part-{number}.npz", **arrays)


@pytest.fixture
def folder(tmp_path):
    for number in range(N):
        write(tmp_path, number, x=np.full((4 + number, 2), number, "f4"), y=np.arange(4 + number))
    return tmp_path


def test_each_file_is_a_block(folder):
    stream = af.stream(af.files(f"{folder}/*.npz"), "torch")
    assert [len(block["x"]) for block in stream] == [4, 5, 6]
    for block in (stream[2], pickle.loads(pickle.dumps(stream))[2]):
        assert block["x"].tolist() == [[2.0, 2.0]] * 6
        assert block["y"].tolist() == [*range(6)]


def test_a_folder(folder):
    (folder / "_SUCCESS").write_text("")
    assert len(af.stream(af.files(folder), "numpy")) == N


def test_files_in_the_order_given(folder):
    paths = [folder / "part-2.npz", str(folder / "part-0.npz")]
    whole = af.convert(af.files(paths, ["y"]), "numpy")
    assert [*whole] == ["y"]
    assert whole["y"].tolist() == [*range(6), *range(4)]


def test_only_what_a_block_needs_is_read(folder):
    stream = af.stream(af.files(f"{folder}/*.npz", names=["x"]), "numpy")
    (folder / "part-1.npz").unlink()
    assert len(stream[0]["x"]) == 4
    with pytest.raises(af.BlockError, match=r"part-1\.npz"):
        stream[1]


def test_arrays_without_a_name(tmp_path):
    for number in range(2):
        np.save(tmp_path / f"{number}.npy", np.asfortranarray(np.arange(6).reshape(3, 2) + number))
    stream = af.stream(af.files(f"{tmp_path}/*.npy"), "jax", block=2)
    assert np.concatenate([*map(np.asarray, stream)]).tolist() == [
        [0, 1], [2, 3], [4, 5], [1, 2], [3, 4], [5, 6]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (
            {"x": np.zeros((4, 2), "f8"), "y": np.zeros(4, int)},
            r"part-3.npz has .*float64\[2\].*part-0.npz has",
        ),
        ({"x": np.zeros((4, 3), "f4"), "y": np.zeros(4, int)}, r"float32\[3\]"),
        ({"x": np.zeros((4, 2), "f4")}, "part-3.npz has"),
        (
            {"x": np.zeros((4, 2), "f4"), "y": np.zeros(5, int)},
            "part-3.npz have the lengths .*'x': 4, 'y': 5",
        ),
        (
            {"x": np.zeros((4, 2), "f4"), "y": np.array(1)},
            "part-3.npz .*'x': 4, 'y': 'none: a scalar'",
        ),
    ],
)
def test_files_of_another_form_are_named(folder, arrays, words):
    write(folder, 3, **arrays)
    with pytest.raises(af.OptionError, match=words):
        af.files(f"{folder}/*.npz")


def test_wrong_arguments(folder):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        af.files(folder / "nowhere*.npz")
    with pytest.raises(af.OptionError, match=r"no 'zz'.*It has x, y"):
        af.files(f"{folder}/*.npz", names="zz")
    np.save(folder / "alone.npy", np.zeros(3))
    with pytest.raises(af.OptionError, match=r"no 'x'.*It has one array without a name"):
        af.files(folder / "alone.npy", names="x")
    (folder / "alone.npy").unlink()
    (folder / "notes.txt").write_text("")
    with pytest.raises(af.OptionError, match=r"one kind that is read: .*notes\.txt, .*part-2\.npz"):
        af.files(f"{folder}/*")


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY damaged"])
def test_a_damaged_file_is_named(suffix, damage, tmp_path):
    (tmp_path / f"bad{suffix}").write_bytes(damage)
    with pytest.raises(af.OptionError, match=rf"bad\{suffix} cannot be read \(.*Leave it out"):
        af.files(tmp_path)


def test_a_file_whose_rows_are_damaged_is_named(folder):
    path = folder / "part-1.npz"
    stream = af.stream(af.files(folder), "numpy")
    path.write_bytes(path.read_bytes().replace(np.float32(1).tobytes(), b"\0\1\2\3"))
    with pytest.raises(af.BlockError, match=r"part-1\.npz cannot be read \(BadZipFile"):
        stream[1]


def test_a_state_is_of_the_same_files_in_the_same_order(folder):
    def stream(*numbers, block=None):
        arrays = af.files([folder / f"part-{number}.npz" for number in numbers])
        return af.stream({"x": arrays["x"] / 2, "y": arrays["y"]}, "numpy", block=block)

    state = stream(0, 1, 2).state_dict()
    assert state["data"] == ["3 blocks", "15 rows", *[f"part-{n}.npz" for n in (0, 1, 2)]]
    stream(0, 1, 2).load_state_dict(state)
    pickle.loads(pickle.dumps(stream(0, 1, 2))).load_state_dict(state)
    moved = folder / "moved"
    moved.mkdir()
    for path in folder.glob("*.npz"):
        path.rename(moved / path.name)
    af.stream(af.files(moved), "numpy").load_state_dict(state)
    folder = moved
    for other, words in (
        (stream(1, 0, 2), "has part-0.npz where this stream has part-1.npz"),
        (stream(0, 1), "has 3 blocks where this stream has 2 blocks"),
        (
            stream(0, 1, 2, 0)[:3],
            r"3 blocks where this stream has 3 blocks, those of range\(0, 3\)",
        ),
        (stream(0, 1, 1), "has 15 rows where this stream has 14 rows"),
        (stream(0, 1, 2, block=4), "has 3 blocks where this stream has 4 blocks"),
    ):
        with pytest.raises(af.OptionError, match=words):
            other.load_state_dict(state)


def test_a_file_that_has_changed(folder):
    stream = af.stream(af.files(f"{folder}/*.npz"), "numpy")
    write(folder, 1, x=np.zeros((9, 2), "f4"), y=np.arange(9))
    with pytest.raises(af.BlockError, match=r"part-1\.npz has changed: it has \w+\[9"):
        stream[1]
    assert len(af.stream(af.files(f"{folder}/*.npz"), "numpy")[1]["x"]) == 9


def test_too_little_memory_is_no_fault_of_the_file(tmp_path):
    form = {"descr": "<f8", "fortran_order": False, "shape": (2**46,)}
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive, archive.open("x.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, form)
    with pytest.raises(MemoryError):
        af.files(tmp_path / "a.npz")["x"].compute()


@pytest.mark.parametrize("library", ["pyarrow", "zarr"])
def test_a_library_that_is_missing(tmp_path, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    path = tmp_path / {"pyarrow": "a.parquet", "zarr": "a.zarr"}[library]
    path.touch()
    with pytest.raises(af.BackendUnavailableError, match=rf"{library}.*pip install {library}"):
        af.files(path)
