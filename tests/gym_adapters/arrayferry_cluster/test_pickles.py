"""What each version has pickled is read, also with other versions of Python and the libraries."""

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

import arrayferry as af
from arrayferry_envs import evaluate

FOLDER = Path(__file__).parents[2] / "pickles"
sys.path.insert(0, str(FOLDER))
import write  # noqa: E402

pytestmark = pytest.mark.needs("torch")
VERSIONS = sorted({path.name.partition("-")[0] for path in FOLDER.glob("*.pickle")})


@pytest.fixture(params=VERSIONS)
def read(request):
    """Return a function that reads what a version has written under a name."""
    return lambda name: pickle.loads((FOLDER / f"{request.param}-{name}.pickle").read_bytes())


def test_this_version_has_written_all():
    assert {path.stem for path in FOLDER.glob(f"{af.__version__}-*.pickle")} == {
        f"{af.__version__}-{name}" for name in write.VALUES
    }


def test_conversions(read):
    y = read("converter")({"x": np.arange(3.0)})["x"]
    assert af.backend_of(y).name == "torch"
    assert y.tolist() == [0, 1, 2]
    arrays, layout = af.flatten({"a": np.ones(2), "b": [1, np.ones(3)]})
    assert read("layout") == layout
    assert read("layout").unflatten(arrays)["b"][0] == 1


def test_results(read):
    assert read("trajectories")._asdict().keys() >= {"observation", "reward", "began"}
    np.testing.assert_equal(read("trajectories"), write.trajectories())
    for one, other in zip(read("evaluation"), write.evaluation(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_environments(read):
    env = read("environment")
    assert env == write.VALUES["environment"]()
    found = evaluate(env, write.balance, num_envs=2, policy_xp="numpy", max_episode_steps=3)
    assert found.lengths.tolist() == [[3], [3]]
    if np.__version__ < "2":
        pytest.skip("NumPy 1 does not read the generators of NumPy 2")
    served, again = read("served"), write.normalised()
    for action in write.actions(5)[::-1]:
        for one, other in zip(served.step(action)[:4], again.step(action)[:4], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)


def test_environments_whose_kernels_were_outside_are_refused():
    if np.__version__ < "2":
        pytest.skip("NumPy 1 does not read the generators of NumPy 2")
    with pytest.raises(af.ArrayFerryError, match=r"pickled by another version.*state_dict"):
        pickle.loads((FOLDER / "before" / "served.pickle").read_bytes())


def test_states(read):
    state, own = read("state"), write.normalised().state_dict()
    assert state.keys() == own.keys()
    again = write.normalised()
    again.load_state_dict(state)
    for name, moments in again.state_dict()["obs_rms"].items():
        np.testing.assert_allclose(np.asarray(moments), own["obs_rms"][name], rtol=1e-5)


def test_adapters(read):
    own = write.VALUES["adapter"]().reset(seed=1)[0]
    assert read("adapter").reset(seed=1)[0].tolist() == own.tolist()
    assert read("wrapper").reset(seed=1)[0].shape == (4,)
    assert read("spaces").contains(own)
