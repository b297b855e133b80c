// The map: all examples as points, by WebGL; what is alike lies near. Coloured by cluster, by a field, by the score for the query, or by the influence on all queries of the file.

import { ask, begin, Refused } from "./api.js";
import { counted, fill, h, many } from "./dom.js";
import { filters, state } from "./state.js";

const MOST = 10_000; // examples that a lasso takes, as many as a basket holds
const NEAR = 10; // pixels within which a point is pointed at
const CELLS = 256; // of a side of the grid by which the nearest point is found
const PALETTE = ["#3f7fd9", "#e0752d", "#2fa36b", "#c94f7c", "#8a6bd1", "#b08a1e", "#2aa5b5", "#d15a4a", "#6f9a2d", "#b565c0", "#8c7361", "#4f67b8"];
const OTHERS = "#8b929c";
const NUMBERS = new Map([["score", "score for the query"], ["influence", "influence on all queries"]]); // colours that are none of a value
let actions = {}; // { open, tickAll }
let drawn = null; // what is on the page: { points, canvas, ... }

export function setUp(given) {
  actions = given;
}

export async function showMap(about, content) {
  const signal = begin();
  const canvas = h("canvas", { class: "map", tabindex: "0", role: "img", "aria-label": "Map of the training examples. Arrows move it, plus and minus zoom, 0 shows all." });
  const labels = h("div", { class: "map-labels", "aria-hidden": "true" }), tip = h("div", { class: "map-tip", hidden: true });
  const stage = h("div", { class: "map-stage" }, canvas, labels, tip);
  const legend = h("div", { class: "map-legend" }), how = h("p", { class: "soft" });
  const lasso = h("button", { type: "button", class: "small", "aria-pressed": "false", onclick: () => pressLasso(lasso) }, "Lasso");
  const zooms = [["+", "Zoom in", 1.5], ["−", "Zoom out", 1 / 1.5], ["⤢", "Show all", 0]].map(([sign, name, by]) =>
    h("button", { type: "button", class: "small", "aria-label": name, onclick: () => zoomAt(by, canvas.clientWidth / 2, canvas.clientHeight / 2) }, sign));
  fill(content, h("div", { class: "map-box" }, h("div", { class: "row" }, chooseColor(about), lasso, zooms), stage, legend, how));
  const points = await read(about, signal);
  if (points === null) return null;
  drawn = { points, canvas, labels, tip, stage, lasso, view: { x: 0, y: 0, zoom: 1 }, path: null, named: new Map() };
  drawn.gl = prepare(canvas, points);
  how.textContent = `Placed by ${points.how}. Examples near each other are alike; distances between far groups mean nothing.`;
  fill(legend, NUMBERS.has(points.color) ? numberLegend(points) : valueLegend(points));
  listen(canvas);
  new ResizeObserver(() => draw()).observe(stage);
  draw();
  return points.count;
}

function chooseColor(about) {
  const fields = [...(state.query ? ["score"] : []), ...(about.queries ? ["influence"] : []), ...about.fields];
  const list = h("select", { id: "map-color", onchange: () => { state.color = list.value; actions.redo(); } }, fields.map((name) => h("option", { value: name }, NUMBERS.get(name) ?? name)));
  list.value = color(about);
  return h("label", { class: "by" }, "colour ", list);
}

const color = (about) => {
  const wanted = state.color ?? (about.fields.includes("cluster") ? "cluster" : "source");
  return wanted === "score" && !state.query ? "source" : wanted;
};

// The answer of the server: a header, then places, rows, and numbers of values or deviations.
async function read(about, signal) {
  const body = { color: color(about), index: state.method === "both" ? 0 : state.method, ...filters(), ...(state.query ? { query: state.query } : {}) };
  let response, bytes;
  try {
    response = await fetch("/api/v1/map", { signal, method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    bytes = await response.arrayBuffer();
  } catch {
    if (signal.aborted) return null;
    throw new Refused("The server does not answer. Is airrep serve still running?");
  }
  if (signal.aborted) return null;
  if (!response.ok) throw new Refused(JSON.parse(new TextDecoder().decode(bytes)).error);
  const length = new DataView(bytes).getUint32(0, true), at = 4 + length;
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length))), n = header.count;
  const places = new Float32Array(bytes, at, 2 * n), rows = new Uint32Array(bytes, at + 8 * n, n), values = new Float32Array(bytes, at + 12 * n, n);
  return { ...header, places, rows, values, grid: gridOf(places) };
}

