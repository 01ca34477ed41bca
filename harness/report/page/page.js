"use strict";
// Pages: the overview, or the one cell that the address names.
function route() {
  const id = decodeURIComponent(location.hash.slice(1));
  const page = id && document.getElementById(id);
  for (const article of document.querySelectorAll("article")) article.hidden = article !== page;
  document.getElementById("overview").hidden = Boolean(page);
  if (page) page.querySelectorAll(".lanes:not(.drawn)").forEach(setUp);
  setTimeout(() => scrollTo(0, 0));  // after the browser's own jump to the address
}
addEventListener("hashchange", route);

// Filters of the overview.
const filters = document.getElementById("filters");
function filter() {
  const want = Object.fromEntries(new FormData(filters));
  const words = want.text.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const cell of document.querySelectorAll(".cell")) {
    const data = cell.dataset;
    const fits = ["standing", "backend", "variant"].every((key) => !want[key] || data[key] === want[key])
      && words.every((word) => data.text.toLowerCase().includes(word));
    cell.hidden = !fits;
    cell.style.display = fits ? "" : "none";
    shown += fits;
  }
  for (const row of document.querySelectorAll(".grid tbody tr"))
    row.hidden = ![...row.querySelectorAll(".cell")].some((cell) => !cell.hidden);
  document.getElementById("shown").value = `${shown} shown`;
}
filters.addEventListener("input", filter);
filters.addEventListener("submit", (event) => event.preventDefault());

