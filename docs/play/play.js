// The page: loads ONNX Runtime and the files on a click, steps them, and draws what comes.

import { File } from "./file.js";
import { GAMES, sign } from "./games.js";

const form = document.querySelector("form");
const [canvas, buttons, output, missing] = ["canvas", ".keys", "output", "#missing"].map((each) => document.querySelector(each));
const pen = canvas.getContext("2d");
const files = {};
let ort, timer, pressed, last, round = 0;

// Files of environments whose libraries were not installed where the page was built are not there.
const games = Object.entries(GAMES);
const there = await Promise.all(games.map(async ([name]) => (await fetch(`${name}.json`, { method: "HEAD" })).ok));
games.forEach(([name, game], i) => there[i] && form.game.add(new Option(game.title, name)));
const left = games.filter((_, i) => !there[i]).map(([, game]) => game.title);
if (left.length < games.length) missing.textContent = left.length ? `This page was built without ${left.join(", ")}.` : "";
else {
  document.querySelectorAll("form, canvas").forEach((each) => each.remove());
  output.value = "This page was built without its environments. \"make pages\" builds it with them.";
}
form.player.add(new Option("Play by keys", ""));
form.player.add(new Option("Watch a trained agent", "_agent"));

async function load(name) {
  if (!ort) {
    ort = await import("./ort.wasm.min.mjs");
    Object.assign(ort.env.wasm, { numThreads: 1, wasmPaths: new URL("./", import.meta.url).href });
  }
  return (files[name] ??= await File.load(ort, name));
}

function draw(game, outputs) {
  const style = getComputedStyle(document.body);
  const colours = { ink: style.color, mark: "#0b72d9", line: "rgb(128 136 148 / 0.35)" };
  pen.clearRect(0, 0, canvas.width, canvas.height);
  game.draw(pen, outputs, colours);
}

async function start() {
  const own = ++round;
  const game = GAMES[form.game.value];
  const watched = form.player.value !== "";
  clearTimeout(timer);
  output.value = "Loading …";
  const file = await load(form.game.value + form.player.value);
  buttons.replaceChildren(...(watched ? [] : Object.keys(game.keys)).map((key) => {
    const button = document.createElement("button");
    button.textContent = sign(key);
    button.onpointerdown = () => press(key);
    button.onpointerup = button.onpointerleave = () => release(key);
    return button;
  }));
  pressed = last = undefined;
  let outputs = await file.run({ reset: 1 });
  let [sum, steps, over] = [0, 0, false];

  async function step() {
    if (own !== round) return;
    const pushed = game.keys[pressed] ?? game.idle ?? (game.turns ? undefined : (last ?? [0]));
    const action = pushed && outputs["observation.action_mask"]?.[pushed[0]] === 0 ? undefined : pushed;
    const waits = !watched && action === undefined;
    if (!waits && !over) {
      outputs = await file.run(watched ? {} : { action });
      last = action;
      sum += outputs.reward[0];
      steps += 1;
      over = Boolean(outputs.terminated[0] || outputs.truncated[0]);
      if (game.turns && !watched) pressed = undefined;
    } else if (over) {
      outputs = await file.run({ reset: 1 });
      [sum, steps, over] = [0, 0, false];
    }
    draw(game, outputs);
    const said = over ? (outputs.truncated[0] ? "The time is over. " : "The episode is over. ") : "";
    output.value = `${said}Steps: ${steps}, return: ${sum.toFixed(1)}`;
    timer = setTimeout(step, over ? 1500 : waits ? 30 : game.interval);
  }
  step();
}

function press(key) {
  pressed = key;
}

function release(key) {
  if (pressed === key && !GAMES[form.game.value].turns) pressed = undefined;
}

addEventListener("keydown", (event) => {
  if (!(event.key in (GAMES[form.game.value]?.keys ?? {})) || event.target.tagName === "SELECT") return;
  event.preventDefault();
  if (!event.repeat) press(event.key);
});
addEventListener("keyup", (event) => release(event.key));
form.addEventListener("submit", (event) => {
  event.preventDefault();
  start().catch((error) => (output.value = `It does not work here: ${error.message}`));
});

// For tests: ?check=NAME takes the steps in NAME.check.json, and writes their outputs into the page.
const check = new URLSearchParams(location.search).get("check");
if (check) {
  const steps = await (await fetch(`${check}.check.json`)).json();
  const file = await load(check);
  const results = [];
  for (const given of steps) results.push(await file.run(given));
  document.querySelector("#result").textContent = JSON.stringify(results);
  const game = GAMES[check.replace("_agent", "")];
  draw(game, results.at(-1));
  output.value = `Checked ${results.length} steps.`;
}
