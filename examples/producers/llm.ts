/**
 * Asks a model through workers/llm-worker.ts. Each question reserves its estimated tokens, and unused tokens are
 * returned.
 */
import { createSluice } from "sluice";
import { openLlmQueue } from "../../workers/llm/queue.ts";

await using sluice = createSluice({ prefix: process.env["SLUICE_PREFIX"] });
const queue = openLlmQueue(sluice);

const questions = ["Why is the sky blue?", "What is a leaky bucket?", "Who wrote Middlemarch?"];
const requests = questions.map((content, index) => ({
  model: process.env["OPENAI_MODEL"] ?? "gpt-4o-mini",
  messages: [{ role: "user", content }],
  max_tokens: 100,
  stream: index === 0,
}));
for (const job of await queue.enqueueMany(requests)) {
  const { text, totalTokens } = await job.finished({ timeoutMs: 60_000 });
  console.log(`${text}\n  used ${totalTokens} tokens; its estimate was`, job.cost);
}
