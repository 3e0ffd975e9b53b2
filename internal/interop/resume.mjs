// A client made with the TypeScript SDK, which calls the tool "count" over the URL that it
// is given and prints progress and result. Its connection is cut meanwhile.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const client = new Client({ name: "ts", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
const onprogress = (p) => console.log("progress", p.message);
const r = await client.callTool({ name: "count", arguments: {} }, undefined, { onprogress });
console.log("result", r.content.map((c) => c.text).join("|"));
await client.close();
