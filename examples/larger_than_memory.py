"""Train a model in PyTorch on an array that is never in memory as a whole.

    python examples/larger_than_memory.py                        # 3 GiB, in threads
    python examples/larger_than_memory.py --scheduler tcp://...  # the same on a cluster of Dask

The array is made of random numbers here. `dask.array.from_zarr`, or a Zarr array itself, takes its place in
earnest. The model is a linear one with known weights, so that it can be told whether it was learnt.
"""

from __future__ import annotations

import argparse
import resource
import time
from typing import Any

import dask.array as da
import torch

import arrayferry as af

FEATURES = 64
BLOCK_ROWS = 262_144  # 64 MiB of float32
BATCH = 8_192


def make_data(gib: float, weights: Any) -> dict[str, Any]:
    """Return features that are standardized, and targets, as Dask arrays. Nothing is computed yet."""
    generator = da.random.default_rng(0)
    rows = int(gib * 2**30 / (4 * FEATURES)) // BLOCK_ROWS * BLOCK_ROWS
    raw = generator.normal(3, 2, size=(rows, FEATURES), chunks=(BLOCK_ROWS, FEATURES))
    x = raw.astype("float32")
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    noise = generator.normal(0, 0.1, size=rows, chunks=BLOCK_ROWS).astype("float32")
    return {"x": x, "y": x @ weights + noise}


def train(stream: af.Stream, began: float) -> torch.nn.Linear:
    """Make one pass over the data."""
    model = torch.nn.Linear(FEATURES, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(stream))
    for number, block in enumerate(stream, 1):
        loss = torch.zeros(())
        for x, y in zip(block["x"].split(BATCH), block["y"].split(BATCH), strict=True):
            loss = torch.nn.functional.mse_loss(model(x)[:, 0], y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        if number % max(1, len(stream) // 8) == 0:
            seconds = time.perf_counter() - began
            print(f"block {number:4} of {len(stream)}   loss {loss:8.5f}   {seconds:5.1f} s")
    return model


def main() -> None:
    """Train, and compare the weights and the memory."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gib", type=float, default=3.0, help="size of the features")
    parser.add_argument("--scheduler", help="the address of a scheduler of Dask")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    weights = torch.randn(FEATURES)
    data = make_data(arguments.gib, weights.numpy())
    stream = af.stream(data, "torch", client=arguments.scheduler)
    print(f"{data['x'].nbytes / 2**30:.1f} GiB in {len(stream)} blocks")
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = train(stream, time.perf_counter())
    most = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) / 2**20
    error = (model.weight[0] - weights).abs().max().item()
    print(f"largest error of a weight {error:.4f}, {most:.2f} GiB of memory more than at the start")


if __name__ == "__main__":
    main()
