// The timeline of a run: a table of which a page at a time is loaded.
import { trace } from "./decisions.js";
import { variant } from "./variant.js";
import { duration, el, get, later, money, number, post, show, table, time } from "./dom.js";

const size = 100;

export function timeline(path) {
  let from = 0, total = -1, loading = 0, shown = [];
  const body = el("tbody");
  const where = el("span", { class: "quiet", role: "status" });
  const problem = el("p", { class: "bad", role: "alert" });
  const follow = el("input", { type: "checkbox", id: "follow" });
  const search = el("input", { type: "search", id: "find", "aria-keyshortcuts": "/", onkeydown: (e) => e.key === "Enter" && find() });
  const move = (text, to) => el("button", { onclick: () => { follow.checked = false; go(to()); } }, text);
  const element = el("section", { "aria-label": "Timeline" }, el("h2", {}, "Timeline"),
    el("div", { class: "tools" },
      el("label", { htmlFor: "find" }, "Find (key /)"), search, el("button", { onclick: find }, "Next match"),
      move("First", () => 0), move("Previous", () => from - size), move("Next", () => from + size), move("Last", () => total - size),
      el("label", {}, follow, " follow the end"), where), problem,
    table("Timeline", ["#Step", "What", "Text", "Within the step", "#Took (first piece)", "#In", "#Cached", "#Out", "#Cost", "Result"], body, { onkeydown: keys }));

  async function go(to, focus) {
    from = Math.max(0, Math.min(to, total - 1));
    shown = [];
    body.replaceChildren();
    await load();
    if (focus >= 0 && shown[focus - from]) shown[focus - from].button.focus();
  }

  async function load() {
    const at = from;
    loading++;
    try {
      if (follow.checked && total > size) from = total - size;
      if (from !== at) { shown = []; body.replaceChildren(); }
      const page = await get(path + "/rows", { from, n: size });
      total = page.total;
      fill(page.rows);
      problem.replaceChildren(page.problem);
      count();
    } catch (e) {
      problem.replaceChildren(e.message);
    } finally {
      loading--;
    }
  }

  function fill(rows) {
    rows.forEach((r, i) => {
      if (!shown[i]) {
        shown[i] = line(path, String(from + i));
        body.append(...shown[i].elements);
      }
      shown[i].row = r;
    });
    const spans = spansOf(shown.map((l) => l.row));
    shown.forEach((l) => l.set(l.row, spans[l.row.step]));
  }

  // change shows rows that have changed, by index. It returns false if rows between these and the shown ones are missing.
  function change(rows) {
    const all = shown.map((l) => l.row);
    for (let i = from; i < from + size; i++) if (rows[i]) all[i - from] = rows[i];
    if (all.includes(undefined)) return false;
    fill(all);
    return true;
  }

  const count = () => where.replaceChildren(total === 0 ? "Nothing has happened." : "Rows " + (from + 1) + " to " + (from + shown.length) + " of " + total);

  async function find() {
    const start = shown.findIndex((l) => l.button === document.activeElement || l.found);
    shown.forEach((l) => { l.found = false; });
    const { row } = await get(path + "/find", { q: search.value, from: start >= 0 ? from + start + 1 : from });
    if (row < 0) { where.replaceChildren("No further match."); return; }
    follow.checked = false;
    if (row < from || row >= from + shown.length) await go(row - 20, row);
    const hit = shown[row - from];
    if (hit) { hit.found = true; hit.button.focus(); }
  }

  // keys: the arrows go from row to row, Escape closes a row from within.
  function keys(e) {
    const buttons = [...body.querySelectorAll("td.what > .toggle")];
    const detail = e.target.closest("tr.detail");
    if (e.key === "Escape" && detail) {
      const button = detail.previousElementSibling.querySelector(".toggle");
      button.click();
      button.focus();
    }
    const i = buttons.indexOf(document.activeElement);
    const to = { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: buttons.length - 1 }[e.key];
    if (i < 0 || to === undefined || !buttons[to]) return;
    e.preventDefault();
    buttons[to].focus();
  }

  const refresh = later(60, load);
  refresh();
  return {
    element,
    update(data) {
      if (data.reload || loading || data.from < from + size) { refresh(); return; } // what is being loaded may be older than this
      total = data.total;
      problem.replaceChildren(data.problem);
      if (follow.checked && total > from + size || !change(data.rows || {})) refresh();
      else count();
    },
  };
}

// spansOf returns when each step began and ended, for the bars.
function spansOf(rows) {
  const spans = {};
  for (const r of rows) {
    if (r.kind !== "model" && r.kind !== "tool" || !r.start) continue;
    const s = spans[r.step] ||= { begin: Infinity, end: 0 };
    s.begin = Math.min(s.begin, new Date(r.start));
    s.end = Math.max(s.end, new Date(r.end || r.start));
  }
  return spans;
}

