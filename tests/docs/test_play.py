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


@pytest.mark.parametrize("name", NAMES)
def test_steps_in_a_browser_are_those_of_numpy(name, folder):
    place, url = folder
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
    (place / f"{name}.check.json").write_text(json.dumps(steps))
    page = browse(f"{url}?check={name}", "--virtual-time-budget=30000", "--dump-dom")
    found = json.loads(html.unescape(re.search(r'id="result"[^>]*>(.*?)</pre>', page)[1]))
    assert len(found) == STEPS
    for result, (observation, reward) in zip(found, wanted, strict=True):
        got = np.reshape(result["observation"], np.shape(observation))
        np.testing.assert_allclose(got, observation, rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(result["reward"], np.broadcast_to(reward, 1), rtol=2e-5)


@pytest.mark.parametrize("agent", ["cart_pole_agent", "taxi_agent"])
def test_a_trained_agent_acts_in_a_browser(agent, folder):
    place, url = folder
    (place / f"{agent}.check.json").write_text(json.dumps([{"reset": 1}] + [{}] * STEPS))
    page = browse(f"{url}?check={agent}", "--virtual-time-budget=30000", "--dump-dom")
    found = json.loads(html.unescape(re.search(r'id="result"[^>]*>(.*?)</pre>', page)[1]))
    rewards = [result["reward"][0] for result in found]
    lasted = next((i for i, x in enumerate(found) if x["terminated"][0]), STEPS)
    assert lasted > 150 if agent == "cart_pole_agent" else rewards[lasted] == 20
