// The first view: the questions that wait, and the list of sessions.
import { el, get, later, link, money, table, time, tokens } from "./dom.js";
import { questions } from "./questions.js";

export function sessionsView() {
  let next = "", more = 0;
  const inbox = questions();
  const problem = el("p", { class: "bad", role: "alert" });
  const body = el("tbody");
  const search = el("input", { type: "search", id: "search", oninput: later(150, load), "aria-keyshortcuts": "/" });
  const older = el("button", { hidden: true, onclick: () => { more++; load(); } }, "Older sessions");
  const empty = el("p", { class: "quiet", hidden: true }, "There is no session.");
  const element = el("div", {},
    el("h1", {}, "Sessions"), inbox.element,
    el("div", { class: "tools" }, el("label", { htmlFor: "search" }, "Search (key /)"), search), problem,
    table("Sessions", ["Session", "Status", "Tokens", "#Cost", "Changed"], body),
    empty, older);

  async function load() {
    try {
      const list = [];
      let after = "";
      for (let i = 0; i <= more; i++) {
        const page = await get("sessions", { q: search.value, after });
        list.push(...page.sessions.filter((s) => !list.some((l) => l.id === s.id)));
        after = next = page.next || "";
        if (!after) break;
      }
      problem.replaceChildren();
      body.replaceChildren(...list.map(row));
      empty.hidden = list.length > 0;
      older.hidden = !next;
    } catch (e) {
      problem.replaceChildren(e.message);
    }
  }

  async function ask() {
    const list = (await get("inbox")).questions;
    inbox.set(list);
    document.title = (list.length ? "(" + list.length + ") " : "") + "kitbag";
  }

  const refresh = later(50, () => { load(); ask().catch((e) => problem.replaceChildren(e.message)); });
  refresh();
  return { element, update: (kind) => kind === "list" && refresh() };
}

export const labels = (s) => Object.entries(s.labels || {}).map(([k, v]) => k + "=" + v).join(" ");

function row(s) {
  const own = labels(s);
  return el("tr", {},
    el("td", { class: "text" }, link(["s", s.id], s.title || s.id), el("div", { class: "quiet" }, s.id, own && " · " + own),
      s.problem && el("div", { class: "bad" }, s.problem)),
    el("td", {}, status(s)), el("td", {}, tokens(s.usage)), el("td", { class: "number" }, money(s.cost, s.unpriced)),
    el("td", {}, time(s.updated)));
}

// status is the state of a session in words.
export function status(s) {
  const kinds = { working: "good", waiting: "wait", failed: "bad", abandoned: "bad" };
  return el("span", { class: kinds[s.status] || "quiet" }, s.status || "no status",
    s.inputs ? ", inputs not yet taken: " + s.inputs : "",
    s.restart === "running" ? ", runs here" : s.restart ? ": " + s.restart : "");
}
