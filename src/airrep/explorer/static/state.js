// What the page shows, and the same in its address, behind the #, which no server ever sees.

const LONGEST = 6000; // characters of a query in an address

export const state = {
  query: null, // { number } or { prompt, response, better } or { key }
  view: "examples", // or "groups", or "map"
  color: null, // what colours the map: "cluster", "score" or a field
  method: 0, // number of an index, or "both"
  side: "helpful", // which end of the ranking two methods show
  where: "",
  facets: {}, // field -> chosen values
  by: "source", // field of the groups
  ticked: new Map(), // row -> { id, prompt }
  values: {}, // field -> ticked values
  marks: new Map(), // row -> { id, decision }
  raw: false, // whether scores are told beside their deviations
  open: null, // row of the example that is shown whole
};

export function toAddress() {
  const words = new URLSearchParams();
  writeQuery(words, state.query);
  if (state.view !== "examples") words.set("view", state.view);
  if (state.method !== 0) words.set("m", state.method);
  if (state.side !== "helpful") words.set("side", state.side);
  if (state.raw) words.set("raw", 1);
  if (state.where) words.set("where", state.where);
  for (const [field, values] of Object.entries(state.facets)) for (const value of values) words.append(`f.${field}`, value);
  if (state.by !== "source") words.set("by", state.by);
  if (state.color !== null) words.set("color", state.color);
  if (state.ticked.size) words.set("tick", [...state.ticked.keys()].join("."));
  for (const [field, values] of Object.entries(state.values)) for (const value of values) words.append(`t.${field}`, value);
  for (const decision of ["keep", "drop"]) {
    const rows = [...state.marks].filter(([, mark]) => mark.decision === decision).map(([row]) => row);
    if (rows.length) words.set(decision, rows.join("."));
  }
  if (state.open !== null) words.set("open", state.open);
  return words.toString();
}

function writeQuery(words, query) {
  if (!query) return;
  if (query.span) words.set("s", query.span.map((pair) => pair.join("-")).join("."));
  if (query.number !== undefined) words.set("q", query.number);
  else if (query.prompt !== undefined && query.prompt.length + query.response.length + (query.better ?? "").length <= LONGEST) {
    words.set("p", query.prompt);
    words.set("r", query.response);
    if (query.better !== undefined) words.set("b", query.better);
  } else if (query.key !== undefined) words.set("k", query.key);
}

export function fromAddress(address) {
  const words = new URLSearchParams(address.replace(/^#/, ""));
  state.query = readQuery(words);
  state.view = ["groups", "map"].includes(words.get("view")) ? words.get("view") : "examples";
  state.color = words.get("color");
  state.method = words.get("m") === "both" ? "both" : Number(words.get("m") === "1");
  state.side = words.get("side") === "harmful" ? "harmful" : "helpful";
  state.raw = words.has("raw");
  state.where = words.get("where") ?? "";
  state.facets = readFields(words, "f.");
  state.by = words.get("by") ?? "source";
  state.ticked = new Map(readRows(words, "tick").map((row) => [row, state.ticked.get(row) ?? null]));
  state.values = readFields(words, "t.");
  const marks = new Map();
  for (const decision of ["keep", "drop"]) {
    for (const row of readRows(words, decision)) marks.set(row, { id: state.marks.get(row)?.id ?? null, decision });
  }
  state.marks = marks;
  const open = words.get("open");
  state.open = open !== null && /^\d{1,15}$/.test(open) ? Number(open) : null;
}

// Asked by its key it may be forgotten by the server; its texts stand alone.
export const lasting = (query, told) => query.number !== undefined ? query : typed(told.prompt, told.response, told.better, told.span);

// A query that is typed in; a better answer that is blank is none. A span is pairs of characters of the response.
export const typed = (prompt, response, better, span) =>
  ({ prompt, response, ...((better ?? "").trim() ? { better } : {}), ...(span?.length ? { span } : {}) });

function readQuery(words) {
  const given = words.get("s"), pairs = (given ?? "").split(".").filter((pair) => /^\d{1,9}-\d{1,9}$/.test(pair));
  const span = given === null ? undefined : pairs.map((pair) => pair.split("-").map(Number));
  const marked = (query) => span === undefined ? query : { ...query, span };
  if (/^\d{1,15}$/.test(words.get("q") ?? "")) return marked({ number: Number(words.get("q")) });
  if (words.has("p")) return typed(words.get("p"), words.get("r") ?? "", words.get("b"), span);
  return words.has("k") ? marked({ key: words.get("k") }) : null;
}

function readFields(words, prefix) {
  const fields = {};
  for (const [name, value] of words) if (name.startsWith(prefix)) (fields[name.slice(prefix.length)] ??= []).push(value);
  return fields;
}

function readRows(words, name) {
  return (words.get(name) ?? "").split(".").filter((row) => /^\d{1,15}$/.test(row)).map(Number);
}

// A new place in the browser's history, or (replace) another state of the same place.
export function keepAddress(replace = true) {
  const address = toAddress();
  const whole = address ? `#${address}` : location.pathname;
  if (`#${address}` === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", whole);
}

export const filters = () => ({ where: state.where, facets: { ...state.facets } });

export const filtered = () => Boolean(state.where) || Object.values(state.facets).some((values) => values.length);

// Adds a value to the chosen ones of a field, or takes it away.
export function toggle(fields, field, value) {
  const values = fields[field] ?? [];
  const rest = values.filter((one) => one !== value);
  if (rest.length === values.length) rest.push(value);
  if (rest.length) fields[field] = rest;
  else delete fields[field];
}
