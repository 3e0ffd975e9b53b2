// The MCP gateways that run: their servers, groups and last calls, and the tools that wait for the user.
import { el, get, number, post, table, time } from "./dom.js";

const kinds = { ready: "good", idle: "quiet", restarting: "wait", failed: "bad", closed: "quiet", allow: "good", ask: "wait", deny: "bad" };

export function gatewaysView() {
  const problem = el("p", { class: "bad", role: "alert" });
  const pins = el("section", { "aria-label": "Changed tools" });
  const list = el("div");
  const said = el("p", { role: "status" });
  const element = el("div", {}, el("h1", {}, "Gateways"), problem, said, pins, list);
  let lastPins = "", lastList = "";

  async function load() {
    try {
      const g = await get("gateways");
      const waiting = JSON.stringify(g.pins), shown = JSON.stringify(g.gateways);
      if (waiting !== lastPins) pins.replaceChildren(...g.pins.length ? [el("h2", {}, "Changed by their servers, and withheld"), ...g.pins.map(card)] : []);
      if (shown !== lastList) list.replaceChildren(...g.gateways.length ? g.gateways.map(gateway) : [el("p", { class: "quiet" }, g.known ? "No gateway of yours runs. kitbag mcp serve starts one." : "This program knows of no gateway.")]);
      [lastPins, lastList] = [waiting, shown];
      problem.replaceChildren(g.problem || "");
    } catch (e) {
      problem.replaceChildren(e.message);
    }
  }

  function card(p) {
    const accept = async () => {
      try {
        await post("pins/accept", { id: p.id });
        said.replaceChildren(p.title + " of " + p.server + " is accepted. A running gateway uses it after it lists the server's tools again, such as after a reload (SIGHUP).");
      } catch (e) {
        said.replaceChildren(e.message);
      }
      load();
    };
    return el("article", { class: "card", "aria-label": "Changed tool " + p.title }, el("h3", {}, p.title + " of " + p.server),
      el("div", { class: "quiet" }, p.file), el("pre", { tabIndex: 0 }, p.diff),
      el("div", { class: "tools" }, el("button", { onclick: accept }, "Accept the new definition")));
  }

  const timer = setInterval(() => {
    if (!element.isConnected) clearInterval(timer);
    else if (!document.hidden) load();
  }, 2000);
  load();
  return { element, update() {} };
}

function gateway(g) {
  const cell = (c, ...t) => el("td", { class: c }, t);
  const state = (s) => el("span", { class: kinds[s] || "quiet" }, s || "");
  const groups = g.groups || [];
  return el("section", { "aria-label": "Gateway " + g.name }, el("h2", {}, g.name), g.started && el("p", { class: "quiet" }, "since " + time(g.started)),
    el("h3", {}, "Servers"), table("Servers", ["Server", "State", "Version", "#Restarts", "Last error"], el("tbody", {}, (g.servers || []).map((s) => el("tr", {},
      cell("", s.name), cell("", state(s.state)), cell("", s.version || "", s.protocol ? " (" + s.protocol + ")" : ""), cell("number", number(s.restarts)), cell("text bad", s.error || ""))))),
    el("h3", {}, "Groups"), table("Groups", ["Group", "Tools that are known", "#Bytes when open", "#Tokens"], el("tbody", {}, groups.map((t) => el("tr", {},
      cell("", t.name), cell("text", (t.tools || []).join(", ") || "none", (t.failed || []).map((f) => el("div", { class: "bad" }, f))), cell("number", number(t.bytes)), cell("number", number(t.tokens)))))),
    (g.calls || []).length > 0 && [el("h3", {}, "Last calls"), table("Last calls", ["Time", "Who", "Tool", "Decision", "Outcome", "#Took", "Why"], el("tbody", {}, g.calls.slice(-50).reverse().map((a) => el("tr", {},
      cell("", time(a.time)), cell("", a.credential || a.session || ""), cell("", a.tool), cell("", state(a.decision)), cell("", a.outcome || ""), cell("number", Math.round(a.duration_ms) + " ms"), cell("text", a.rule || a.reason || "")))))]);
}
