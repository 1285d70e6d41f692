#!/usr/bin/env bash
# @langchain/google-genai 2.3.2 leaves Gemini's thoughts out of `output_tokens`, although the total has them, and Google
# charges them as output. @ai-sdk/google 3.0.141 counts them as output. A budget that reads LangChain's output figure
# alone counts only the visible part of such an answer.
#
# Output seen on 1 December 2026 with Node 20.20.2, @langchain/core 1.4.0, ai 6.0.326:
#   sent:      100 prompt, 20 visible, 300 thoughts, 420 in all
#   LangChain: 100 input, 20 output, 420 in all
#   AI SDK:    100 input, 320 output, 420 in all
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund @langchain/core@1.4.0 @langchain/google-genai@2.3.2 \
  ai@6.0.326 @ai-sdk/google@3.0.141
cat >run.mjs <<'SCRIPT'
import { once } from "node:events";
import { createServer } from "node:http";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { ChatGoogleGenerativeAI } from "@langchain/google-genai";
import { generateText } from "ai";

const answer = {
  candidates: [{ content: { role: "model", parts: [{ text: "42" }] }, finishReason: "STOP", index: 0 }],
  usageMetadata: {
    promptTokenCount: 100,
    candidatesTokenCount: 20,
    thoughtsTokenCount: 300,
    totalTokenCount: 420,
  },
};
const server = createServer((_request, response) => {
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
}).listen(0, "127.0.0.1");
await once(server, "listening");
const url = `http://127.0.0.1:${server.address().port}`;
const name = "gemini-2.5-flash";
const chat = new ChatGoogleGenerativeAI({ apiKey: "key", model: name, baseUrl: url });
const { usage_metadata: byLangChain } = await chat.invoke("6 times 7?");
const google = createGoogleGenerativeAI({ apiKey: "key", baseURL: url });
const { totalUsage: byAiSdk } = await generateText({ model: google(name), prompt: "6 times 7?" });
server.close();
server.closeAllConnections();
console.log("sent:      100 prompt, 20 visible, 300 thoughts, 420 in all");
const { input_tokens, output_tokens, total_tokens } = byLangChain;
const { inputTokens, outputTokens, totalTokens } = byAiSdk;
console.log(`LangChain: ${input_tokens} input, ${output_tokens} output, ${total_tokens} in all`);
console.log(`AI SDK:    ${inputTokens} input, ${outputTokens} output, ${totalTokens} in all`);
process.exit(output_tokens === 20 && outputTokens === 320 ? 0 : 1);
SCRIPT
node run.mjs
