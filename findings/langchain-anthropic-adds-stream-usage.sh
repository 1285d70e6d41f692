#!/usr/bin/env bash
# Anthropic's stream states output tokens twice: some at its start, and all of them at its end, where those of the start
# are included. @langchain/anthropic 1.5.11 adds the two figures when the chunks of a stream are joined. So an answer has
# more tokens as a stream than without one. @ai-sdk/anthropic 3.0.140 takes the last figure.
#
# Output seen on 1 December 2026 with Node 20.20.2, @langchain/core 1.4.0, ai 6.0.326:
#   stated at the start: 8, at the end: 20
#   LangChain: 28 output tokens
#   AI SDK:    20 output tokens
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund @langchain/core@1.4.0 @langchain/anthropic@1.5.11 \
  ai@6.0.326 @ai-sdk/anthropic@3.0.140
cat >run.mjs <<'SCRIPT'
import { once } from "node:events";
import { createServer } from "node:http";
import { createAnthropic } from "@ai-sdk/anthropic";
import { ChatAnthropic } from "@langchain/anthropic";
import { streamText } from "ai";

const message = { id: "msg_1", type: "message", role: "assistant", model: "claude", content: [], stop_reason: null };
const events = [
  { type: "message_start", message: { ...message, usage: { input_tokens: 100, output_tokens: 8 } } },
  { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
  { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "42" } },
  { type: "content_block_stop", index: 0 },
  { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 20 } },
  { type: "message_stop" },
];
const server = createServer((_request, response) => {
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.end(events.map((each) => `event: ${each.type}\ndata: ${JSON.stringify(each)}\n\n`).join(""));
}).listen(0, "127.0.0.1");
await once(server, "listening");
const url = `http://127.0.0.1:${server.address().port}`;
const name = "claude-sonnet-4-5";
const chat = new ChatAnthropic({ apiKey: "key", model: name, anthropicApiUrl: url });
let joined;
for await (const chunk of await chat.stream("6 times 7?")) joined = joined?.concat(chunk) ?? chunk;
const byLangChain = joined.usage_metadata.output_tokens;
const anthropic = createAnthropic({ apiKey: "key", baseURL: url });
const stream = streamText({ model: anthropic(name), prompt: "6 times 7?" });
await stream.consumeStream();
const { outputTokens: byAiSdk } = await stream.totalUsage;
server.close();
server.closeAllConnections();
console.log("stated at the start: 8, at the end: 20");
console.log(`LangChain: ${byLangChain} output tokens`);
console.log(`AI SDK:    ${byAiSdk} output tokens`);
process.exit(byLangChain === 28 && byAiSdk === 20 ? 0 : 1);
SCRIPT
node run.mjs
