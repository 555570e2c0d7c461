"use strict";
// Draws the charts of a comparison, and lists the questions whose answers differ.

const json = name => JSON.parse(document.getElementById(`json-${name}`).textContent);
const rows = json("rows").filter(row => row.windows_per_s);
const digits = value => value.toLocaleString("en", { minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
const COLORS = vega.scheme("tableau10");
rows.forEach((row, index) => {
  row.number = String(index + 1);
  row.color = COLORS[index % COLORS.length];
  const factor = row.questions_per_s ? row.questions_per_s / row.windows_per_s : 1;
  row.speed = factor * row.windows_per_s;
  row.slowest = factor * (row.low ?? row.windows_per_s);
  row.fastest = factor * (row.high ?? row.windows_per_s);
});
const UNIT = document.getElementById("speed").dataset.unit;
const SIDES = ["right", "left", "top", "bottom", "top-right", "bottom-right", "top-left", "bottom-left"];
const DISTANCES = [7, 16, 28, 42, 58, 76];
const LEFT = "\u200b\u00a0", RIGHT = "\u00a0\u200b"; // keep labels apart; vega trims blanks

function padded(values, share, least) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const margin = Math.max((high - low) * share, least);
  return [low - margin, high + margin];
}

// Returns a chart of points whose texts are those of the field `name`.
function scatter(field, title, format, width, points, name) {
  const speeds = points.flatMap(row => [row.slowest, row.fastest]);
  const values = points.map(row => row[field]);
  const [low, high] = padded(speeds, 0.05, Math.max(...speeds) * 0.02);
  const y = field === "changed" ? [0, Math.max(1, ...values)] : padded(values, 0.12, 0.005);
  const height = Math.max(300, (name === "label" ? 30 : 14) * points.length + 120);
  const color = { field: "color" };
  return {
    width, height, padding: 4, autosize: { type: "fit", contains: "padding" },
    data: [{ name: "rows", values: points.map(row => ({ ...row, text: `${LEFT}${row[name]}${RIGHT}` })) }],
    scales: [
      { name: "x", domain: [Math.max(0, low), high], range: [16, { signal: "width - 16" }], zero: false },
      { name: "y", domain: y, range: [{ signal: "height - 30" }, 30], zero: false },
    ],
    axes: [
      { scale: "x", orient: "bottom", title: `${UNIT}, steady`, grid: true, tickCount: Math.round(width / 90) },
      { scale: "y", orient: "left", title, grid: true, format, tickCount: format === "d" ? Math.min(5, y[1]) : 5 },
    ],
    marks: [
      {
        type: "rule", name: "intervals", from: { data: "rows" },
        encode: { update: {
          x: { scale: "x", field: "slowest" }, x2: { scale: "x", field: "fastest" },
          y: { scale: "y", field }, stroke: color, strokeWidth: { value: 2 },
        } },
      },
      {
        type: "symbol", name: "points", from: { data: "rows" },
        encode: { update: {
          x: { scale: "x", field: "speed" }, y: { scale: "y", field },
          fill: color, size: { value: 80 }, stroke: { value: css("--card") },
          tooltip: { signal: `datum.label + ': ' + format(datum.speed, '.3~r') + ' ${UNIT}, ' + format(datum.${field}, '${format}')` },
        } },
      },
      {
        type: "text", name: "labels", from: { data: "points" },
        encode: { update: { text: { field: "datum.text" }, fill: { value: css("--ink") }, fontSize: { value: 12 } } },
        transform: [{
          type: "label", size: { signal: "[width, height]" }, avoidMarks: ["intervals"],
          anchor: DISTANCES.flatMap(() => SIDES), offset: DISTANCES.flatMap(distance => SIDES.map(() => distance)),
        }],
      },
      {
        type: "rule", from: { data: "labels" },
        encode: { update: {
          strokeWidth: { value: 0.7 }, stroke: { value: css("--quiet") },
          x: { field: "x" }, y: { field: "y" }, x2: { field: "datum.x" }, y2: { field: "datum.y" },
          opacity: { signal: "datum.opacity * 0.7" },
        } },
      },
    ],
  };
}

// Labels of points stand beside them if all have a place there; else numbers do, with a list below.
async function drawPoints(box, points, field, title, format) {
  const isPlaced = async name => {
    await draw(box, scatter(field, title, format, box.clientWidth, points, name));
    return !box.querySelector(".labels text[opacity='0']");
  };
  if (points.every(row => row.label.length <= box.clientWidth / 16) && await isPlaced("label")) return;
  await isPlaced("number");
  const names = points.map(row => {
    const key = element("i", "key");
    key.style.background = row.color;
    return element("li", "", key, element("b", "", row.number), " ", row.label.replaceAll(" · ", "\u00a0· "));
  });
  box.append(element("ul", "legend points", ...names));
}

// Shows the sums of fields of each row; `parts` are the names of the fields and their colours.
function drawBars(box, points, parts, format) {
  const sum = row => parts.reduce((total, [, field]) => total + (row[field] ?? 0), 0);
  const most = Math.max(...points.map(sum)) || 1;
  const part = (row, [name, field, color]) => {
    const bar = element("i", "fill");
    bar.style.width = `${100 * (row[field] ?? 0) / most}%`;
    bar.style.background = `var(${color})`;
    bar.title = `${name}: ${format(row[field] ?? 0)}`;
    return bar;
  };
  const lines = points.map(row => element("li", "",
    element("span", "name", row.label.replaceAll(" · ", "\u00a0· ")),
    element("span", "bar", ...parts.map(one => part(row, one))),
    element("span", "value", format(sum(row)))));
  const keys = parts.map(([name, , color]) => {
    const key = element("i", "key");
    key.style.background = `var(${color})`;
    return element("li", "", key, name);
  });
  const legend = keys.length > 1 ? [element("ul", "legend", ...keys)] : [];
  box.replaceChildren(element("ul", "bars", ...lines), ...legend);
}

const known = field => rows.filter(row => row[field] !== null);
const differs = field => new Set(known(field).map(row => row[field])).size > 1;
// Where all points would lie in one row, bars show the speed.
const CHARTS = [
  ["changed", () => differs("changed") ? known("changed") : [],
    (...chart) => drawPoints(...chart, "changed", "changed answers", "d")],
  ["f1", () => differs("f1") ? known("f1") : [], (...chart) => drawPoints(...chart, "f1", "F1", ".3f")],
  ["speed", () => differs("changed") && document.getElementById("changed") || differs("f1") ? [] : rows,
    (...chart) => drawBars(...chart, [["speed", "speed", "--p0"]], digits)],
  ["predict_s", () => known("predict_s"), (...chart) => drawBars(
    ...chart, [["first start", "first_start_s", "--p2"], ["prediction", "predict_s", "--p0"]],
    value => value.toFixed(1))],
];

function drawAll() {
  const charts = CHARTS.map(([id, points, show]) => [document.getElementById(id), points(), show]).filter(([box]) => box);
  for (const [box, points] of charts) {
    box.parentElement.hidden = !points.length; // of all before the first is drawn, since they share a line
  }
  for (const [box, points, show] of charts) {
    if (points.length) show(box, points);
  }
}

function element(name, className, ...children) {
  const made = document.createElement(name);
  made.className = className;
  made.append(...children);
  return made;
}

// Without gold answers those of the first row are the ones to compare with.
function answerBox(answer, labels, isFirst) {
  const isExpected = answer.outcome ? ["right", "null"].includes(answer.outcome) : isFirst;
  const box = element("div", isExpected ? "expected" : "predicted");
  if (answer.outcome) box.append(element("span", `mark ${answer.outcome}`, answer.outcome));
  box.append(element("div", "profiles", labels.join(", ")));
  box.append(element("div", "short", answer.s || (answer.l ? "(no short answer)" : "(no answer)")));
  if (answer.l) box.append(element("div", "long", answer.l));
  return box;
}

function listChanges() {
  const section = document.getElementById("changes");
  for (const change of json("changes")) {
    const groups = new Map();
    for (const [label, answer] of Object.entries(change.answers)) {
      if (!groups.has(answer.group)) groups.set(answer.group, { answer, labels: [] });
      groups.get(answer.group).labels.push(label);
    }
    const boxes = [...groups.values()].map((one, index) => answerBox(one.answer, one.labels, index === 0));
    const gold = change.gold.length ? [element("p", "quiet", `gold: ${change.gold.join(" | ")}`)] : [];
    section.append(element("article", "card change", element("h3", "", change.question), ...gold, element("div", "answers", ...boxes)));
    section.hidden = false;
  }
}

listChanges();
keepDrawn(drawAll);
