// The page has one view at a time, chosen by the part of the address after "#". A view is an element with an
// update function, which is called with each server-sent event.
import { get } from "./dom.js";
import { sessionsView } from "./sessions.js";
import { compareView } from "./compare.js";
import { gatewaysView } from "./gateways.js";
import { sessionView } from "./session.js";

const main = document.getElementById("main");
const connection = document.getElementById("connection");
let view = null;
let source = null;

function decode(text) {
  try { return decodeURIComponent(text); } catch { return text; } // an address that somebody has typed
}

function route() {
  const [name, id, part] = location.hash.replace(/^#\/?/, "").split("/").map(decode);
  if (name === "main") { main.focus(); return; }
  view = name === "s" && id ? sessionView(id, part) : name === "compare" && id && part ? compareView(id, part) :
    name === "gateways" ? gatewaysView() : sessionsView();
  view.session = name === "s" && id ? id : "";
  main.replaceChildren(view.element);
  listen();
}

// listen opens the stream of events. A hidden page closes it: a browser has few connections to one server.
function listen() {
  if (source) source.close();
  source = null;
  if (document.hidden) return;
  source = new EventSource("api/live" + (view.session ? "?session=" + encodeURIComponent(view.session) : ""));
  source.onopen = () => connection.replaceChildren();
  source.onerror = ({ target }) => {
    connection.replaceChildren("The server does not answer; trying again…");
    if (target.readyState !== EventSource.CLOSED) return; // the browser tries again
    get("inbox").catch((e) => connection.replaceChildren(e.message)); // such as that the cookie is of another run of the server
    setTimeout(() => target === source && listen(), 5000);
  };
  for (const kind of ["list", "rows", "session"]) {
    source.addEventListener(kind, (e) => view.update(kind, JSON.parse(e.data)));
  }
}

window.addEventListener("hashchange", route);
document.addEventListener("visibilitychange", listen);
document.addEventListener("keydown", (e) => {
  if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName)) return;
  const field = main.querySelector("input[type=search]");
  if (field) { e.preventDefault(); field.focus(); }
});
route();
