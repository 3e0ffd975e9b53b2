// One session: what it waits for, and its timeline.
import { el, get, later, link, money, post, time, tokens } from "./dom.js";
import { decisions } from "./decisions.js";
import { questions } from "./questions.js";
import { labels, status } from "./sessions.js";
import { groups } from "./groups.js";
import { requests } from "./requests.js";
import { timeline } from "./timeline.js";

const parts = { "": ["Timeline", timeline], requests: ["Requests", requests], groups: ["Tools", groups], decisions: ["Decisions", decisions] };

export function sessionView(id, chosen) {
  const path = "sessions/" + encodeURIComponent(id);
  const inbox = questions();
  const title = el("h1", {}, id);
  const facts = el("ul", { class: "facts" });
  const problem = el("p", { class: "bad", role: "alert" });
  const again = el("button", { hidden: true, onclick: () => report(post(path + "/resume", {}).then(load)) }, "Run it again");
  const part = (parts[chosen] || parts[""])[1](path, id);
  const nav = el("nav", { class: "tools", "aria-label": "Parts of the session" }, Object.entries(parts).map(([name, [text]]) => {
    const a = link(name ? ["s", id, name] : ["s", id], text);
    if (name === (chosen || "")) a.setAttribute("aria-current", "page");
    return a;
  }));
  const notes = el("div", { class: "quiet" });
  const other = el("input", { type: "text", id: "other", size: 20, onkeydown: (e) => e.key === "Enter" && compare() });
  const compare = () => { if (other.value.trim()) location.hash = "#/compare/" + [id, other.value.trim()].map(encodeURIComponent).join("/"); };
  const beside = el("div", { class: "tools" }, el("label", { htmlFor: "other" }, "Compare with the session"), other, el("button", { onclick: compare }, "Compare"));
  const exports = el("p", { class: "quiet" }, "Export as ", [["html", "page"], ["jsonl", "JSON Lines"], ["go", "test in Go"]].map(([as, text], i) =>
    [i ? ", " : "", el("a", { href: "api/" + path + "/export?as=" + as, download: "" }, text)]),
    ". What was redacted when the session was stored is in no export and no copy.");
  const element = el("div", {}, title, facts, el("div", { class: "tools" }, again), problem, inbox.element, nav, part.element, beside, exports, notes);

  const load = async () => set(await get(path));

  function set(s) {
    title.replaceChildren(s.title || id);
    facts.replaceChildren(...[status(s), id, labels(s), tokens(s.usage), money(s.cost, s.unpriced), "changed " + time(s.updated),
      (s.rules || []).length ? "accepted rules: " + s.rules.join(", ") : ""].filter(Boolean).map((f) => el("li", {}, f)));
    notes.replaceChildren(...(s.notes || []).map((n) => el("p", {}, n)));
    again.hidden = !s.resumes || !["failed", "abandoned"].includes(s.status) && !s.inputs || s.restart === "running";
    inbox.set(s.waiting);
  }

  const report = (promise) => promise.then(() => problem.replaceChildren(), (e) => problem.replaceChildren(e.message));
  const refresh = later(50, () => report(load()));
  refresh();
  return {
    element,
    update(kind, data) {
      if (kind === "session") set(data);
      else part.update(data);
      if (kind === "rows" && data.reload) refresh();
    },
  };
}
