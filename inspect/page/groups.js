// The groups of tools over time, who opened them, and what other styles or groups would have cost.
import { el, get, later, number, table } from "./dom.js";

export function groups(path) {
  const problem = el("p", { class: "bad", role: "alert" });
  const picture = el("tbody"), changes = el("tbody"), costs = el("tbody");
  const choice = el("div", { role: "group", "aria-label": "What if" });
  const always = el("input", { type: "checkbox", id: "always", onchange: load });
  const boxes = new Map();
  const none = el("p", { class: "quiet", hidden: true }, "No tools are recorded: the session is of an older version, or no request was made yet.");
  const overTime = el("div", {}, el("h3", {}, "Over time"), el("p", { class: "quiet" }, "A bar is the part of the session, by requests, in which a group was open."),
    table("Groups over time", ["Group", "Open", "#Tools", "#Bytes"], picture));
  const shown = el("div", {}, overTime,
    el("h3", {}, "Changes"), table("Changes of the tools", ["#Step", "#Request", "What changed", "#Tools shown", "#Bytes of the list", "#Tokens", "Digest"], changes));
  const other = el("div", {}, el("h3", {}, "Other styles and groups"), choice,
    el("p", { class: "quiet" }, "The list of tools in all requests together, by the lengths of definitions that are recorded. A token is taken for four bytes. ",
      "With discover, what the model searches and reads of tools comes on top. A tool of two open groups counts twice."),
    table("Costs of styles", ["Style", "#Bytes", "#Tokens", "#Changes of the list"], costs));
  const element = el("section", { "aria-label": "Tools" }, el("h2", {}, "Tools that the model was shown"), problem, none, shown, other);

  async function load() {
    try {
      const query = new URLSearchParams();
      if (always.checked) query.append("open", "");
      boxes.forEach((box, name) => { if (always.checked && box.checked) query.append("open", name); });
      const d = await get(path + "/groups", query);
      problem.replaceChildren(d.problem);
      none.hidden = d.spans.length > 0;
      shown.hidden = d.spans.length === 0;
      const names = [...new Set(d.spans.flatMap((s) => s.groups.map((g) => g.name)))];
      overTime.hidden = other.hidden = names.length === 0;
      picture.replaceChildren(...names.map((n) => bars(n, d.spans, d.total)));
      changes.replaceChildren(...d.spans.map(change));
      for (const n of names) {
        if (boxes.has(n)) continue;
        boxes.set(n, el("input", { type: "checkbox", onchange: load }));
        choice.append(el("label", {}, boxes.get(n), " " + n + " "));
      }
      costs.replaceChildren(...[d.was, ...d.styles].map((c) => el("tr", {}, el("td", {}, c.style), el("td", { class: "number" }, number(c.bytes)),
        el("td", { class: "number" }, number(Math.round(c.bytes / 4))), el("td", { class: "number" }, String(c.changes)))));
    } catch (e) {
      problem.replaceChildren(e.message);
    }
  }
  choice.append(el("div", {}, el("label", {}, always, " these groups had been open all the time:")));
  const refresh = later(2000, load);
  load();
  return { element, update: refresh };
}

const of = (span, name) => span.groups.find((g) => g.name === name);

function bars(name, spans, total) {
  const open = spans.filter((s) => (of(s, name) || {}).open);
  const requests = open.reduce((n, s) => n + s.requests, 0);
  const track = el("div", { class: "track", role: "img", "aria-label": "Open in " + requests + " of " + total + " requests: " + name });
  for (const s of open) {
    const fill = el("div", { class: "fill" });
    fill.style.left = 100 * s.first / total + "%";
    fill.style.width = 100 * s.requests / total + "%";
    track.append(fill);
  }
  const last = of(spans[spans.length - 1], name) || {};
  return el("tr", {}, el("td", {}, name), el("td", {}, track), el("td", { class: "number" }, String(last.tools ?? "")), el("td", { class: "number" }, number(last.bytes)));
}

function change(s) {
  const who = { model: "by the model", user: "by the user", host: "by the program", rule: "by a rule between groups" };
  const changed = s.groups.filter((g) => g.by).map((g) => (g.open ? "opened " : "closed ") + g.name + " " + (who[g.by] || ""));
  const open = s.groups.filter((g) => g.open).map((g) => g.name);
  return el("tr", {}, el("td", { class: "number" }, s.step), el("td", { class: "number" }, String(s.first + 1)),
    el("td", { class: "text" }, changed.length ? changed.join(", ") : "", el("div", { class: "quiet" }, s.groups.length ? "open: " + (open.join(", ") || "none") : "The toolkit has no groups.")),
    el("td", { class: "number" }, String(s.tools)), el("td", { class: "number" }, number(s.bytes)), el("td", { class: "number" }, number(Math.round(s.bytes / 4))), el("td", { class: "quiet" }, (s.digest || "").slice(0, 12)));
}
