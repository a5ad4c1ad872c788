// The environments of the page: their keys, and how they are drawn on a canvas of 1,200 x 800 points.

const [LEFT, RIGHT, UP, DOWN] = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"];
const SIGNS = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", p: "P: pick up", d: "D: drop" };
export const sign = (key) => SIGNS[key];

function line(pen, width, colour, ...points) {
  Object.assign(pen, { lineWidth: width, strokeStyle: colour, lineCap: "round" });
  pen.beginPath();
  points.forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.stroke();
}

function disc(pen, x, y, radius, colour) {
  pen.fillStyle = colour;
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fill();
}

function grid(pen, rows, columns, size, colour) {
  const [left, top] = [600 - (columns * size) / 2, 400 - (rows * size) / 2];
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const fill = colour(row, column);
      if (fill) {
        pen.fillStyle = fill;
        pen.fillRect(left + column * size + 2, top + row * size + 2, size - 4, size - 4);
      }
    }
  }
  return (row, column) => [left + (column + 0.5) * size, top + (row + 0.5) * size];
}

export const GAMES = {
  cart_pole: {
    title: "Cart-pole", keys: { [LEFT]: [0], [RIGHT]: [1] }, interval: 40,
    draw(pen, outputs, colours) {
      const x = 600 + (outputs["state.position"][0] / 2.4) * 550;
      const angle = outputs["state.angle"][0];
      line(pen, 4, colours.line, [0, 600], [1200, 600]);
      pen.fillStyle = colours.ink;
      pen.fillRect(x - 80, 550, 160, 60);
      line(pen, 24, colours.mark, [x, 550], [x + 360 * Math.sin(angle), 550 - 360 * Math.cos(angle)]);
    },
  },
  pendulum: {
    title: "Pendulum", keys: { [LEFT]: [2], [RIGHT]: [-2] }, idle: [0], interval: 50,
    draw(pen, outputs, colours) {
      const angle = outputs["state.angle"][0];
      line(pen, 40, colours.mark, [600, 400], [600 - 300 * Math.sin(angle), 400 - 300 * Math.cos(angle)]);
      disc(pen, 600, 400, 14, colours.ink);
    },
  },
  frozen_lake: {
    title: "Frozen lake", keys: { [LEFT]: [0], [DOWN]: [1], [RIGHT]: [2], [UP]: [3] }, turns: true, interval: 400,
    draw(pen, outputs, colours) {
      const map = ["SFFF", "FHFH", "FFFH", "HFFG"];
      const fills = { S: "#bcd6f2", F: "#d9e8f7", H: "#27567f", G: "#e0b13c" };
      const at = grid(pen, 4, 4, 190, (row, column) => fills[map[row][column]]);
      const number = outputs["state.number"][0];
      disc(pen, ...at(Math.floor(number / 4), number % 4), 50, "#b3261e");
    },
  },
  taxi: {
    title: "Taxi", keys: { [DOWN]: [0], [UP]: [1], [RIGHT]: [2], [LEFT]: [3], p: [4], d: [5] }, turns: true, interval: 400,
    draw(pen, outputs, colours) {
      const stops = [[0, 0, "#b3261e"], [0, 4, "#2e7d32"], [4, 0, "#c79a00"], [4, 3, "#1565c0"]];
      const number = outputs["state.number"][0];
      const [row, column] = [Math.floor(number / 100), Math.floor(number / 20) % 5];
      const [passenger, goal] = [Math.floor(number / 4) % 5, number % 4];
      const at = grid(pen, 5, 5, 150, (r, c) => stops.find(([a, b]) => a === r && b === c)?.[2] ?? colours.line);
      const walls = [[0, 2], [1, 2], [3, 1], [4, 1], [3, 3], [4, 3]]; // to the left of these
      for (const [r, c] of walls) {
        const [x, y] = at(r, c);
        line(pen, 12, colours.ink, [x - 75, y - 70], [x - 75, y + 70]);
      }
      const [x, y] = at(row, column);
      pen.fillStyle = "#f2c230";
      pen.fillRect(x - 55, y - 35, 110, 70);
      const [a, b] = passenger < 4 ? at(...stops[passenger]) : [x, y];
      disc(pen, a, b, 22, colours.ink);
      line(pen, 10, colours.ink, ...[[-60, -60], [60, -60], [60, 60], [-60, 60], [-60, -60]].map(([u, v]) => {
        const [p, q] = at(...stops[goal]);
        return [p + u, q + v];
      }));
    },
  },
  breakout: {
    title: "Breakout (gymnax)", keys: { [LEFT]: [1], [RIGHT]: [2] }, idle: [0], interval: 120,
    draw(pen, outputs, colours) {
      const fills = [colours.ink, "#b3261e", "#e0b13c", colours.mark]; // the paddle, the ball, its trail, bricks
      grid(pen, 10, 10, 78, (row, column) => {
        const channel = fills.findIndex((_, i) => outputs.observation[(row * 10 + column) * 4 + i] > 0);
        return fills[channel] ?? colours.line;
      });
    },
  },
  game_2048: {
    title: "2048 (pgx)", keys: { [LEFT]: [0], [UP]: [1], [RIGHT]: [2], [DOWN]: [3] }, turns: true, interval: 150,
    draw(pen, outputs, colours) {
      const seen = outputs["observation.observation"]; // for each cell, 31 flags: of an empty one, of 2, 4, 8 ...
      const power = (row, column) => seen.slice((row * 4 + column) * 31, (row * 4 + column + 1) * 31).indexOf(1);
      const fill = (row, column) => `hsl(${210 - 18 * power(row, column)} 60% 45%)`;
      const at = grid(pen, 4, 4, 190, (row, column) => (power(row, column) ? fill(row, column) : colours.line));
      Object.assign(pen, { fillStyle: "#fff", textAlign: "center", textBaseline: "middle", font: "bold 64px system-ui" });
      for (let i = 0; i < 16; i++) {
        const found = power(Math.floor(i / 4), i % 4);
        if (found) pen.fillText(2 ** found, ...at(Math.floor(i / 4), i % 4));
      }
    },
  },
};