// Points by cells of a grid, so that the nearest one is found in a few of them.
function gridOf(places) {
  const n = places.length / 2, starts = new Uint32Array(CELLS * CELLS + 1), order = new Uint32Array(n);
  for (let i = 0; i < n; i += 1) starts[cellOf(places[2 * i], places[2 * i + 1]) + 1] += 1;
  for (let cell = 0; cell < CELLS * CELLS; cell += 1) starts[cell + 1] += starts[cell];
  const next = starts.slice();
  for (let i = 0; i < n; i += 1) order[next[cellOf(places[2 * i], places[2 * i + 1])]++] = i;
  return { starts, order };
}

const clamp = (value, least, most) => Math.min(most, Math.max(least, value));
const axis = (value) => clamp(Math.floor((value + 1.25) / 2.5 * CELLS), 0, CELLS - 1);
const cellOf = (x, y) => axis(y) * CELLS + axis(x);

const rgb = (text) => [1, 3, 5].map((place) => parseInt(text.slice(place, place + 2), 16));

function colors(points) {
  const bytes = new Uint8Array(4 * points.count), palette = PALETTE.map(rgb), others = rgb(OTHERS), up = rgb(PALETTE[0]), down = rgb(PALETTE[1]), most = strongest(points);
  for (let i = 0; i < points.count; i += 1) {
    let [r, g, b] = others, a = 190;
    const value = points.values[i];
    if (NUMBERS.has(points.color)) {
      const share = Math.min(1, Math.abs(value) / most), to = value > 0 ? up : down;
      [r, g, b] = others.map((from, place) => from + (to[place] - from) * share);
      a = 70 + 185 * share;
    } else if (value < palette.length) [r, g, b] = palette[value];
    bytes.set([r, g, b, a], 4 * i);
  }
  return bytes;
}

const VERTEX = `attribute vec2 place; attribute vec4 color; uniform vec2 centre; uniform vec2 scale; uniform float size; varying vec4 shown;
void main() { gl_Position = vec4((place - centre) * scale, 0.0, 1.0); gl_PointSize = size; shown = color; }`;
const FRAGMENT = `precision mediump float; varying vec4 shown;
void main() { if (length(gl_PointCoord - 0.5) > 0.5) discard; gl_FragColor = vec4(shown.rgb * shown.a, shown.a); }`;

function prepare(canvas, points) {
  const gl = canvas.getContext("webgl", { antialias: false, preserveDrawingBuffer: true });
  if (!gl) throw new Refused("map: this browser has no WebGL. Try another, or airrep export --to embedding-atlas.");
  const program = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  gl.useProgram(program);
  const buffer = (name, data, size, type, normal) => {
    gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ARRAY_BUFFER, data, gl.STATIC_DRAW);
    const place = gl.getAttribLocation(program, name);
    gl.enableVertexAttribArray(place);
    gl.vertexAttribPointer(place, size, type, normal, 0, 0);
  };
  buffer("place", points.places, 2, gl.FLOAT, false);
  buffer("color", colors(points), 4, gl.UNSIGNED_BYTE, true);
  gl.enable(gl.BLEND);
  gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  gl.uniforms = Object.fromEntries(["centre", "scale", "size"].map((name) => [name, gl.getUniformLocation(program, name)]));
  return gl;
}

// How many pixels a unit of the map has.
const unit = () => Math.min(drawn.canvas.clientWidth, drawn.canvas.clientHeight) / 2.1 * drawn.view.zoom;

// While the map moves, so many points are drawn as keep it smooth, the last ones, which are a fair part or the strongest; then all.
let waiting = false, budget = 100_000, still = 0;
function draw(moving = false) {
  if (moving && drawn.points.count > 50_000) {
    clearTimeout(still);
    still = setTimeout(() => draw(), 200);
    drawn.most = budget;
  } else drawn.most = Infinity;
  if (waiting) return;
  waiting = true;
  const asked = performance.now();
  requestAnimationFrame(() => {
    waiting = false;
    if (!drawn?.canvas.isConnected) return;
    paint();
    if (drawn.most === Infinity) return;
    drawn.gl.readPixels(0, 0, 1, 1, drawn.gl.RGBA, drawn.gl.UNSIGNED_BYTE, new Uint8Array(4)); // waits until it is drawn
    const took = performance.now() - asked;
    budget = Math.max(20_000, Math.min(4_000_000, took > 40 ? budget / 1.5 : took < 20 ? budget * 1.3 : budget));
  });
}

