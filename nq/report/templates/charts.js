"use strict";
// What the charts of all pages share. The interpreter of Vega's expressions needs no eval, which the
// policy of the pages forbids.

const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function config() {
  const [ink, quiet, line] = ["--ink", "--quiet", "--line"].map(css);
  const text = { labelColor: quiet, titleColor: quiet, labelFontSize: 12, titleFontSize: 12, titleFontWeight: 400 };
  return {
    background: null,
    font: "system-ui, sans-serif",
    axis: { ...text, gridColor: line, domainColor: line, tickColor: line },
    legend: text,
    text: { fill: ink, fontSize: 12 },
  };
}

// Returns a promise that the chart is drawn.
function draw(box, spec) {
  box.replaceChildren();
  const runtime = vega.parse(spec, config(), { ast: true });
  return new vega.View(runtime, { expr: vega.expressionInterpreter, renderer: "svg", container: box }).runAsync();
}

// Draws all charts of a page now, in other colours, and in another width.
function keepDrawn(drawAll) {
  let width = innerWidth;
  drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("resize", () => {
    if (innerWidth !== width) drawAll();
    width = innerWidth;
  });
}