// line makes a row and the row of its details, which set fills.
function line(path, index) {
  const cells = Array.from({ length: 10 }, (_, i) => el("td", { class: ["number", "what", "text", "", "number", "number", "number", "number", "number", ""][i] }));
  const button = el("button", { class: "toggle", "aria-expanded": "false", onclick: toggle });
  const inner = el("td", { colSpan: 10 });
  const row = el("tr", {}, cells);
  const detail = el("tr", { class: "detail", hidden: true }, inner);
  const self = { elements: [row, detail], button, set, found: false };
  let last = "";

  function set(r, span) {
    const text = JSON.stringify([r, span]);
    if (text === last) return;
    last = text;
    row.className = r.kind;
    button.replaceChildren(name(r));
    const took = ["model", "tool"].includes(r.kind) && r.end && r.start ? new Date(r.end) - new Date(r.start) : NaN;
    const texts = [r.step || "", button, el("div", { class: "clip" }, r.text || ""), bar(r, span), el("span", { title: r.first ? "first piece after " + duration(r.first / 1e6) : "" }, duration(took), r.first ? el("span", { class: "quiet" }, " (" + duration(r.first / 1e6) + ")") : ""),
      number(r.usage && r.usage.input_tokens), number(r.usage && r.usage.cached_tokens), number(r.usage && r.usage.output_tokens),
      money(r.cost), result(r)];
    texts.forEach((t, i) => cells[i].replaceChildren(t));
    if (r.sub) cells[2].append(el("span", { class: "quiet" }, "sub-agent: " + r.sub + " rows"));
    self.sub = r.sub;
    self.record = r.record;
    self.tool = r.kind === "tool" && !index.includes(".");
  }

  async function toggle() {
    detail.hidden = !detail.hidden;
    button.setAttribute("aria-expanded", String(!detail.hidden));
    if (detail.hidden) return;
    inner.replaceChildren("Loading…");
    try {
      const d = await get(path + "/details", { row: index });
      inner.replaceChildren(...d.events.map(happened), d.left ? d.left + " more events are too long to be shown" : "");
      if (self.tool) inner.prepend(await trace(path, Number(index)));
      if (self.sub) inner.prepend(await nested(path, index));
      if (self.record && !index.includes(".")) inner.append(fork(path, self.row, d.events));
    } catch (e) {
      inner.replaceChildren(e.message);
    }
  }
  return self;
}

// happened renders an event, or a message. The parts of a request are on the page of requests.
function happened(event) {
  const { type, time: at, seq, run, parts, ...rest } = event;
  return el("div", {}, type && el("div", {}, el("strong", {}, type.replaceAll("_", " ")), el("span", { class: "quiet" }, " " + time(at))), show(rest));
}

// fork copies the session up to a row, or up to before it, and lets the copy run.
function fork(path, r, events) {
  const say = el("input", { type: "text", size: 40 });
  const edited = el("textarea", { rows: 3, "aria-label": "The message, edited" });
  const how = variant();
  const problem = el("span", { class: "bad", role: "alert" });
  const copy = async (body) => {
    try {
      const { id } = await post(path + "/fork", { ...body, ...how.values() });
      location.hash = "#/s/" + id;
    } catch (e) {
      problem.replaceChildren(e.message);
    }
  };
  const button = (text, body) => el("button", { onclick: () => copy(body()) }, text);
  const tools = (...parts) => el("div", { class: "tools" }, parts);
  const blocks = events.flatMap((e) => e.message && e.message.blocks || []);
  edited.value = blocks.filter((b) => b.type === "text").map((b) => b.text).join("\n");
  return el("section", { "aria-label": "Copies" }, el("h3", {}, "As a new session"), how.element,
    tools(el("label", {}, "Say ", say), button("Fork after this", () => ({ record: r.record, say: say.value }))),
    r.kind === "user" && r.message && tools(edited, button("Edit and send", () => ({ before: r.message, say: edited.value })),
      blocks.some((b) => b.type !== "text") && "Only text is sent again, no images or files."),
    r.kind === "model" && r.message && tools(button("Answer again", () => ({ before: r.message, run: true })), "the copy begins before this answer"),
    problem);
}

// nested is the table of a sub-agent.
async function nested(path, index) {
  const page = await get(path + "/rows", { of: index, from: 0, n: 500 });
  const spans = spansOf(page.rows);
  const body = el("tbody");
  page.rows.forEach((r, i) => {
    const l = line(path, index + "." + i);
    l.set(r, spans[r.step]);
    body.append(...l.elements);
  });
  return el("table", { "aria-label": "Sub-agent" }, body);
}

function name(r) {
  const words = { run: "run begins", end: "run ends", user: "user", hint: "program", asked: "question of " + (r.name || "a tool"), sampling: "server uses " + r.name };
  if (r.kind === "model") return "model " + (r.name || "");
  if (r.kind === "tool") return r.name || "tool";
  return words[r.kind] || r.kind;
}

function bar(r, span) {
  if (!span || !(span.end > span.begin) || r.kind !== "model" && r.kind !== "tool") return r.lane > 0 ? "" : time(r.start);
  const part = (t) => 100 * (new Date(t) - span.begin) / (span.end - span.begin);
  const fill = el("div", { class: "fill" + (r.behind ? " background" : "") });
  fill.style.left = part(r.start) + "%";
  fill.style.width = Math.max(0, part(r.end || span.end) - part(r.start)) + "%";
  const label = time(r.start) + (r.lane ? ", lane " + r.lane : "") + (r.behind ? ", in the background" : "");
  return el("div", { class: "track", role: "img", "aria-label": label, title: label }, fill);
}

function result(r) {
  const kinds = { success: "good", stop: "quiet", tool_calls: "quiet", completed: "good", running: "wait", asked: "wait", waiting: "wait" };
  const out = el("div", {}, el("span", { class: r.state ? kinds[r.state] || "bad" : "quiet" }, r.state || ""));
  if (r.lane > 1) out.append(el("span", { class: "quiet" }, " lane " + r.lane));
  if (r.behind) out.append(el("span", { class: "quiet" }, " in the background"));
  if (r.fault) out.append(el("div", { class: "clip" }, r.fault));
  if (r.why) out.append(el("div", { class: "clip quiet" }, r.why));
  return out;
}
