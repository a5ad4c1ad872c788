"""Convert raw buffers of random dtype, shape, strides and offset to every target, in forked children.

A child fails if it dies, or if the result is neither equal values nor an arrayferry error. The seed
of the buffer is printed. Then many conversions in one process must not make it grow. Run it with `make fuzz`, or:

    python tests/adversaries/fuzz.py --buffers 20000 --conversions 1000000
"""

import argparse
import os
import random
import resource
import sys
import traceback
import warnings
from collections.abc import Callable

import numpy as np

import arrayferry as af

TARGETS = ("numpy", "torch", "jax", "dask", "array_api_strict")
DTYPES = (
    "?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "g", "G",
    ">i2", ">i4", ">i8", ">u4", ">f4", ">f8", ">c16", "S3", "U2", ">U2", "M8[s]", "m8[ms]", "V3",
    [("a", "i1"), ("b", "<f4")],
)  # fmt: skip
BATCH = 50


def buffer(seed: int) -> np.ndarray:
    """Make an array over random bytes; the same seed gives the same array."""
    rng = random.Random(seed)
    dtype = np.dtype(rng.choice(DTYPES))
    shape = tuple(rng.choice((0, 1, 1, 2, 3, 5)) for _ in range(rng.randrange(5)))
    strides = tuple(
        rng.choice((0, 1, -1, 3)) * dtype.itemsize if rng.random() < 0.5 else rng.randrange(-24, 25)
        for _ in shape
    )
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True) if n > 0]
    before = -sum(r for r in reach if r < 0) + rng.randrange(9)
    after = sum(r for r in reach if r > 0) + dtype.itemsize
    raw = bytearray(rng.randbytes(before + after + 8))
    x = np.ndarray(shape, dtype, raw, before, strides)
    if rng.random() < 0.2:
        x.flags.writeable = False
    return x


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    """Whether values are equal; any nonzero byte counts as true, and NaN equals NaN."""
    if found.shape != expected.shape:
        return False
    if expected.dtype.kind == "b":
        return bool(((found.view(np.uint8) != 0) == (expected.view(np.uint8) != 0)).all())
    if expected.dtype.kind in "fc":
        with np.errstate(all="ignore"):
            return np.array_equal(found, expected.astype(found.dtype), equal_nan=True)
    return found.tobytes() == expected.astype(found.dtype).tobytes() or bool(
        (found == expected).all()
    )


def attempt(seed: int) -> None:
    """Convert one buffer to every target, with every `copy`, and check the results."""
    x = buffer(seed)
    before = x.tobytes()
    layout = (x.shape, x.strides, x.dtype, x.flags.writeable)
    expected = np.array(x, order="C").astype(x.dtype.newbyteorder("="))
    for target in TARGETS:
        for copy in (None, True, False):
            try:
                y = af.convert({"x": (x,)}, target, copy=copy)["x"][0]
                back = np.ascontiguousarray(af.convert(y, "numpy"))
            except af.ConversionError as error:
                if "['x'][0]" not in str(error):
                    raise
                continue
            back = back.reshape(y.shape).astype(back.dtype.newbyteorder("="))
            assert same(back, expected), (target, copy, back, expected)
    assert x.tobytes() == before, "the input was changed"
    assert layout == (x.shape, x.strides, x.dtype, x.flags.writeable), (
        "the input's layout was changed"
    )


def in_child(seeds: range, work: Callable[[int], None]) -> tuple[int, str] | None:
    """Do work on seeds in a forked child. Return the failed seed and the reason, None if all passed."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        status = 0
        with os.fdopen(write, "w") as report:
            warnings.simplefilter("error")
            for seed in seeds:
                print(seed, file=report, flush=True)
                try:
                    work(seed)
                except BaseException:
                    print(traceback.format_exc(), file=report, flush=True)
                    status = 1
                    break
        os._exit(status)
    os.close(write)
    with os.fdopen(read) as report:
        text = report.read()
    _, status = os.waitpid(pid, 0)
    if status == 0:
        return None
    lines = text.split("\n")
    last = max(int(line) for line in lines if line.isdigit())
    how = "\n".join(line for line in lines if not line.isdigit()).strip()
    return last, how or f"the process died, wait status {status}"


def fuzz(buffers: int, first: int = 0, show: bool = False) -> list[tuple[int, str]]:
    """Try some buffers, and return the failures."""
    failures = []
    seed, end = first, first + buffers
    while seed < end:
        batch = range(seed, min(seed + BATCH, end))
        failure = in_child(batch, attempt)
        seed = batch.stop
        if failure is not None:
            failures.append(failure)
            seed = failure[0] + 1
        if show and (seed // BATCH) % 20 == 0:
            print(f"{seed - first:7,} of {buffers:,} buffers, {len(failures)} failures", flush=True)
    return failures


def resident() -> int:
    """Resident memory of this process, in bytes."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def growth(conversions: int) -> int:
    """Convert trees many times by every door, and return by how many bytes resident memory grew."""
    import torch

    tree = {"a": np.ones(3, np.float32), "b": (torch.ones(2), "text"), "c": [np.ones((2, 2))]}
    like = torch.ones(1)

    @af.agnostic("numpy")
    def double(value: dict[str, np.ndarray]) -> np.ndarray:
        return value["a"] * 2

    doors: list[Callable[[object], object]] = [
        *(af.converter(target) for target in ("numpy", "torch", "jax")),
        af.converter("torch", copy=True),
        lambda value: af.convert(value, "torch", device="cpu"),
        lambda value: af.convert(value, like=like),
        lambda value: af.converter("torch")(value),
        double,
    ]

    def run(count: int) -> None:
        for number in range(count):
            tree["c"] = [np.ones((2, 2))] * (number % 7)
            for convert in doors:
                convert(tree)

    run(2_000)
    before = resident()
    run(conversions // len(doors))
    return resident() - before


def main() -> int:
    """Run all, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--buffers", type=int, default=5_000)
    parser.add_argument("--conversions", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    args = parser.parse_args()
    failures = fuzz(args.buffers, args.first, show=True)
    for seed, how in failures[:10]:
        print(f"seed {seed}: {how}")
    print(
        f"{args.buffers:,} buffers to {len(TARGETS)} targets with 3 values of copy each: {len(failures)} failures"
    )
    grown = growth(args.conversions)
    print(f"{args.conversions:,} conversions: resident memory grew by {grown / 2**20:.1f} MiB")
    return 1 if failures or grown > 32 * 2**20 else 0


if __name__ == "__main__":
    sys.exit(main())
