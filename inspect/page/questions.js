// The questions that wait for an answer. A question keeps its place while it waits: nothing moves under the pointer.
import { el, link, post, table, time } from "./dom.js";

export function questions() {
  const cards = new Map();
  const list = el("div");
  const said = el("p", { role: "status" });
  const heading = el("h2", { hidden: true }, "Waiting for an answer");
  const element = el("section", { "aria-label": "Questions" }, heading, said, list);

  function set(all) {
    const keys = all.map((q) => JSON.stringify([q.session, q.call, q.question, q.sent]));
    for (const [key, card] of cards) {
      if (!keys.includes(key)) { card.remove(); cards.delete(key); }
    }
    all.forEach((q, i) => {
      if (cards.has(keys[i])) return;
      cards.set(keys[i], card(q, (text) => said.replaceChildren(text)));
      list.append(cards.get(keys[i]));
    });
    heading.hidden = all.length === 0;
  }
  return { element, set };
}

function card(q, say) {
  const problem = el("p", { class: "bad", role: "alert" });
  const details = [["Why", q.reason], ["Effects", q.external ? "" : q.effects], ["Asked", time(q.asked)]];
  const element = el("article", { class: "card", "aria-label": "Question about " + q.tool },
    el("h3", {}, q.tool + (q.external ? " waits for its program" : " wants to run")),
    el("div", {}, link(["s", q.session], q.title || q.session)),
    q.safety && el("p", { class: "wait" }, "No rule can answer this question."),
    el("dl", {}, details.filter(([, v]) => v).flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)])),
    q.fields.map((f) => [el("div", { class: "quiet" }, f.name), el("pre", { tabIndex: 0 }, f.value)]),
    q.runs && [el("div", { class: "quiet" }, "What would run, as it was judged"), el("pre", { tabIndex: 0 }, q.runs)],
    q.parts && table("Parts of the command", ["Command", "Effects"], el("tbody", {}, q.parts.map((p) => el("tr", {}, el("td", {}, p.command), el("td", {}, p.effects || "nothing"))))),
    q.preview && [el("div", { class: "quiet" }, "Preview"), el("pre", { tabIndex: 0 }, q.preview)], problem);
  if (q.sent) element.append(el("p", { class: "wait" }, "An answer was sent, and waits to be taken by the program that runs this session."));
  else if (!q.external) element.append(...answers(q, send));

  async function send(answer) {
    const buttons = [...element.querySelectorAll("button")];
    buttons.forEach((b) => { b.disabled = true; });
    problem.replaceChildren();
    try {
      const result = await post("sessions/" + q.session + "/answer", { call: q.call, question: q.question, ...answer });
      say(result.accepted ? result.note : "This question was answered before.");
    } catch (e) {
      problem.replaceChildren(e.message);
      buttons.forEach((b) => { b.disabled = false; });
    }
  }
  return element;
}

// answers are those that the terminal has: once, this session, for good, no because.
function answers(q, send) {
  const why = el("input", { type: "text", "aria-label": "Reason, for the model" });
  const out = [el("div", { class: "tools" },
    el("button", { onclick: () => send({ allow: true }) }, "Allow once"),
    el("button", { onclick: () => send({ allow: false, reason: why.value }) }, "Deny"),
    el("label", {}, "because ", why))];
  if (q.rules && q.rules.length) {
    const fields = q.rules.map((r) => el("input", { type: "text", value: r, size: Math.min(60, r.length + 4), "aria-label": "Rule" }));
    const rules = () => fields.map((f) => f.value);
    out.push(el("div", { class: "tools" },
      el("button", { onclick: () => send({ allow: true, rules: rules() }) }, "Allow for this session"),
      q.keeps && el("button", { onclick: () => send({ allow: true, rules: rules(), keep: true }) }, "Allow from now on"),
      el("span", { class: "quiet" }, "by the rule"), fields));
  }
  return out;
}
