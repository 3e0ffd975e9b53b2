// Everything that came from a model, a tool or a server reaches the document through el, as text.

// el makes an element. Props with an "on" are listeners, "class" and those with a dash are attributes, the others
// are properties. Children are elements or text; null, false and "" are left out.
export function el(tag, props, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (name === "class" || name.includes("-") || name === "role") e.setAttribute(name, value);
    else e[name] = value;
  }
  for (const c of children.flat(Infinity)) {
    if (c !== null && c !== undefined && c !== "" && c !== false) e.append(c instanceof Node ? c : String(c));
  }
  return e;
}

// link makes a link within the page.
export function link(path, ...children) {
  return el("a", { href: "#/" + path.map(encodeURIComponent).join("/") }, ...children);
}

// get and post call the interface of the handler. They throw an Error with its text.
export async function get(path, query) {
  return read(await fetch("api/" + path + (query ? "?" + new URLSearchParams(query) : "")));
}

export async function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  return read(await fetch("api/" + path, { method: "POST", headers, body: JSON.stringify(body) }));
}

async function read(response) {
  const text = await response.text();
  let data = { error: text };
  try { data = JSON.parse(text); } catch { /* a text of the guard */ }
  if (!response.ok) throw new Error(data.error || response.statusText);
  return data;
}

// later returns a function that calls f some time later, and once however often it is called until then.
export function later(ms, f) {
  let timer = 0;
  return () => { timer ||= setTimeout(() => { timer = 0; f(); }, ms); };
}

export function number(n) {
  if (!n) return "";
  return n < 10000 ? String(n) : n < 1e6 ? (n / 1000).toFixed(1) + "k" : (n / 1e6).toFixed(2) + "M";
}

export function money(cost, unpriced) {
  if (!cost) return "";
  return (unpriced ? "≥ " : "") + "$" + (cost < 0.01 ? cost.toFixed(4) : cost.toFixed(2));
}

export function duration(ms) {
  if (!(ms >= 0)) return "";
  return ms < 1000 ? Math.round(ms) + " ms" : ms < 60000 ? (ms / 1000).toFixed(1) + " s" : (ms / 60000).toFixed(1) + " min";
}

export function time(text) {
  const t = new Date(text);
  if (!text || isNaN(t) || t.getFullYear() < 2) return ""; // of no time, or of Go's zero one
  return t.toDateString() === new Date().toDateString() ? t.toLocaleTimeString() : t.toLocaleString();
}

// tokens are those of a Usage.
export function tokens(u) {
  if (!u || !u.input_tokens && !u.output_tokens) return "";
  return number(u.input_tokens) + " in" + (u.cached_tokens ? ", " + number(u.cached_tokens) + " cached" : "") +
    ", " + number(u.output_tokens) + " out";
}

// show renders any JSON.
export function show(value) {
  if (Array.isArray(value)) return el("div", {}, value.map((v) => show(v)));
  if (value && typeof value === "object") {
    return el("dl", { class: "object" }, Object.entries(value).flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, show(v))]));
  }
  const text = String(value);
  return text.includes("\n") || text.length > 200 ? el("pre", { tabIndex: 0 }, text) : el("span", {}, text);
}

// table makes a table that can be scrolled with the keyboard where it is too wide. Headings that begin with "#" are
// of numbers.
export function table(label, headings, body, props) {
  const cells = headings.map((h) => el("th", { scope: "col", class: h.startsWith("#") ? "number" : "" }, h.replace("#", "")));
  return el("div", { class: "wide", role: "region", "aria-label": label + ", to scroll", tabIndex: 0 },
    el("table", { "aria-label": label, ...props }, el("thead", {}, el("tr", {}, cells)), body));
}
