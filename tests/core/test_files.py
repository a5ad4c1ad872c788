"""`files`: a run of files as one source of blocks."""

import pickle

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
        ({"x": np.zeros((4, 2), "f4"), "y": np.array(1)}, "'y': None"),
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
    with pytest.raises(af.OptionError, match=r"of the kinds \.npz, \.txt"):
        af.files(f"{folder}/*")


def test_a_file_that_has_changed(folder):
    stream = af.stream(af.files(f"{folder}/*.npz"), "numpy")
    write(folder, 1, x=np.zeros((9, 2), "f4"), y=np.arange(9))
    with pytest.raises(af.BlockError, match=r"part-1\.npz has changed: it has \w+\[9"):
        stream[1]
    assert len(af.stream(af.files(f"{folder}/*.npz"), "numpy")[1]["x"]) == 9
