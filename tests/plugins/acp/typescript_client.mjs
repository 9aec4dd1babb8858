// An editor made with the TypeScript library of the protocol. It prints what it saw as JSON.
// Arguments: the library's module, a folder, and the command of the agent.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";

const [library, folder, program, ...words] = process.argv.slice(2);
const acp = await import(library);
const seen = { updates: [], questions: [], ends: [] };
const editor = {
  async sessionUpdate({ update }) {
    seen.updates.push(update);
  },
  async requestPermission({ toolCall, options }) {
    seen.questions.push(toolCall.title);
    return { outcome: { outcome: "selected", optionId: options.find((one) => one.kind === "allow_once").optionId } };
  },
};
const agent = spawn(program, words, { stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const connection = new acp.ClientSideConnection(() => editor, stream);
const hello = await connection.initialize({ protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
seen.version = hello.protocolVersion;
const { sessionId } = await connection.newSession({ cwd: folder, mcpServers: [] });
const say = (text) => connection.prompt({ sessionId, prompt: [{ type: "text", text }] });
seen.ends.push((await say("Mend add()")).stopReason);
seen.ends.push((await say("Run it")).stopReason);
const counting = say("Count");
while (!seen.updates.some((one) => one.content?.text?.includes("One two"))) {
  await new Promise((resolve) => setImmediate(resolve));
}
await connection.cancel({ sessionId });
seen.ends.push((await counting).stopReason);
const again = await connection.loadSession({ sessionId, cwd: folder, mcpServers: [] });
seen.loaded = again !== undefined;
try {
  await connection.loadSession({ sessionId: "20200101-000000-aaaaaaa", cwd: folder, mcpServers: [] });
} catch (error) {
  seen.refused = error.message;
}
agent.stdin.end();
seen.status = await new Promise((resolve) => agent.on("exit", resolve));
console.log(JSON.stringify(seen));
