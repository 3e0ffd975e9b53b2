// A client made with the TypeScript SDK: it lists, opens the group "demo", lists
// again and calls. It prints a line for each event. Arguments: the URL of the server,
// preceded by "sse" for the transport of 2024, or the command that starts it.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const [first, ...rest] = process.argv.slice(2);
const transport = first === "sse"
  ? new SSEClientTransport(new URL(rest[0]))
  : first.startsWith("http")
    ? new StreamableHTTPClientTransport(new URL(first))
    : new StdioClientTransport({ command: first, args: rest });
const client = new Client({ name: "ts", version: "1" }, { capabilities: { elicitation: {} } });
client.setNotificationHandler(ToolListChangedNotificationSchema, () => console.log("changed"));
client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
  console.log("asked", params.message.split("\n")[0]);
  return { action: "accept", content: {} };
});
await client.connect(transport);
const list = async () => console.log("list", (await client.listTools()).tools.map((t) => t.name).join(" "));
const call = async (name, args, onprogress) => {
  const r = await client.callTool({ name, arguments: args }, undefined, { onprogress });
  console.log("result", r.isError ?? false, JSON.stringify(r.structuredContent ?? r.content.map((c) => c.text).join("|").split("\n")[0]));
};
await list();
await call("reset_tools", { demo: true });
await list();
await call("demo__weather_lookup", { city: "Oslo" });
await call("demo__countdown", { n: 2, step_ms: 1 }, (p) => console.log("progress", `${p.progress}/${p.total}`, p.message));
await client.close();
