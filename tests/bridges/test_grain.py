"""The recipe of docs/how-to/streams.md for Grain, with workers."""

from __future__ import annotations

import itertools
from pathlib import Path

import absl.flags
import dask.array as da
import grain
import numpy as np
import pytest

import arrayferry as af

PAGE = (Path(__file__).parents[2] / "docs/how-to/streams.md").read_text()
RECIPE = PAGE.partition("## In Grain")[2].partition("```python\n")[2].partition("\nstream = ")[0]


@pytest.mark.filterwarnings("ignore")  # of Grain, which forks and uses deprecated names
def test_workers_go_on_where_they_were():
    absl.flags.FLAGS.mark_as_parsed()  # as absl.app.run does
    names: dict[str, object] = {"__name__": "recipe"}
    exec(RECIPE, names)
    stream = af.stream(da.arange(120, chunks=3), "numpy", shuffle=True, seed=0, batch_size=5)
    options = grain.multiprocessing.MultiprocessingOptions(num_workers=2)
    dataset = names["Batches"](stream).mp_prefetch(options)

    iterator = iter(dataset)
    seen = list(itertools.islice(iterator, 7))
    state = iterator.get_state()
    iterator.close()
    iterator = iter(dataset)
    iterator.set_state(state)
    seen += iterator
    iterator.close()
    assert sorted(np.concatenate(seen).tolist()) == list(range(120))
