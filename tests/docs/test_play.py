"""The page to play environments steps them in a browser as NumPy does. `make play` builds it."""

import functools
import html
import http.server
import json
import pkgutil
import re
import shutil
import subprocess
import threading
from pathlib import Path

import array_api_compat.numpy as xp
import numpy as np
import pytest
from raw_random import Fed

ROOT = Path(__file__).parents[2]
PLAY = ROOT / "build" / "play"
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(BROWSER is None, reason="there is no Chromium"),
    pytest.mark.skipif(not PLAY.exists(), reason="make play was not called"),
]
STEPS = 200
NAMES = {
    "cart_pole": "arrayferry_envs:CartPole",
    "pendulum": "arrayferry_envs:Pendulum",
    "frozen_lake": "arrayferry_classic:FrozenLake",
    "taxi": "arrayferry_classic:Taxi",
}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def folder(tmp_path):
    """A copy of the page, and its address."""
    shutil.copytree(PLAY, tmp_path / "play")
    handler = functools.partial(Quiet, directory=tmp_path / "play")
    server = http.server.ThreadingHTTPServer(("localhost", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield tmp_path / "play", f"http://localhost:{server.server_port}/index.html"
    server.shutdown()
    server.server_close()


def browse(url, *options):
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", *options, url]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return ended.stdout


def stepped(name, folder, steps):
    """Return the outputs of steps of a file in the browser."""
    place, url = folder
    if not (place / f"{name}.onnx").exists():
        pytest.skip("the page was built without .venv-functional")
    (place / f"{name}.check.json").write_text(json.dumps(steps))
    page = browse(f"{url}?check={name}", "--virtual-time-budget=30000", "--dump-dom")
    return json.loads(html.unescape(re.search(r'id="result"[^>]*>(.*?)</pre>', page)[1]))


@pytest.mark.parametrize("name", NAMES)
def test_steps_in_a_browser_are_those_of_numpy(name, folder):
    place = folder[0]
    env, rng = pkgutil.resolve_name(NAMES[name])(), np.random.default_rng(1)
    params, space = env.default_params, env.action_space
    space.seed(1)
    metadata = json.loads((place / f"{name}.json").read_text())
    drawn = [(x["name"], x["shape"]) for x in metadata["inputs"] if "random" in x]
    state, steps, wanted = None, [], []
    for number in range(STEPS):
        raw = {key: rng.random(shape).astype(np.float32) for key, shape in drawn}
        action = np.asarray([space.sample()])
        given = {key: x.ravel().tolist() for key, x in raw.items()}
        begins = number % 50 == 0
        if begins:
            state = env.reset(xp, Fed(x for key, x in raw.items() if "reset" in key), 1, params)
            reward = np.zeros(1)
        else:
            names = {f"last.state.{key}": x.tolist() for key, x in state._asdict().items()}
            given |= names  # each step is from NumPy's own states
            drawn_in_step = Fed(x for key, x in raw.items() if "step" in key)
            state, reward, _ = env.step(xp, drawn_in_step, state, action, params)
        steps.append({**given, "action": action.ravel().tolist(), "reset": int(begins)})
        wanted.append((env.observe(xp, state, params), reward))
    found = stepped(name, folder, steps)
    assert len(found) == STEPS
    for result, (observation, reward) in zip(found, wanted, strict=True):
        got = np.reshape(result["observation"], np.shape(observation))
        np.testing.assert_allclose(got, observation, rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(result["reward"], np.broadcast_to(reward, 1), rtol=2e-5)


@pytest.mark.parametrize("agent", ["cart_pole_agent", "taxi_agent"])
def test_a_trained_agent_acts_in_a_browser(agent, folder):
    found = stepped(agent, folder, [{"reset": 1}] + [{}] * STEPS)
    rewards = [result["reward"][0] for result in found]
    lasted = next((i for i, x in enumerate(found) if x["terminated"][0]), STEPS)
    assert lasted > 150 if agent == "cart_pole_agent" else rewards[lasted] == 20


# Returns within so many steps. Random actions reach 0.4 and 1,000 in whole episodes.
SUITES = {"breakout": 10, "game_2048": 1500}


@pytest.mark.parametrize("name", SUITES)
def test_steps_of_jax_in_a_browser_are_those_of_onnxruntime(name, folder):
    begun = {"reset": 1, "last.key": [0, 7]}
    moved = stepped(name, folder, [begun, *[{"action": [n % 3]} for n in range(20)]])
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(folder[0] / f"{name}.onnx")
    feed = {
        x["name"]: np.zeros(x["shape"], x["dtype"])
        for x in json.loads((folder[0] / f"{name}.json").read_text())["inputs"]
    }
    feed |= {"reset": np.ones(1, bool), "last.key": np.array([0, 7], np.uint32)}
    for number, found in enumerate(moved):
        outputs = {x.name: x for x in session.get_outputs()}
        outputs = dict(zip(outputs, session.run(None, feed), strict=True))
        for output, x in outputs.items():
            np.testing.assert_array_equal(found[output], x.ravel(), err_msg=output)
        feed |= {f"last.{key}": x for key, x in outputs.items() if f"last.{key}" in feed}
        feed |= {"reset": np.zeros(1, bool), "action": np.array([number % 3])}
    states = {json.dumps([x for key, x in found.items() if key[:6] == "state."]) for found in moved}
    keys = {tuple(found["key"]) for found in moved}
    assert len(states) > 10
    assert len(keys) == len(moved)


@pytest.mark.parametrize(("name", "least"), SUITES.items())
def test_an_agent_of_jax_scores_in_a_browser(name, least, folder):
    found = stepped(f"{name}_agent", folder, [{"reset": 1, "last.key": [0, 7]}] + [{}] * STEPS)
    assert sum(result["reward"][0] for result in found) >= least
    assert len({tuple(result["action"]) for result in found}) > 1


def test_the_page_leaves_out_what_was_not_built(folder):
    place, url = folder
    (place / "game_2048.json").unlink(missing_ok=True)
    page = browse(url, "--virtual-time-budget=10000", "--dump-dom")
    assert re.search(r"This page was built without [^<]*2048 \(pgx\)\.", page)
    assert '<option value="game_2048"' not in page
    assert '<option value="taxi"' in page


def test_a_page_without_files_says_how_it_is_built(folder):
    place, url = folder
    for file in place.glob("*.json"):
        file.unlink()
    page = browse(url, "--virtual-time-budget=10000", "--dump-dom")
    assert '"make pages" builds it with them' in html.unescape(page)
    assert "<canvas" not in page
