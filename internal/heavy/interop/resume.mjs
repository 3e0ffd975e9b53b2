// A client made with the TypeScript SDK, which calls the tool "count" of the server at the
// given URL and prints progress and result. Its connection is cut during the call.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const client = new Client({ name: "ts", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
const onprogress = (p) => console.log("progress", p.message);
const r = await client.callTool({ name: "count", arguments: {} }, undefined, { onprogress });
console.log("result", r.content.map((c) => c.text).join("|"));
await client.close();
