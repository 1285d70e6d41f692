import type { Slot } from "sluice";
import type { Logger } from "pino";
import { createComplete } from "./llm/complete.ts";
import { LLM_QUEUE, openLlmQueue, type ChatRequest, type ChatResult } from "./llm/queue.ts";
import { loggedHandler } from "./shared/logged-handler.ts";
import { runQueueWorker } from "./shared/queue-worker.ts";
import { apiKey, baseUrl, workerVariables } from "./shared/settings.ts";

const PROGRESS_EVERY_MS = 1_000;
const HELLO: ChatRequest = { model: "none", messages: [{ role: "user", content: "Hello" }] };
const ALONE = { signal: new AbortController().signal, onText: () => undefined };
const VARIABLES = {
  ...LLM_QUEUE,
  ...workerVariables({ timeoutMs: 300_000 }),
  apiKey: { name: "OPENAI_API_KEY", as: apiKey, isSecret: true },
  baseUrl: { name: "OPENAI_BASE_URL", as: baseUrl("https://api.openai.com/v1"), isSecret: true },
};

/** Never throws: the answer is paid for, so a failure to settle must not cause another attempt. */
async function settle(slot: Slot, { totalTokens: tokens }: ChatResult, log: Logger): Promise<void> {
  try {
    await slot.settle({ tokens });
  } catch (error) {
    log.warn({ tokens, error }, "settle failed; the estimate is kept.");
  }
}

/** Reports the number of characters, at most once a second. */
function reportProgress(report: (progress: object) => Promise<void>): (text: string) => void {
  let reportedAtMs = performance.now();
  return ({ length: characters }) => {
    if (performance.now() < reportedAtMs + PROGRESS_EVERY_MS) return;
    reportedAtMs = performance.now();
    void report({ characters });
  };
}

// Asks for one chat completion per job, and settles the tokens that it used.
await runQueueWorker(VARIABLES, (settings) => {
  const complete = createComplete(settings);
  return {
    open: (sluice) => openLlmQueue(sluice, settings),
    tryOut: (baseUrl) => createComplete({ ...settings, baseUrl, apiKey: "none" })(HELLO, ALONE),
    handler: (log) =>
      loggedHandler<ChatRequest, ChatResult>({
        log,
        texts: { done: "Answered.", failed: "Not answered." },
        async call(job, { signal, slot, progress }) {
          const result = await complete(job.data, { signal, onText: reportProgress(progress) });
          await settle(slot, result, log);
          return result;
        },
      }),
  };
});
