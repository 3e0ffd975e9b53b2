// How a copy runs: another model, or another policy.
import { el } from "./dom.js";

let count = 0;

export function variant() {
  const n = ++count;
  const model = el("input", { type: "text", id: "model" + n, size: 20 });
  const settings = el("textarea", { id: "policy" + n, rows: 3, spellcheck: false, placeholder: '{"permissions": {"mode": "explore"}}' });
  const fields = el("div", { hidden: true },
    el("div", { class: "tools" }, el("label", { htmlFor: "model" + n }, "Model; empty for the usual one"), model),
    el("label", { htmlFor: "policy" + n }, "A settings file, in place of the usual mode and rules; empty for these"), settings,
    el("p", { class: "quiet" }, "It is stored with the copy, which never runs without it."));
  const button = el("button", { class: "toggle", "aria-expanded": "false", onclick: toggle }, "with another model or policy");
  const element = el("div", {}, button, fields);

  function toggle() {
    fields.hidden = !fields.hidden;
    button.setAttribute("aria-expanded", String(!fields.hidden));
  }
  return { element, values: () => ({ model: model.value, settings: settings.value }) };
}
