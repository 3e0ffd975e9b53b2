// Decisions about tool calls: how one was made, and which ones another policy would make differently.
import { el, post, table } from "./dom.js";

const example = '{"permissions": {"mode": "default", "allow": ["Bash(go test:*)"], "ask": [], "deny": ["Write"]}}';
const kinds = { allow: "good", ask: "wait", deny: "bad" };

export function decisions(path) {
  const settings = el("textarea", { id: "settings", rows: 6, placeholder: example, spellcheck: false });
  const problem = el("p", { class: "bad", role: "alert" });
  const sum = el("p", { role: "status" });
  const body = el("tbody");
  const result = el("div", { hidden: true }, table("Decisions that differ", ["Call", "Then", "With these settings", "Why"], body));
  const element = el("section", { "aria-label": "Decisions" }, el("h2", {}, "Decisions"),
    el("p", { class: "quiet" }, "The timeline has the decision about each call and its reason; a row's details have its steps. ",
      "Here all calls are judged again by other settings; rules that were accepted in the session still apply. Nothing runs."),
    el("label", { htmlFor: "settings" }, "A settings file, such as kitbag.json; empty for those that this session would run with here"), settings,
    el("div", { class: "tools" }, el("button", { onclick: run }, "Judge all calls again")), problem, sum, result);

  async function run() {
    try {
      const r = await post(path + "/judge", { settings: settings.value });
      problem.replaceChildren();
      sum.replaceChildren(r.judged + " calls were judged; " + r.differ.length + " would be decided differently.");
      result.hidden = r.differ.length === 0;
      body.replaceChildren(...r.differ.map((d) => el("tr", {},
        el("td", { class: "text" }, el("strong", {}, d.tool), " ", d.text), el("td", {}, answer(d.was), el("div", { class: "quiet" }, d.why || "")),
        el("td", {}, answer(d.now)), el("td", { class: "text" }, d.cause, byName(d)))));
    } catch (e) {
      problem.replaceChildren(e.message);
    }
  }
  return { element, update() {} };
}

const answer = (a) => el("span", { class: kinds[a] || "quiet" }, a || "not decided");
const byName = (d) => !d.known && el("div", { class: "quiet" }, "by the tool's name only: what the tool itself would say is not known here");

// trace shows the steps of the decision about the call in a row, as it would be made now.
export async function trace(path, row) {
  const [d] = (await post(path + "/judge", { settings: "", row })).differ;
  if (!d) return el("p", {}, "");
  return el("div", {}, el("h3", {}, "The decision, as it would be made here now: ", answer(d.now)), el("p", {}, d.cause, byName(d)),
    el("ol", {}, (d.steps || []).map((s) => el("li", {}, s.name + ": ", s.answer ? answer(s.answer) : "no answer", s.reason && " – " + s.reason, s.rule && " – rule " + s.rule))),
    (d.parts || []).length > 0 && table("Parts of the call", ["Command", "Effects", "Why it is not read-only"],
      el("tbody", {}, d.parts.map((p) => el("tr", {}, el("td", {}, p.command), el("td", {}, p.effects), el("td", {}, p.reason || ""))))));
}
