// Runs the npm client of AG-UI against a server: client.mjs URL. Every event is validated against the schemas of
// the npm package, and may have no member that they do not have. Prints what the client has in the end.
import { HttpAgent } from "@ag-ui/client";
import { EventSchema } from "@ag-ui/core/schemas";
import assert from "node:assert/strict";

const url = process.argv[2];
const seen = new Set();

// Checked checks each event before the client sees it.
class Checked extends HttpAgent {
  run(input) {
    const source = super.run(input);
    const subscribe = source.subscribe.bind(source);
    source.subscribe = (observer) =>
      subscribe({ ...observer, next: (ev) => (check(ev), observer.next(ev)), error: (e) => observer.error(e), complete: () => observer.complete() });
    return source;
  }
}

function check(ev) {
  const parsed = EventSchema.safeParse(ev);
  if (!parsed.success) fail(ev, JSON.stringify(parsed.error.issues));
  const lost = members(ev, parsed.data);
  if (lost) fail(ev, `the schema has no member ${lost}`);
  seen.add(ev.type);
}

function fail(ev, why) {
  console.error("invalid event", JSON.stringify(ev), why);
  process.exit(1);
}

// members returns a member of a that b lacks, outside of what is free.
function members(a, b, path = "") {
  if (a === null || typeof a !== "object") return "";
  for (const [k, v] of Object.entries(a)) {
    if (["metadata", "value", "snapshot", "responseSchema", "delta"].includes(k)) continue;
    if (b === undefined || b === null || !(k in b)) return `${path}.${k}`;
    const inner = members(v, b[k], `${path}.${k}`);
    if (inner) return inner;
  }
  return "";
}

const agent = (threadId) => new Checked({ url, threadId });
let n = 0;
const say = (a, content) => a.messages.push({ id: `user-${++n}`, role: "user", content });
const text = (a) => a.messages.filter((m) => m.role === "assistant").map((m) => m.content ?? "").join("|");
const errors = console.error;

async function failing(run, code) {
  let got;
  console.error = () => {};
  await run({ onRunErrorEvent: ({ event }) => void (got = event.code) }).catch(() => {});
  console.error = errors;
  assert.equal(got, code);
}

// Text, reasoning, and a second message with the whole history.
const chat = agent("chat");
say(chat, "think tea");
await chat.runAgent();
assert.equal(text(chat), "Here is tea.");
assert.equal(chat.messages.find((m) => m.role === "reasoning").content, "They want tea, I think.");
say(chat, "note x");
await chat.runAgent();
assert.equal(text(chat), "Here is tea.|I note it.|Done: kept.");
assert.deepEqual(chat.state, { notes: ["x"], groups: [] });
assert.equal(chat.messages.find((m) => m.role === "tool").content, "kept");

// An approval, refused and allowed with other arguments.
say(chat, "send y");
await chat.runAgent();
assert.equal(chat.pendingInterrupts.length, 1);
assert.equal(chat.pendingInterrupts[0].metadata.kitbag.name, "send");
await assert.rejects(() => chat.runAgent());
await chat.runAgent({ resume: [{ interruptId: chat.pendingInterrupts[0].id, status: "resolved", payload: { approved: true, editedArgs: { word: "z" } } }] });
assert.match(text(chat), /sent z\./);
say(chat, "send w");
await chat.runAgent();
await chat.runAgent({ resume: [{ interruptId: chat.pendingInterrupts[0].id, status: "cancelled" }] });
assert.equal(chat.pendingInterrupts.length, 0);

// A frontend tool.
const front = agent("front");
const tools = [{ name: "paint", description: "Paints.", parameters: { type: "object", properties: { word: { type: "string" } } } }];
let pending;
say(front, "front paint");
await front.runAgent({ tools }, { onRunFinishedEvent: ({ pendingToolCallIds }) => void (pending = pendingToolCallIds) });
assert.equal(pending.length, 1);
front.messages.push({ id: "painted", role: "tool", toolCallId: pending[0], content: "blue" });
await front.runAgent({ tools });
assert.match(text(front), /Done: blue\./);

// A sub-agent, a model call that is repeated, and one that fails.
const sub = agent("sub");
say(sub, "clerk look around");
await sub.runAgent();
assert.match(text(sub), /Done: Done: seen\.\./);
say(sub, "hello");
await sub.runAgent();
assert.match(text(sub), /You said "hello"\./);
const flaky = agent("flaky");
say(flaky, "flaky");
await flaky.runAgent();
assert.match(text(flaky), /This is whole\./);
const broken = agent("broken");
say(broken, "break");
await failing((s) => broken.runAgent({}, s), "run_failed");

// Another history, and cancellation.
const forged = agent("chat");
forged.messages = structuredClone(chat.messages);
forged.messages[0].content = "something else";
say(forged, "hello");
await failing((s) => forged.runAgent({}, s), "history_differs");
const slow = agent("slow");
say(slow, "wait");
let outcome;
const run = slow.runAgent({}, { onRunFinishedEvent: (p) => void (outcome = p.outcome) });
await new Promise((r) => setTimeout(r, 300));
assert.equal((await fetch(`${url}?threadId=slow`, { method: "DELETE" })).status, 204);
await run;
assert.equal(outcome, "cancelled");

console.log([...seen].sort().join(" "));
