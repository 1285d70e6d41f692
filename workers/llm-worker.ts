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

/** Reports the number of streamed characters as the job's progress, at most once a second. */
function reportProgress(report: (progress: object) => Promise<void>): (text: string) => void {
  let reportedAtMs = performance.now();
  return ({ length: characters }) => {
    if (performance.now() < reportedAtMs + PROGRESS_EVERY_MS) return;
    reportedAtMs = performance.now();
    void report({ characters });
  };
}

// Requests one chat completion for each job. The bucket sends the requests and counts the tokens that each one used.
await runQueueWorker(VARIABLES, (settings) => ({
  open: (sluice) => openLlmQueue(sluice, settings),
  tryOut: (baseUrl) => createComplete({ ...settings, baseUrl, apiKey: "none" })(HELLO, ALONE),
  handler(log, { bucket }) {
    // The bucket does not retry a rejected request, because the queue retries the whole job.
    const fetch = bucket.fetch.with({ tries: 1 });
    const complete = createComplete({ ...settings, fetch });
    return loggedHandler<ChatRequest, ChatResult>({
      log,
      texts: { done: "Answered.", failed: "Not answered." },
      call: (job, { signal, progress }) =>
        complete(job.data, { signal, onText: reportProgress(progress) }),
    });
  },
}));
