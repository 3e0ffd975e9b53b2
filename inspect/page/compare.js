// Two sessions side by side, from a little before the first difference.
import { duration, el, get, link, money, table, tokens } from "./dom.js";

export function compareView(a, b) {
  const problem = el("p", { class: "bad", role: "alert" });
  const sums = el("tbody"), body = el("tbody");
  const where = el("p", { class: "quiet", role: "status" });
  const element = el("div", {}, el("h1", {}, "Two sessions"), problem,
    table("Sums", ["", "First", "Second"], sums), where, table("Side by side", ["First", "Second"], body));

  async function load() {
    try {
      const c = await get("sessions/" + encodeURIComponent(a) + "/compare", { with: b });
      const line = (text, of) => el("tr", {}, el("th", { scope: "row" }, text), c.sums.map((s, i) => el("td", {}, of(s, [a, b][i]))));
      sums.replaceChildren(line("Session", (s, id) => link(["s", id], s.title || id)), line("Rows", (s) => s.rows), line("Model calls", (s) => s.models),
        line("Tool calls", (s) => s.tools), line("Errors", (s) => s.faults), line("Tokens", (s) => tokens(s.usage)), line("Cost", (s) => money(s.cost)),
        line("Time of calls", (s) => duration(s.took / 1e6)));
      const differ = c.pairs.filter((p) => !p.same).length;
      where.replaceChildren(c.skipped ? "The first " + c.skipped + " rows are the same. " : "", differ + " rows differ.", c.more ? " " + c.more + " more are not shown." : "");
      body.replaceChildren(...c.pairs.map((p) => el("tr", { class: p.same ? "quiet" : "differs" }, cell(p.a), cell(p.b))));
      problem.replaceChildren();
    } catch (e) {
      problem.replaceChildren(e.message);
    }
  }
  load();
  return { element, update() {} };
}

function cell(r) {
  if (!r) return el("td", { class: "text" }, "–");
  return el("td", { class: "text" }, el("strong", {}, r.kind, r.name ? " " + r.name : ""), r.state ? " " + r.state : "",
    el("div", { class: "clip" }, r.text || ""), r.fault && el("div", { class: "bad clip" }, r.fault),
    el("div", { class: "quiet" }, [tokens(r.usage), money(r.cost)].filter(Boolean).join(", ")));
}
