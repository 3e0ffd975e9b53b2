// The ledger of the prompt cache: what each request consisted of, and why the provider billed some of it again.
import { el, get, later, money, number, table, time } from "./dom.js";

const size = 500;

export function requests(path) {
  let from = 0, total = 0;
  const sum = el("p", { role: "status" });
  const problem = el("p", { class: "bad", role: "alert" });
  const body = el("tbody");
  const move = (text, by) => el("button", { onclick: () => { from = Math.max(0, Math.min(from + by, total - 1)); load(); } }, text);
  const element = el("section", { "aria-label": "Requests" }, el("h2", {}, "Requests and the prompt cache"),
    el("p", { class: "quiet" }, "A bar is a request; its light part was in the request before."),
    sum, el("div", { class: "tools" }, move("Previous", -size), move("Next", size)), problem,
    table("Requests", ["#Step", "Time", "Model", "Tools", "Request", "First difference", "Why it was billed again", "#In", "#Cached", "#Billed again"], body));

  async function load() {
    try {
      const page = await get(path + "/requests", { from });
      total = page.total;
      const largest = Math.max(1, ...page.requests.map((r) => r.bytes));
      body.replaceChildren(...page.requests.map((r) => row(r, largest)));
      sum.replaceChildren(total + " requests. " + (page.lost ? number(page.lost) + " tokens were billed again that could have been cached" +
        (page.cost ? ", for " + money(page.cost) : "") + "." : "Nothing was billed again that could have been cached."));
      problem.replaceChildren(page.problem);
    } catch (e) {
      problem.replaceChildren(e.message);
    }
  }

  const refresh = later(2000, load);
  load();
  return { element, update: () => (from + size > total) && refresh() };
}

function row(r, largest) {
  const changes = (r.shown || []).join(" ");
  return el("tr", {},
    el("td", { class: "number" }, r.step), el("td", {}, time(r.start)), el("td", {}, r.model || ""),
    el("td", {}, r.tools + (r.tool_bytes ? ", " + number(r.tool_bytes) + "B" : ""), changes && el("div", { class: "quiet" }, changes)),
    el("td", {}, bar(r, largest)),
    el("td", { class: "what" }, r.bytes ? (r.same < r.bytes ? "byte " + (number(r.same) || "0") : "none") + " of " + number(r.bytes) : "not recorded"),
    el("td", { class: "text" }, r.cause || ""),
    el("td", { class: "number" }, number(r.usage.input_tokens)), el("td", { class: "number" }, number(r.usage.cached_tokens)),
    el("td", { class: "number" }, number(r.lost), r.cost && el("div", { class: "quiet" }, money(r.cost))));
}

function bar(r, largest) {
  const track = el("div", { class: "track", role: "img",
    "aria-label": `tools ${r.tool_bytes} bytes, instructions ${r.system_bytes}, messages ${r.bytes - r.tool_bytes - r.system_bytes}; ${r.same} as before` });
  const part = (kind, begin, length) => {
    const fill = el("div", { class: "fill " + kind });
    fill.style.left = 100 * begin / largest + "%";
    fill.style.width = 100 * length / largest + "%";
    track.append(fill);
  };
  part("", 0, r.bytes);
  if (r.same) part("cached", 0, r.same);
  return track;
}
