/** Asks a model through workers/llm-worker.ts: each question takes its estimated tokens, and gives back those that it did not use. */
import { createSluice } from "sluice";
import { estimateTokens, openLlmQueue } from "../../workers/llm/queue.ts";

await using sluice = createSluice({ prefix: process.env["SLUICE_PREFIX"] });
const queue = openLlmQueue(sluice);

const questions = ["Why is the sky blue?", "What is a leaky bucket?", "Who wrote Middlemarch?"];
const requests = questions.map((content, index) => ({
  model: process.env["OPENAI_MODEL"] ?? "gpt-4o-mini",
  messages: [{ role: "user", content }],
  max_tokens: 100,
  stream: index === 0,
}));
const jobs = await queue.enqueueMany(requests, (request) => ({
  cost: { tokens: estimateTokens(request) },
}));
for (const [index, job] of jobs.entries()) {
  const { text, totalTokens } = await job.finished({ timeoutMs: 60_000 });
  const estimate = estimateTokens(requests[index]!);
  console.log(`${text}\n  used ${totalTokens} of ${estimate} estimated tokens`);
}
