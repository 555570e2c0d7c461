"use strict";
/* Shows the questions of the report. Text of the data is only ever set as textContent. */
(() => {
  const json = (name) => JSON.parse(document.getElementById("json-" + name).textContent);
  const data = json("data");
  const rows = json("rows");
  const PAGE = 60;
  const SIGNS = { right: "✓", passage: "¶", wrong: "✗", extra: "+", missed: "○", null: "–", "": "·" };
  const MARKS = { p: "predicted", g: "expected", o: "other run" };
  const byId = new Map();
  const $ = (id) => document.getElementById(id);
  const percent = rows.every((r) => [...r.p, ...(r.bp || [])].every((p) => p >= 0 && p <= 1));
  rows.forEach((r, n) => {
    r.n = n;
    byId.set(r.i, r);
    r.text = [r.i, r.q, r.a, r.b || "", ...r.e].join("\n").toLowerCase();
  });
  const state = { outcomes: new Set(), change: "", kind: 0, sort: "", words: [], low: null,
    high: null, traits: {} };
  let shown = []; // the questions that pass the filters, of which the list has those from first on
  let first = 0;
  let until = 0;
  let current = null;
  let rest = false;

  /* Returns an element; children that are no elements become text. */
  function el(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "onclick") element.addEventListener("click", value);
      else if (value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== ""));
    return element;
  }
  /* Returns text of the data that stands beside other text, whose direction it cannot change. */
  const apart = (text) => (text ? el("bdi", {}, text) : "");
  /* Returns a score in words; a probability is never shown as 0 or 100 % unless it is. */
  function score(p) {
    if (!percent) return p.toFixed(2);
    if (p > 0 && p < 0.01) return "<1%";
    return p > 0.99 && p < 1 ? ">99%" : `${Math.round(100 * p)}%`;
  }
  const sign = (outcome) =>
    el("span", { class: "mark " + (outcome || "none"), title: outcome || "not scored" },
      SIGNS[outcome], el("span", { class: "hidden" }, " " + (outcome || "not scored")));
  const isRight = (outcome) => outcome === "right" || outcome === "null";
  const given = (r, k) => (k ? !["missed", "null", ""].includes(r.o[k]) : r.a !== "");

  /* --- filters ------------------------------------------------------------------------------ */
  const CHANGES = {
    changed: (r) => r.c,
    better: (r) => r.c && isRight(r.o[state.kind]) && !isRight(r.bo[state.kind]),
    worse: (r) => r.c && !isRight(r.o[state.kind]) && isRight(r.bo[state.kind]),
  };
  const rank = (outcome) => data.outcomes[state.kind].indexOf(outcome);
  const SORTS = {
    ...(data.compared ? { "changed first": (a, b) => b.c - a.c } : {}),
    "order of the data": () => 0,
    "score, highest first": (a, b) => b.p[state.kind] - a.p[state.kind],
    "score, lowest first": (a, b) => a.p[state.kind] - b.p[state.kind],
    "outcome": (a, b) => rank(a.o[state.kind]) - rank(b.o[state.kind]),
    "question, A to Z": (a, b) => (a.q < b.q ? -1 : a.q > b.q ? 1 : 0),
  };
  const tests = {
    outcome: (r) => !state.outcomes.size || state.outcomes.has(r.o[state.kind]),
    change: (r) => !state.change || CHANGES[state.change](r),
    words: (r) => state.words.every((word) => r.text.includes(word)),
    range: (r) => (state.low === null && state.high === null) || (
      (state.low === null || r.p[state.kind] >= state.low) &&
      (state.high === null || r.p[state.kind] <= state.high)),
    traits: (r) => Object.entries(state.traits).every(([i, value]) => r.t[i] === value),
  };
  const passing = (without) => {
    const used = Object.entries(tests).filter(([name]) => name !== without).map(([, test]) => test);
    return rows.filter((r) => used.every((test) => test(r)));
  };

  function update() {
    shown = passing("").sort((a, b) => SORTS[state.sort](a, b) || a.n - b.n);
    chips();
    fill(0);
    const bar = $("detail").querySelector(".bar-top");
    if (bar && current) {
      bar.replaceWith(top(current));
      $("detail").querySelector(".verdicts").replaceWith(verdicts(current, details(current)));
    }
    $("count").textContent = shown.length === rows.length
      ? `${rows.length.toLocaleString("en")} questions`
      : `${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} questions`;
    const active = Object.keys(state.traits).length + (state.low !== null) + (state.high !== null);
    $("active").textContent = active ? `(${active} in use)` : "";
    if (shown.length) return;
    $("list").append(el("li", { class: "quiet gap" }, "No question matches the filters."));
  }

  function chips() {
    const chip = (label, count, pressed, onclick, before) =>
      el("button", { type: "button", "aria-pressed": String(pressed), onclick }, before, label,
        el("b", {}, String(count)));
    const candidates = passing("outcome");
    $("outcomes").replaceChildren(...data.outcomes[state.kind].map((name) => chip(
      name === "null" ? "no answer, as in gold" : name,
      candidates.filter((r) => r.o[state.kind] === name).length,
      state.outcomes.has(name),
      () => { if (!state.outcomes.delete(name)) state.outcomes.add(name); update(); },
      sign(name))));
    $("outcomes").hidden = !data.scored;
    $("changes").hidden = !data.compared;
    if (!data.compared) return;
    const others = passing("change");
    $("changes").replaceChildren(...Object.entries(CHANGES)
      .filter(([name]) => data.scored || name === "changed")
      .map(([name, test]) => chip(name, others.filter(test).length, state.change === name,
        () => { state.change = state.change === name ? "" : name; update(); })));
  }

  function listItem(r) {
    const k = state.kind;
    const answer = r.a || "no answer";
    return el("li", {}, el("a", { href: "#" + encodeURIComponent(r.i),
      ...(r === current ? { "aria-current": "true" } : {}) },
    sign(r.o[k]),
    el("span", { class: "ask", dir: "auto" }, r.q || `question ${r.i}`),
    el("span", { class: "score" }, given(r, k) ? score(r.p[k]) : ""),
    el("span", { class: "said", dir: "auto" },
      el("span", {}, el("b", {}, apart(answer))),
      r.c ? el("span", {}, "other run: ", el("b", {}, apart(r.b || "no answer")), " ",
        sign(r.bo[k])) : null,
      data.scored && !isRight(r.o[0]) && r.o[0]
        ? el("span", {}, "expected: ", apart(r.e.join(" | ") || "no answer")) : null)));
  }

  /* Shows the list from a question on; those before it can be added. */
  function fill(from) {
    first = until = from;
    $("list").replaceChildren(...(first ? [el("li", { class: "gap" }, el("button",
      { type: "button", class: "plain", onclick: earlier }))] : []));
    $("list").scrollTop = 0;
    label();
    more();
  }
  const label = () => {
    const button = $("list").querySelector(".gap button");
    if (button) button.textContent = `↑ ${first.toLocaleString("en")} earlier questions`;
  };
  function earlier() {
    const from = Math.max(0, first - PAGE), gap = $("list").firstElementChild;
    gap.after(...shown.slice(from, first).map(listItem));
    first = from;
    if (first) label();
    else gap.remove();
  }
  function more() {
    $("list").append(...shown.slice(until, until + PAGE).map(listItem));
    until = Math.min(until + PAGE, shown.length);
  }
  const nearEnd = () => {
    const list = $("list"), last = list.lastElementChild;
    if (!last || until >= shown.length) return;
    const end = Math.max(window.innerHeight, list.getBoundingClientRect().bottom);
    if (last.getBoundingClientRect().top < end + 600) more();
  };
  $("list").addEventListener("scroll", nearEnd, { passive: true });
  window.addEventListener("scroll", nearEnd, { passive: true });

  /* --- details ------------------------------------------------------------------------------ */
  let parsed = null; // when the first question is opened
  function details(r) {
    parsed ??= json("details");
    return parsed[r.n];
  }

  function select(r) {
    current = r;
    rest = false;
    for (const a of $("list").querySelectorAll("[aria-current]")) a.removeAttribute("aria-current");
    const link = linkOf(r);
    if (link) {
      link.setAttribute("aria-current", "true");
      const box = link.getBoundingClientRect(), around = $("list").getBoundingClientRect();
      const visible = box.top >= around.top && box.bottom <= around.bottom;
      if (!visible) $("list").scrollTop += box.top - around.top - 80;
    }
    $("questions").classList.add("open");
    show(r, details(r));
  }
  /* Returns the link of a question in the list, which is shown from there on if it is far away. */
  function linkOf(r) {
    const at = shown.indexOf(r);
    if (at < 0) return null;
    if (at === until) more();
    if (at < first || at >= until) fill(Math.max(0, at - 3));
    return $("list").querySelectorAll("a")[at - first];
  }

  const hash = (r) => "#" + encodeURIComponent(r.i);
  const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

  /* Returns the bar above a question: back, previous, next, its link. */
  function top(r) {
    const at = shown.indexOf(r);
    const beside = (step, label) =>
      at >= 0 && shown[at + step] ? el("a", { href: hash(shown[at + step]) }, label) : null;
    return el("div", { class: "bar-top" },
      el("button", { type: "button", class: "back", onclick: close }, "‹ all questions"),
      beside(-1, "‹ previous"), beside(1, "next ›"),
      el("a", { class: "id", href: hash(r), title: "link to this question" }, "# ", apart(r.i)));
  }

  /* Returns what the answer, its long and its short part are; the mark is that of the list. */
  function verdicts(r, d) {
    const verdict = (kind, i) => {
      const outcome = r.o[i], lost = d.lost[i - 1];
      const isElsewhere = outcome === "wrong" && r.o[0] === "right";
      const text = outcome === "null" ? "none, as in gold"
        : isElsewhere ? "elsewhere than in gold" : outcome;
      return outcome ? el("li", {}, i === state.kind ? [sign(outcome), " "] : null,
        `${kind}: ${text}`, lost ? `, lost at: ${lost}` : "") : null;
    };
    return el("ul", { class: "verdicts" }, ["answer", "long answer", "short answer"].map(verdict));
  }

  /* Returns a card with answers; those of gold have votes, those of a run have scores. */
  function answerCard(name, title, answers, empty) {
    const of = (p) => (p === undefined ? null : el("span", { class: "of" }, score(p)));
    const one = (a) => el("div", { class: "one", dir: "auto" },
      a.votes ? el("span", { class: "of" }, `${a.votes} of ${a.of}`) : null,
      a.s || a.l ? null : el("div", { class: "short" }, "no answer"),
      a.s ? el("div", { class: "short" }, of(a.sp), a.s) : null,
      a.l ? el("div", { class: "long" }, of(a.lp), a.p ? `${a.p}: ` : a.n ? `block ${a.n}: ` : "", apart(a.l)) : null);
    return el("div", { class: name }, el("h4", {}, title),
      answers.length ? answers.map(one) : el("p", { class: "quiet" }, empty));
  }

  const titleOf = (letters) => [...new Set([...letters].map((l) =>
    `${MARKS[l.toLowerCase()]} ${l === l.toUpperCase() ? "long" : "short"} answer`))].join(", ");

  function passage(p, d) {
    const letters = [...p.l].map((l) => l.toLowerCase());
    const tags = letters.map((l) => el("span", { class: "tag " + l }, MARKS[l] + " long answer"));
    const place = p.n ? `${p.k} · block ${p.n} of ${d.blocks}` : "outside of all blocks";
    const segments = p.x.map((x) => typeof x === "string" ? x
      : el("mark", { class: [...x[1]].join(" "), title: titleOf(x[1]) }, x[0]));
    const classes = ["passage", ...letters.map((l) => "long-" + l)].join(" ");
    return el("section", { class: classes },
      el("header", {}, place, tags),
      el("div", { class: "text", dir: "auto" }, segments));
  }

  /* Returns the passages of a page with the number of blocks between them. */
  function passages(d) {
    if (!d.passages) return [el("p", { class: "quiet" }, "The page is not in this report.")];
    const list = [];
    let last = 0;
    const gap = (blocks) => {
      if (blocks > 0) list.push(el("p", { class: "gap" }, `… ${plural(blocks, "block")} …`));
    };
    for (const p of d.passages.filter((p) => rest || p.e)) {
      if (p.n) gap(p.n - last - 1);
      list.push(passage(p, d));
      last = p.n || last;
    }
    gap(d.blocks - last);
    const hidden = d.passages.filter((p) => !p.e).length;
    const left = d.blocks - d.passages.filter((p) => p.n).length;
    const note = left > 0 ? ` (${left} more are not in this report)` : "";
    const label = rest ? "Show only the blocks with answers"
      : `Show ${plural(hidden, "more block")} of the page${note}`;
    const button = { type: "button", class: "plain", onclick: toggleRest };
    return hidden ? [...list, el("button", button, label)] : list;
  }
  function toggleRest() {
    rest = !rest;
    if (current) $("passages").replaceChildren(...passages(details(current)));
  }

  function nBest(d) {
    if (!d.nbest) {
      return el("p", { class: "quiet" },
        "The run kept no n-best list: answer with --formats nbest or --keep-scores.");
    }
    const expected = (is) => (is ? el("span", { class: "tag g" }, "expected") : null);
    const none = () => el("span", { class: "quiet" }, "none");
    const line = (a, i) => el("tr", {},
      el("td", { class: "quiet" }, i ? String(i) : "given"),
      el("td", {}, apart(a.s) || none(), expected(a.s && d.gold.some((g) => g.s === a.s))),
      el("td", { class: "num" }, a.s ? score(a.sp) : ""),
      el("td", {}, a.n ? el("span", { class: "quiet" }, `block ${a.n} `) : null,
        apart(a.l) || none(), expected(a.t && d.gold.some((g) => String(g.t) === String(a.t)))),
      el("td", { class: "num" }, a.l ? score(a.lp) : ""));
    const head = ["", "short answer", "score", "long answer", "score"].map((name) =>
      el("th", { scope: "col", class: name === "score" ? "num" : null }, name));
    return el("div", { class: "wide" }, el("table", {},
      el("thead", {}, el("tr", {}, head)), el("tbody", {}, d.nbest.map(line))));
  }

  function show(r, d) {
    const key = Object.entries(MARKS).filter(([letter]) => letter !== "o" || d.other)
      .map(([letter, name]) => el("mark", { class: letter }, name));
    const other = d.other
      ? answerCard("other", `other run ${r.c ? "(changed)" : "(the same)"}`, [d.other]) : null;
    const unknown = data.scored ? "no annotations" : "not known";
    const parts = [top(r),
      el("h2", { dir: "auto" }, d.q || `question ${r.i}`),
      el("div", { class: "quiet" },
        apart(d.title), d.title && d.where ? " · " : "", apart(d.where)),
      verdicts(r, d),
      el("div", { class: "answers" }, answerCard("predicted", "predicted", [d.given]), other,
        answerCard("expected", "expected", d.gold, unknown)),
      el("h3", {}, "Passages"),
      d.passages ? el("div", { class: "key-line" }, key) : "",
      el("div", { id: "passages" }, passages(d)),
      el("h3", {}, "N-best list"), nBest(d)];
    $("detail").replaceChildren(...parts);
    $("detail").scrollTop = 0;
    if (narrow()) $("questions").scrollIntoView();
  }
  const narrow = () => getComputedStyle($("questions")).display === "block";

  /* --- links, keys, controls ---------------------------------------------------------------- */
  function setHash(text) {
    try { history.pushState(null, "", "#" + text); } catch { /* in a frame without an address */ }
  }
  function close() {
    $("questions").classList.remove("open");
    setHash("");
    const link = current && linkOf(current);
    if (link && narrow()) link.scrollIntoView({ block: "center" });
  }
  /* Shows a question and puts its link into the address. */
  function go(r) {
    setHash(encodeURIComponent(r.i));
    select(r);
  }
  function follow() {
    let id = location.hash.slice(1);
    try { id = decodeURIComponent(id); } catch { /* it is not encoded */ }
    const r = byId.get(id);
    if (r) select(r);
    else $("questions").classList.remove("open");
    return r;
  }
  window.addEventListener("hashchange", follow);
  window.addEventListener("popstate", follow);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    const pick = event.target.closest("button.pick");
    if (pick) choose(pick.dataset);
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault(); // in a frame, a link to #… may lead out of the page
    if (link.dataset.to) $(link.dataset.to).scrollIntoView();
    else go(byId.get(decodeURIComponent(link.hash.slice(1))));
  });
  /* Sets the filters that a number of the figures or of the error analysis stands for. */
  function choose({ change, kind, outcome, trait, value }) {
    clear();
    if (change) {
      state.change = change;
    } else {
      state.kind = ["answer", "long", "short"].indexOf(kind);
      state.outcomes.add(outcome);
    }
    const index = Object.keys(data.traits).indexOf(trait);
    if (index >= 0) state.traits[index] = data.traits[trait].indexOf(value);
    controls();
    update();
    $("questions").classList.remove("open");
    $("questions").scrollIntoView();
  }
  function clear() {
    Object.assign(state, { change: "", low: null, high: null, words: [], traits: {} });
    state.outcomes.clear();
  }
  /* Shows the state in the controls. */
  function controls() {
    $("kind").value = String(state.kind);
    $("sort").value = state.sort;
    $("search").value = state.words.join(" ");
    for (const [name, input] of [["low", $("low")], ["high", $("high")]]) {
      const value = percent ? Math.round(1000 * state[name]) / 10 : state[name];
      input.value = state[name] === null ? "" : String(value);
    }
    for (const box of $("traits").querySelectorAll("select")) {
      const value = state.traits[box.dataset.index];
      box.value = value === undefined ? "" : String(value);
    }
  }
  function move(step) {
    const at = shown.indexOf(current);
    const next = shown[at < 0 ? 0 : Math.min(Math.max(at + step, 0), shown.length - 1)];
    if (next && next !== current) go(next);
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const actions = { j: () => move(1), k: () => move(-1), m: toggleRest, Escape: close,
      "/": () => { $("questions").classList.remove("open"); $("search").focus(); } };
    if (actions[event.key]) { event.preventDefault(); actions[event.key](); }
  });

  function start() {
    const kind = $("kind"), sort = $("sort");
    sort.replaceChildren(...Object.keys(SORTS).map((name) => el("option", { value: name }, name)));
    state.sort = Object.keys(SORTS)[0];
    sort.addEventListener("change", () => { state.sort = sort.value; update(); });
    kind.addEventListener("change", () => {
      state.kind = Number(kind.value);
      const names = new Set(data.outcomes[state.kind]);
      state.outcomes = new Set([...state.outcomes].filter((name) => names.has(name)));
      update();
    });
    kind.parentElement.hidden = !data.scored;
    $("search").addEventListener("input", () => {
      state.words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
      update();
    });
    for (const name of ["low", "high"]) {
      $(name).addEventListener("input", () => {
        const value = $(name).value === "" ? NaN : Number($(name).value);
        state[name] = Number.isNaN(value) ? null : percent ? value / 100 : value;
        update();
      });
    }
    if (percent) for (const name of ["low", "high"]) {
      $(name).parentElement.append(" %");
      Object.entries({ min: 0, max: 100 }).forEach(([k, v]) => $(name).setAttribute(k, v));
    }
    Object.entries(data.traits).forEach(([trait, values], i) => {
      const counts = values.map(() => 0);
      rows.forEach((r) => { counts[r.t[i]]++; });
      const used = values.map((value, n) => [value, n]).filter(([value, n]) => value && counts[n]);
      if (used.length < 2) return;
      const box = el("select", { "data-index": i }, el("option", { value: "" }, "all"),
        used.map(([value, n]) => el("option", { value: n }, `${value} (${counts[n]})`)));
      box.addEventListener("change", () => {
        if (box.value === "") delete state.traits[i];
        else state.traits[i] = Number(box.value);
        update();
      });
      $("traits").append(el("label", {}, trait, box));
    });
    $("reset").addEventListener("click", (event) => {
      event.preventDefault();
      clear();
      controls();
      update();
    });
    const form = document.querySelector(".filters");
    form.addEventListener("submit", (event) => event.preventDefault());
    update();
    if (follow()) $("questions").scrollIntoView();
    else if (shown.length && !narrow()) {
      show(shown[0], details(shown[0]));
    }
    document.documentElement.dataset.ready = "true";
  }

  /* --- the charts --------------------------------------------------------------------------- */
  const COLORS = { precision: "--p1", recall: "--p3", f1: "--accent" };
  const charts = json("charts");
  const thresholds = Object.values(charts).flatMap((one) => one.points.map((p) => p.threshold));
  const isShare = thresholds.every((t) => t >= 0 && t <= 1);
  const span = isShare ? [0, 1] : [Math.min(...thresholds), Math.max(...thresholds)];

  function chart(width, domain, title, data, marks) {
    return {
      width, height: 230, padding: 4, autosize: { type: "fit", contains: "padding" }, data,
      scales: [
        { name: "x", domain, range: "width", zero: false },
        { name: "y", domain: [0, 1], range: "height" },
      ],
      axes: [
        { scale: "x", orient: "bottom", title, tickCount: 5 },
        { scale: "y", orient: "left", grid: true, tickCount: 5 },
      ],
      marks,
    };
  }
  const at = (x, y) => ({ x: { scale: "x", field: x }, y: { scale: "y", field: y } });

  function thresholdChart(width, { points, best, threshold }) {
    const lines = Object.entries(COLORS).flatMap(([measure, color]) =>
      points.map((p) => ({ measure, color: css(color), threshold: p.threshold, share: p[measure] })));
    const inUse = threshold >= span[0] && threshold <= span[1] ? [{ threshold }] : [];
    const data = [{ name: "points", values: points }, { name: "best", values: [best] },
      { name: "lines", values: lines }, { name: "inUse", values: inUse }];
    return chart(width, span, "threshold of the score", data, [
      { type: "rule", from: { data: "inUse" }, encode: { update: {
        x: { scale: "x", field: "threshold" }, y: { value: 0 }, y2: { signal: "height" },
        stroke: { value: css("--quiet") }, strokeDash: { value: [2, 3] } } } },
      { type: "group", from: { facet: { name: "line", data: "lines", groupby: "measure" } }, marks: [
        { type: "line", from: { data: "line" }, encode: { update: {
          ...at("threshold", "share"), stroke: { field: "color" },
          strokeWidth: { signal: "datum.measure === 'f1' ? 2.6 : 1.4" } } } }] },
      { type: "symbol", from: { data: "best" }, encode: { update: {
        ...at("threshold", "f1"), fill: { value: css("--accent") } } } },
      { type: "rule", from: { data: "points" }, encode: { update: {
        x: { scale: "x", field: "threshold" }, y: { value: 0 }, y2: { signal: "height" },
        stroke: { value: css("--ink") }, strokeWidth: { value: 6 }, opacity: { value: 0 },
        tooltip: { signal: "'at ' + format(datum.threshold, '.4~g') + ': F1 ' + format(datum.f1, '.3f')"
          + " + ', precision ' + format(datum.precision, '.3f') + ', recall ' + format(datum.recall, '.3f')" } },
        hover: { opacity: { value: 0.3 } } } },
    ]);
  }

  function reliabilityChart(width, { bins }) {
    const data = [{ name: "bins", values: bins.filter((bin) => bin.count) }];
    const tooltip = { signal: "format(datum.low, '.1f') + ' to ' + format(datum.high, '.1f') + ': ' + datum.count"
      + " + ' answers, ' + format(datum.right, '.3f') + ' right, mean probability ' + format(datum.mean, '.3f')" };
    return chart(width, [0, 1], "probability", data, [
      { type: "rect", from: { data: "bins" }, encode: { update: {
        x: { scale: "x", field: "low", offset: 1.5 }, x2: { scale: "x", field: "high", offset: -1.5 },
        y: { scale: "y", field: "right" }, y2: { scale: "y", value: 0 },
        fill: { value: css("--p0") }, opacity: { value: 0.5 }, tooltip } } },
      { type: "rule", encode: { update: {
        x: { value: 0 }, y: { signal: "height" }, x2: { signal: "width" }, y2: { value: 0 },
        stroke: { value: css("--quiet") }, strokeDash: { value: [4, 3] } } } },
      { type: "symbol", from: { data: "bins" }, encode: { update: {
        ...at("mean", "right"), size: { value: 45 }, fill: { value: css("--ink") }, tooltip } } },
      { type: "text", from: { data: "bins" }, encode: { update: {
        x: { scale: "x", signal: "(datum.low + datum.high) / 2" }, y: { scale: "y", value: 0, offset: -4 },
        align: { value: "center" }, fill: { value: css("--ink") }, text: { field: "count" } } } },
    ]);
  }

  const SPECS = { curve: thresholdChart, reliability: reliabilityChart };
  keepDrawn(() => {
    for (const box of document.querySelectorAll("[data-chart]")) {
      draw(box, SPECS[box.dataset.chart](box.clientWidth, charts[box.dataset.kind]));
    }
  });
  start();
})();
