"use strict";
// Draws the charts of a comparison, and lists the questions whose answers differ.

const json = name => JSON.parse(document.getElementById(`json-${name}`).textContent);
const rows = json("rows").filter(row => row.windows_per_s);
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
  const speeds = points.flatMap(row => [row.windows_per_s, row.low ?? row.windows_per_s, row.high ?? row.windows_per_s]);
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
      { scale: "x", orient: "bottom", title: "windows/s, steady", grid: true, tickCount: Math.round(width / 90) },
      { scale: "y", orient: "left", title, grid: true, format, tickCount: format === "d" ? Math.min(5, y[1]) : 5 },
    ],
    marks: [
      {
        type: "rule", name: "intervals", from: { data: "rows" },
        encode: { update: {
          x: { scale: "x", signal: "datum.low === null ? datum.windows_per_s : datum.low" },
          x2: { scale: "x", signal: "datum.high === null ? datum.windows_per_s : datum.high" },
          y: { scale: "y", field }, stroke: color, strokeWidth: { value: 2 },
        } },
      },
      {
        type: "symbol", name: "points", from: { data: "rows" },
        encode: { update: {
          x: { scale: "x", field: "windows_per_s" }, y: { scale: "y", field },
          fill: color, size: { value: 80 }, stroke: { value: css("--card") },
          tooltip: { signal: `datum.label + ': ' + format(datum.windows_per_s, '.3~r') + ' windows/s, ' + format(datum.${field}, '${format}')` },
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

function bars(width, points) {
  const parts = points.flatMap((row, index) => [
    { index, label: row.label, part: "first start", seconds: row.first_start_s ?? 0 },
    { index, label: row.label, part: "prediction", seconds: row.predict_s ?? 0 },
  ]);
  return {
    width, height: 30 * points.length + 90, padding: 4, autosize: { type: "fit", contains: "padding" },
    data: [{ name: "parts", values: parts, transform: [{ type: "stack", groupby: ["index"], field: "seconds" }] }],
    scales: [
      { name: "y", type: "band", domain: { data: "parts", field: "index" }, range: "height", padding: 0.25 },
      { name: "name", type: "ordinal", domain: points.map((_, index) => index), range: points.map(row => row.label) },
      { name: "x", domain: { data: "parts", field: "y1" }, range: [0, { signal: "width - 46" }], nice: true, zero: true },
      { name: "color", type: "ordinal", domain: ["first start", "prediction"], range: [css("--p2"), css("--p0")] },
    ],
    legends: [{ fill: "color", orient: "top", direction: "horizontal" }],
    axes: [
      { scale: "x", orient: "bottom", grid: true, tickCount: Math.round(width / 120), title: "seconds" },
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
          tooltip: { signal: "datum.label + ', ' + datum.part + ': ' + format(datum.seconds, '.1f') + ' s'" },
        } },
      },
      {
        type: "text", from: { data: "parts" },
        encode: { update: {
          x: { scale: "x", field: "y1", offset: 5 }, y: { scale: "y", field: "index", band: 0.5 }, baseline: { value: "middle" },
          text: { signal: "datum.part === 'prediction' ? format(datum.y1, '.1f') : ''" }, fill: { value: css("--quiet") },
        } },
      },
    ],
  };
}

const CHARTS = [
  ["changed", (...view) => scatter("changed", "changed answers", "d", ...view)],
  ["micro_f1", (...view) => scatter("micro_f1", "micro-F1", ".3f", ...view)],
  ["predict_s", bars],
];

function drawAll() {
  const charts = CHARTS.map(([field, spec]) => [document.getElementById(field), rows.filter(row => row[field] !== null), spec]);
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

function answerBox(answer, profiles, isBaseline) {
  const box = element("div", isBaseline ? "expected" : "predicted");
  if (answer.outcome) box.append(element("span", `mark ${answer.outcome}`, answer.outcome));
  box.append(element("div", "profiles", profiles.join(", ")));
  box.append(element("div", "short", answer.s || (answer.l ? "(no short answer)" : "(no answer)")));
  if (answer.l) box.append(element("div", "long", answer.l));
  return box;
}

function listChanges() {
  const section = document.getElementById("changes");
  for (const change of json("changes")) {
    const groups = new Map();
    for (const [profile, answer] of Object.entries(change.answers)) {
      const key = JSON.stringify([answer.s, answer.l, answer.t]);
      if (!groups.has(key)) groups.set(key, { answer, profiles: [] });
      groups.get(key).profiles.push(profile);
    }
    const boxes = [...groups.values()].map((one, index) => answerBox(one.answer, one.profiles, index === 0));
    section.append(element("article", "card change", element("h3", "", change.question), element("div", "answers", ...boxes)));
    section.hidden = false;
  }
}

listChanges();
keepDrawn(drawAll);