function paint() {
  const { gl, canvas, view, points } = drawn, ratio = devicePixelRatio || 1, [w, v] = [canvas.clientWidth, canvas.clientHeight];
  if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(v * ratio)) [canvas.width, canvas.height] = [Math.round(w * ratio), Math.round(v * ratio)];
  gl.viewport(0, 0, canvas.width, canvas.height);
  gl.clearColor(0, 0, 0, 0);
  gl.clear(gl.COLOR_BUFFER_BIT);
  gl.uniform2f(gl.uniforms.centre, view.x, view.y);
  gl.uniform2f(gl.uniforms.scale, 2 * unit() / w, 2 * unit() / v);
  const dense = Math.max(1.5, Math.min(7, 260 / Math.sqrt(points.count)));
  gl.uniform1f(gl.uniforms.size, ratio * Math.min(12, dense * Math.sqrt(view.zoom)));
  const shown = Math.round(Math.min(points.count, drawn.most));
  gl.drawArrays(gl.POINTS, points.count - shown, shown);
  nameValues();
}

const toScreen = (x, y) => [drawn.canvas.clientWidth / 2 + (x - drawn.view.x) * unit(), drawn.canvas.clientHeight / 2 - (y - drawn.view.y) * unit()];
const toMap = (left, top) => [drawn.view.x + (left - drawn.canvas.clientWidth / 2) / unit(), drawn.view.y - (top - drawn.canvas.clientHeight / 2) / unit()];

// Names of clusters where they lie, moved inwards from the edges so that a narrow window shows them too; the largest first, none over another.
function nameValues() {
  const { labels, points, canvas } = drawn, taken = [], [w, v] = [canvas.clientWidth, canvas.clientHeight];
  fill(labels);
  if (NUMBERS.has(points.color)) return;
  for (const one of points.names.slice(0, 24)) {
    const [x, y] = toScreen(one.x, one.y), half = 4 + 3.4 * Math.min(one.name.length, 40);
    const left = clamp(x, half, w - half), top = clamp(y, 12, v - 12);
    const free = x > 0 && x < w && y > 0 && y < v && taken.every(([near, beside, other]) => Math.abs(beside - top) > 22 || Math.abs(near - left) > half + other);
    if (!free) continue;
    taken.push([left, top, half]);
    const label = h("span", null, one.name.slice(0, 40));
    label.style.left = `${left}px`;
    label.style.top = `${top}px`;
    labels.append(label);
  }
}

function valueLegend(points) {
  return h("ul", null, points.names.map((one, place) => {
    const swatch = h("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = PALETTE[place] ?? OTHERS;
    return h("li", null, swatch, h("button", { type: "button", class: "link", title: "Show only these examples", onclick: () => actions.only(points.color, one.name) }, one.name || "(empty)"), h("span", { class: "soft" }, ` ${counted(one.count)}`));
  }));
}

// Deviations that have the full colour. A mean over many queries is small, so there the strongest example has it; it comes last.
const strongest = (points) => points.color === "score" ? 6 : Math.abs(points.values.at(-1) ?? 0) || 1;

const numberLegend = (points) => h("p", { class: "soft" }, `Blue: above the mean ${points.color}, it helps the ${points.color === "score" ? "response" : "responses of the file's queries"}. Orange: below it. Stronger colours are further from the mean, up to ${strongest(points).toFixed(1)} deviations.`);

function nearest(left, top) {
  const { points } = drawn, [x, y] = toMap(left, top), reach = NEAR / unit();
  let best = -1, least = reach * reach;
  for (let row = axis(y - reach); row <= axis(y + reach); row += 1) {
    for (let cell = row * CELLS + axis(x - reach); cell <= row * CELLS + axis(x + reach); cell += 1) {
      for (let i = points.grid.starts[cell]; i < points.grid.starts[cell + 1]; i += 1) {
        const point = points.grid.order[i], far = (points.places[2 * point] - x) ** 2 + (points.places[2 * point + 1] - y) ** 2;
        if (far < least) [best, least] = [point, far];
      }
    }
  }
  return best;
}

function zoomAt(by, left, top) {
  const { view } = drawn;
  if (!by) Object.assign(view, { x: 0, y: 0, zoom: 1 });
  else {
    const [x, y] = toMap(left, top);
    view.zoom = Math.min(400, Math.max(0.5, view.zoom * by));
    const [nowX, nowY] = toMap(left, top);
    view.x += x - nowX;
    view.y += y - nowY;
  }
  draw(Boolean(by));
}

function pressLasso(button) {
  button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
}

function listen(canvas) {
  const held = new Map(); // pointers that are down
  let moved = 0, gap = 0;
  const placeOf = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoomAt(Math.exp(-event.deltaY * 0.0015), ...placeOf(event)); }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    held.set(event.pointerId, placeOf(event));
    moved = gap = 0;
    drawn.path = held.size === 1 && (event.shiftKey || drawn.lasso.getAttribute("aria-pressed") === "true") ? [placeOf(event)] : null;
  });
  canvas.addEventListener("pointermove", (event) => {
    const place = placeOf(event), before = held.get(event.pointerId);
    if (!before) return point(...place);
    held.set(event.pointerId, place);
    moved += Math.abs(place[0] - before[0]) + Math.abs(place[1] - before[1]);
    if (drawn.path) { drawn.path.push(place); drawPath(); return; }
    if (held.size === 2) {
      const [[ax, ay], [bx, by]] = [...held.values()], now = Math.hypot(ax - bx, ay - by);
      if (gap) zoomAt(now / gap, (ax + bx) / 2, (ay + by) / 2);
      gap = now;
      return;
    }
    drawn.view.x -= (place[0] - before[0]) / unit();
    drawn.view.y += (place[1] - before[1]) / unit();
    draw(true);
  });
  const release = (event) => {
    const place = held.get(event.pointerId);
    held.delete(event.pointerId);
    if (drawn.path) { take(drawn.path); drawn.path = null; drawPath(); } else if (place && moved < 5 && event.type === "pointerup") {
      const found = nearest(...place);
      if (found >= 0) actions.open(drawn.points.rows[found]);
    }
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => { drawn.tip.hidden = true; });
  canvas.addEventListener("keydown", (event) => {
    const step = 40 / unit(), { view } = drawn, [w, v] = [canvas.clientWidth / 2, canvas.clientHeight / 2];
    const work = { ArrowLeft: () => { view.x -= step; }, ArrowRight: () => { view.x += step; }, ArrowUp: () => { view.y += step; }, ArrowDown: () => { view.y -= step; },
      "+": () => zoomAt(1.5, w, v), "-": () => zoomAt(1 / 1.5, w, v), 0: () => zoomAt(0) }[event.key];
    if (!work) return;
    event.preventDefault();
    work();
    draw(true);
  });
}