// Swimlanes.
const COLOURS = ["#2563c9", "#b4530a", "#157a4a", "#8a3ab9", "#b3226a", "#0e7490", "#7a6a00", "#5b5bd6", "#a63d2f", "#47682c"];
const NAMES = 64, BAR = 16, GAP = 3, PAD = 8, MANY = 400;
const NS = "http://www.w3.org/2000/svg";
function make(name, attributes, parent, text) {
  const node = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

function setUp(section) {
  section.classList.add("drawn");
  const data = JSON.parse(section.dataset.picture);
  const marks = data.marks.map(([rank, seq, thread, group, name, label, issued, done, where]) =>
    ({ rank, seq, thread: data.texts[thread], group, name: data.texts[name], label: data.texts[label], issued, done,
       where: data.texts[where] }));
  const form = document.createElement("form");
  const groups = data.groups.map((name, index) =>
    `<label><input type="checkbox" name="group" value="${index}" checked><span class="swatch" style="background:${COLOURS[index % COLOURS.length]}"></span>${escaped(name)}</label>`);
  form.innerHTML = groups.join("") +
    `<label>scale <select name="scale"><option value="order">order of events</option><option value="time">time</option></select></label>` +
    `<label>zoom <input type="range" name="zoom" min="-3" max="4" step="0.5" value="0"></label>` +
    `<label>ranks <input type="search" name="ranks" size="8" placeholder="0, 4-7"></label>` +
    `<label>operations <input type="search" name="text" placeholder="name, label or line"></label>` +
    `<label>only what is stuck <input type="checkbox" name="stuck"></label><output></output>`;
  const view = Object.assign(document.createElement("div"), { className: "view" });
  const key = Object.assign(document.createElement("p"), { className: "key" });
  key.textContent = "A bar runs from issue to completion; a dashed one never completed. Red: the wait cycle (dashed within a rank, "
    + "solid to the other rank's part). Outlined: where ranks first part.";
  section.append(form, view, key);
  if (marks.length > MANY * 4) form.elements.stuck.checked = marks.some((mark) => mark.done === null);
  const redraw = () => draw(view, data, marks, form);
  form.addEventListener("input", redraw);
  form.addEventListener("submit", (event) => event.preventDefault());
  redraw();
  const matter = view.querySelector(".arrow") ?? view.querySelector(".parted");
  if (matter) view.scrollLeft = matter.getBBox().x - view.clientWidth / 2;
}

function escaped(text) { return text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`); }

// The ranks that text such as "0, 4-7" names; all where it names none.
function ranksOf(text) {
  const parts = [...text.matchAll(/(\d+)(?:\s*-\s*(\d+))?/g)].map(([, from, to]) => [Number(from), Number(to ?? from)]);
  return (rank) => !parts.length || parts.some(([from, to]) => from <= rank && rank <= to);
}

function draw(view, data, marks, form) {
  const want = new FormData(form);
  const inRanks = ranksOf(want.get("ranks"));
  const groups = new Set(want.getAll("group").map(Number));
  const text = want.get("text").toLowerCase();
  const shown = marks.filter((mark) => groups.has(mark.group) && inRanks(mark.rank)
    && (!want.get("stuck") || mark.done === null || isParted(data, mark))
    && (!text || `${mark.name} ${mark.label} ${mark.where}`.toLowerCase().includes(text)));
  const place = scale(shown, want.get("scale"), Number(want.get("zoom")), view.clientWidth - NAMES - 24);
  const lanes = stack(shown, data.ranks, place, inRanks);
  const right = place.end + 180;
  const names = make("svg", { class: "names", width: NAMES, height: lanes.height });
  const svg = make("svg", { width: right, height: lanes.height, role: "img", "aria-label": "operations of every rank" });
  svg.innerHTML = '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="5" markerHeight="5" orient="auto"><path class="head" d="M0 0 8 4 0 8z"/></marker></defs>';
  lanes.tops.forEach((top, rank) => {
    if (!inRanks(rank)) return;
    make("rect", { class: "lane", x: 0, y: top, width: right, height: lanes.heights[rank] - 4 }, svg);
    make("rect", { class: "lane", x: 0, y: top, width: NAMES, height: lanes.heights[rank] - 4 }, names);
    make("text", { x: 8, y: top + 19 }, names, `rank ${rank}`);
  });
  const boxes = new Map();
  for (const mark of shown) boxes.set(`${mark.rank}/${mark.seq}`, bar(svg, data, mark, place, lanes));
  for (const arrow of data.arrows) connect(svg, arrow, boxes, lanes, place.end);
  view.replaceChildren(names, svg);
  form.querySelector("output").value = `${shown.length} of ${marks.length} operations`;
}

function isParted(data, mark) { return data.parted.some(([rank, seq]) => rank === mark.rank && seq === mark.seq); }

// x of a time: proportional, or one step per event so that a microsecond and a second are equally readable.
function scale(shown, kind, zoom, width) {
  const times = [...new Set(shown.flatMap((mark) => mark.done === null ? [mark.issued] : [mark.issued, mark.done]))].sort((a, b) => a - b);
  const grown = 2 ** zoom;
  if (kind === "time") {
    const first = times[0] ?? 0, span = Math.max(1e-6, (times.at(-1) ?? 1) - first);
    return { at: (time) => ((time - first) / span) * width * grown, end: width * grown };
  }
  const step = Math.min(40, Math.max(6, width / (times.length + 1))) * grown;
  const index = new Map(times.map((time, i) => [time, i]));
  return { at: (time) => index.get(time) * step, end: times.length * step };
}

// Rows within a lane, so that overlapping operations don't hide each other.
function stack(shown, ranks, place, inRanks) {
  const rows = Array.from({ length: ranks }, () => []);
  for (const mark of shown) {
    const from = place.at(mark.issued), to = mark.done === null ? Infinity : place.at(mark.done);
    let row = rows[mark.rank].findIndex((end) => end <= from);
    if (row < 0) row = rows[mark.rank].push(0) - 1;
    rows[mark.rank][row] = Math.max(to, from + 6);
    mark.row = row;
  }
  const heights = rows.map((used, rank) => inRanks(rank) ? Math.max(1, used.length) * (BAR + GAP) + 2 * PAD : 0);
  const tops = heights.map((_, rank) => heights.slice(0, rank).reduce((a, b) => a + b, 0));
  return { tops, heights, height: heights.reduce((a, b) => a + b, 0) };
}

function bar(svg, data, mark, place, lanes) {
  const x = place.at(mark.issued), y = lanes.tops[mark.rank] + PAD - 2 + mark.row * (BAR + GAP);
  const end = mark.done === null ? place.end + 160 : place.at(mark.done);
  const width = Math.max(5, end - x), colour = COLOURS[mark.group % COLOURS.length];
  const item = make("g", { class: "mark", "data-mark": `${mark.rank}/${mark.seq}` }, svg);
  const classes = [mark.done === null && "never", isParted(data, mark) && "parted"].filter(Boolean).join(" ");
  make("rect", { class: classes, x, y, width, height: BAR, rx: 3, fill: colour, stroke: colour }, item);
  const room = Math.floor((width - 6) / 6), name = mark.label ? `${mark.name} ${mark.label}` : mark.name;
  if (room > 3) make("text", { x: x + 4, y: y + 12, class: mark.done === null ? "" : "on" }, item, name.length > room ? name.slice(0, room - 1) + "…" : name);
  const times = mark.done === null ? `issued at ${mark.issued.toFixed(1)} µs, never completed`
    : `issued at ${mark.issued.toFixed(1)} µs, took ${(mark.done - mark.issued).toFixed(1)} µs`;
  make("title", {}, item, `rank ${mark.rank}${mark.thread === "main" ? "" : ` (${mark.thread})`}: ${name}\n${times}\n${mark.where}`);
  return { x, y, width };
}

function connect(svg, [kind, rank, seq, otherRank, otherSeq], boxes, lanes, edge) {
  const spot = (r, s) => {
    const box = boxes.get(`${r}/${s}`);
    return box ? [box.x + Math.min(box.width, 24), box.y + BAR / 2] : s === null && lanes.heights[r] ? [edge, lanes.tops[r] + lanes.heights[r] / 2] : null;
  };
  const from = spot(rank, seq), to = spot(otherRank, otherSeq);
  if (!from || !to) return;
  const bend = kind === "waits" ? 0 : 30;
  make("path", { class: `arrow ${kind}`, "marker-end": "url(#head)",
    d: `M${from[0]} ${from[1]} C${from[0] + bend + 20} ${from[1]} ${to[0] + bend + 20} ${to[1]} ${to[0]} ${to[1]}` }, svg);
}

filter();
route();
