import process from "node:process";
import { Discard, RetryAfter } from "sluice";

/** A handler that does what its job says. */
const WAYS = {
  pid: async () => process.pid,
  fetch: async ({ data }) => fetch(data.url),
  echo: async (job, { attempt, slot }) => ({ job, attempt, bucket: slot.bucket }),
  parents: async (_job, { parents }) => parents(),
  nothing: async () => {},
  tell: async (_job, { log, progress }) => {
    await log("one line");
    await progress({ part: 0.5 });
  },
  settle: async (_job, { slot }) => slot.settle({ tokens: 90 }),
  tellStrangers: async () => {
    for (const message of ["ready", 5, { type: "x" }, { cmd: "x" }, { sluice: "x" }]) {
      process.send(message);
    }
    return "done";
  },
  throw: async () => {
    throw Object.assign(new Error("the downstream says no"), { code: "E_NO" });
  },
  wrapped: async () => {
    const reset = Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
    class OutOfOrder extends Error {}
    throw new OutOfOrder("no charge", { cause: new TypeError("fetch failed", { cause: reset }) });
  },
  throwNothing: async () => {
    throw undefined;
  },
  limited: async () => {
    const headers = { "retry-after": "3600" };
    throw Object.assign(new Error("429"), { response: { status: 429, headers } });
  },
  outOfQuota: async () => {
    throw Object.assign(new Error("429"), { status: 429, code: "insufficient_quota" });
  },
  dayIsUsedUp: async () => {
    const data = { error: { quotaId: "RequestsPerDay" } };
    throw new Error("failed", { cause: { response: { status: 429, headers: {}, data } } });
  },
  retryAfter: async (_job, { attempt }) => {
    if (attempt === 1) throw new RetryAfter(50);
    return "second try";
  },
  returnError: async () => new TypeError("card declined"),
  discard: async () => new Discard("no such account"),
  cycle: async () => {
    const cycle = {};
    cycle.self = cycle;
    return cycle;
  },
  dieOnce: async (_job, { attempt }) => {
    if (attempt === 1) process.kill(process.pid, "SIGKILL");
    return attempt;
  },
  loop: async (_job, { attempt }) => {
    while (attempt === 1);
    return attempt;
  },
  untilAborted: async (_job, { signal, log }) => {
    await log("started");
    return new Promise((_resolve, reject) => {
      signal.addEventListener("abort", () => reject(new Error(`aborted: ${signal.reason}`)));
    });
  },
};

export default async function handle(job, context) {
  return WAYS[job.data.do](job, context);
}