// The line of the lasso, as an element over the map.
function drawPath() {
  drawn.stage.querySelector("svg")?.remove();
  if (!drawn.path) return;
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), line = document.createElementNS("http://www.w3.org/2000/svg", "polygon");
  svg.setAttribute("class", "map-lasso");
  svg.setAttribute("aria-hidden", "true");
  line.setAttribute("points", drawn.path.map((place) => place.join(",")).join(" "));
  svg.append(line);
  drawn.stage.append(svg);
}

function take(path) {
  if (path.length < 3) return;
  const { points } = drawn, corners = path.map(([left, top]) => toMap(left, top)), found = [];
  const xs = corners.map(([x]) => x), ys = corners.map(([, y]) => y);
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  for (let i = 0; i < points.count; i += 1) {
    const x = points.places[2 * i], y = points.places[2 * i + 1];
    if (x >= left && x <= right && y >= low && y <= high && within(x, y, corners)) found.push(points.rows[i]);
  }
  if (found.length > MOST) throwAway(found.length);
  else if (found.length) actions.tickAll(found);
}

function throwAway(count) {
  drawn.tip.textContent = `${many(count, "example")} are more than the basket can hold (${counted(MOST)}). Choose fewer, or tick a whole cluster under Groups.`;
  drawn.tip.hidden = false;
  Object.assign(drawn.tip.style, { left: "1rem", top: "1rem" });
}

function within(x, y, corners) {
  let inside = false;
  for (let i = 0, j = corners.length - 1; i < corners.length; j = i, i += 1) {
    const [ax, ay] = corners[i], [bx, by] = corners[j];
    if (ay > y !== by > y && x < (bx - ax) * (y - ay) / (by - ay) + ax) inside = !inside;
  }
  return inside;
}

// What the pointer is at: its texts come a moment later.
let pointing = 0;
function point(left, top) {
  const found = nearest(left, top), { tip, points, canvas, named } = drawn;
  clearTimeout(pointing);
  canvas.classList.toggle("at", found >= 0);
  if (found < 0) { tip.hidden = true; return; }
  const row = points.rows[found], show = (one) => {
    const value = NUMBERS.has(points.color) ? `${points.values[found].toFixed(1)} deviations` : (points.names[points.values[found]]?.name ?? "");
    fill(tip, h("b", null, one.prompt.slice(0, 160)), h("br"), one.response.slice(0, 160), h("br"), h("span", { class: "soft" }, `${one.id} · ${value}`));
    tip.hidden = false;
    Object.assign(tip.style, { left: `${Math.min(left + 14, Math.max(0, canvas.clientWidth - 300))}px`, top: `${Math.min(top + 14, canvas.clientHeight - 90)}px` });
  };
  if (named.has(row)) { show(named.get(row)); return; }
  pointing = setTimeout(async () => {
    const told = await ask("rows", { rows: [row] }, "map tip").catch(() => null);
    if (told?.rows.length) { named.set(row, told.rows[0]); show(told.rows[0]); }
  }, 80);
}
