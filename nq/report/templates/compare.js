"use strict";
// Draws the charts of a comparison, and lists the questions whose answers differ.

const json = name => JSON.parse(document.getElementById(`json-${name}`).textContent);
const rows = json("rows").filter(row => row.windows_per_s);
for (const row of rows) {
  const factor = row.questions_per_s ? row.questions_per_s / row.windows_per_s : 1;
  row.speed = factor * row.windows_per_s;
  row.slowest = factor * (row.low ?? row.windows_per_s);
  row.fastest = factor * (row.high ?? row.windows_per_s);
}
const UNIT = rows.some(row => row.questions_per_s) ? "questions/s" : "windows/s";
const SIDES = ["right", "left", "top", "bottom", "top-right", "bottom-right", "top-left", "bottom-left"];
const DISTANCES = [7, 16, 28, 42, 58, 76];
const LEFT = "\u200b\u00a0", RIGHT = "\u00a0\u200b"; // keep labels apart; vega trims blanks

const cut = (text, length) => text.length <= length ? text : `${text.slice(0, length - 1)}…`;
function padded(values, share, least) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const margin = Math.max((high - low) * share, least);
  return [low - margin, high + margin];
}

function scatter(field, title, format, width, points) {
  const speeds = points.flatMap(row => [row.slowest, row.fastest]);
  const values = points.map(row => row[field]);
  const [low, high] = padded(speeds, 0.05, Math.max(...speeds) * 0.02);
  const y = field === "changed" ? [0, Math.max(1, ...values)] : padded(values, 0.12, 0.005);
  const height = Math.max(300, 30 * points.length + 120);
  const color = { scale: "color", field: "label" };
  return {
    width, height, padding: 4, autosize: { type: "fit", contains: "padding" },
    data: [{ name: "rows", values: points.map(row => ({ ...row, text: `${LEFT}${cut(row.label, Math.floor(width / 13))}${RIGHT}` })) }],
    scales: [
      { name: "x", domain: [Math.max(0, low), high], range: [16, { signal: "width - 16" }], zero: false },
      { name: "y", domain: y, range: [{ signal: "height - 30" }, 30], zero: false },
      { name: "color", type: "ordinal", domain: { data: "rows", field: "label" }, range: { scheme: "tableau10" } },
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

function bars(width, points, parts, axis, format) {
  const values = points.flatMap((row, index) => parts.map(([part, field]) => (
    { index, label: row.label, part, value: row[field] ?? 0 }
  )));
  const names = parts.map(([part]) => part);
  return {
    width, height: 30 * points.length + (names.length > 1 ? 90 : 60), padding: 4, autosize: { type: "fit", contains: "padding" },
    data: [{ name: "parts", values, transform: [{ type: "stack", groupby: ["index"], field: "value" }] }],
    scales: [
      { name: "y", type: "band", domain: { data: "parts", field: "index" }, range: "height", padding: 0.25 },
      { name: "name", type: "ordinal", domain: points.map((_, index) => index), range: points.map(row => row.label) },
      { name: "x", domain: { data: "parts", field: "y1" }, range: [0, { signal: "width - 46" }], nice: true, zero: true },
      { name: "color", type: "ordinal", domain: names, range: names.length > 1 ? [css("--p2"), css("--p0")] : [css("--p0")] },
    ],
    legends: names.length > 1 ? [{ fill: "color", orient: "top", direction: "horizontal" }] : [],
    axes: [
      { scale: "x", orient: "bottom", grid: true, tickCount: Math.round(width / 120), title: axis },
      {
        scale: "y", orient: "left", domain: false, ticks: false,
        encode: { labels: { update: { text: { signal: "scale('name', datum.value)" }, limit: { value: width * 0.45 } } } },
      },
    ],
    marks: [
      {
        type: "rect", from: { data: "parts" },
        encode: { update: {
          x: { scale: "x", field: "y0" }, x2: { scale: "x", field: "y1" }, y: { scale: "y", field: "index" },
          height: { scale: "y", band: 1 }, fill: { scale: "color", field: "part" },
          tooltip: { signal: `datum.label + ', ' + datum.part + ': ' + format(datum.value, '${format}') + ' ${axis}'` },
        } },
      },
      {
        type: "text", from: { data: "parts" },
        encode: { update: {
          x: { scale: "x", field: "y1", offset: 5 }, y: { scale: "y", field: "index", band: 0.5 }, baseline: { value: "middle" },
          text: { signal: `datum.part === '${names.at(-1)}' ? format(datum.y1, '${format}') : ''` }, fill: { value: css("--quiet") },
        } },
      },
    ],
  };
}

const known = field => rows.filter(row => row[field] !== null);
const differs = field => new Set(known(field).map(row => row[field])).size > 1;
// Where all points would lie in one row, bars show the speed.
const CHARTS = [
  ["changed", () => differs("changed") ? known("changed") : [], (...view) => scatter("changed", "changed answers", "d", ...view)],
  ["f1", () => differs("f1") ? known("f1") : [], (...view) => scatter("f1", "F1", ".3f", ...view)],
  ["speed", () => differs("changed") && document.getElementById("changed") || differs("f1") ? [] : rows,
    (...view) => bars(...view, [["speed", "speed"]], UNIT, ".3~r")],
  ["predict_s", () => known("predict_s"),
    (...view) => bars(...view, [["first start", "first_start_s"], ["prediction", "predict_s"]], "seconds", ".1f")],
];

function drawAll() {
  const charts = CHARTS.map(([id, points, spec]) => [document.getElementById(id), points(), spec]).filter(([box]) => box);
  for (const [box, points] of charts) {
    box.parentElement.hidden = !points.length; // of all before the first is drawn, since they share a line
  }
  for (const [box, points, spec] of charts) {
    if (points.length) draw(box, spec(box.clientWidth, points));
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
