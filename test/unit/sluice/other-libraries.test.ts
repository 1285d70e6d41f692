import { describe, expect, it } from "vitest";
import { createSluice, type Queue } from "sluice";
import { anthropic } from "sluice/llm";
import { createServer } from "sluice/server";
import { rejectionOf } from "../../support/async/rejection.ts";
import { unconnectedSluices } from "../../support/setup/unconnected-sluice.ts";

const open = unconnectedSluices();

/** What is thrown, at once or later. */
async function refusalOf(call: () => unknown): Promise<string> {
  const error = await rejectionOf(Promise.resolve().then(call));
  return (error as Error).message;
}

describe("an option of another library", () => {
  const bucket = (options: object) => () => open().bucket("a", options as { rate: "1/s" });

  it.each<[string, () => unknown, string]>([
    ["rps", bucket({ rps: 5 }), "did you mean rate?"],
    ["RPM", bucket({ RPM: 5 }), "did you mean rate?"],
    ["requests_per_second", bucket({ requests_per_second: 5 }), "did you mean rate?"],
    ["perTenant", bucket({ perTenant: { rate: "1/s" } }), "did you mean perKey?"],
    ["per_user", bucket({ per_user: { rate: "1/s" } }), "did you mean perKey?"],
    ["maxInFlight", bucket({ maxInFlight: 5 }), "did you mean concurrency?"],
    ["max-concurrent", bucket({ "max-concurrent": 5 }), "did you mean concurrency?"],
    ["tokensPerInterval", bucket({ tokensPerInterval: 5 }), "did you mean rate or limits?"],
    ["windowMs", bucket({ windowMs: 5 }), "did you mean rate or limits?"],
    ["bucketSize", bucket({ rate: "1/s", bucketSize: 5 }), "did you mean burst or limits?"],
    [
      "the rate of a queue",
      () =>
        open().queue("q", { bucket: open().bucket("b", { rate: "1/s" }), rate: "1/s" } as never),
      "give the rate to the bucket",
    ],
    [
      "the concurrency of a queue",
      () =>
        open().queue("q", { bucket: open().bucket("b", { rate: "1/s" }), concurrency: 5 } as never),
      "worker(queue, handler, { concurrency })",
    ],
    [
      "the attempts of a queue",
      () =>
        open().queue("q", { bucket: open().bucket("b", { rate: "1/s" }), attempts: 5 } as never),
      "did you mean defaults?",
    ],
    [
      "a bucket's options in a queue's",
      () => open().queue("q", { bucket: { rate: "1/s" } } as never),
      'option "bucket" is {"rate":"1/s"}',
    ],
    [
      "a field of a token",
      () =>
        createServer(open(), { tokens: [{ token: "12345678", role: "act", roles: 1 }] } as never),
      "did you mean role?",
    ],
    ["url", () => createSluice({ url: "redis://a" } as object), "did you mean redis?"],
    ["host", () => createSluice({ host: "a" } as object), "did you mean redis?"],
    [
      "tpm",
      () => anthropic({ requests: "1/s", tpm: 5 } as { requests: "1/s" }),
      "did you mean input?",
    ],
  ])("is recognised: %s", async (_name, call, hint) => {
    expect(await refusalOf(call)).toContain(hint);
  });
});

describe("a missing argument, or one of another library", () => {
  function openQueue(): Queue<unknown> {
    const sluice = open();
    return sluice.queue("q", { bucket: sluice.bucket("b", { rate: "1/s" }) });
  }
  const call =
    (name: keyof Queue<unknown>, ...args: readonly unknown[]) =>
    () =>
      (openQueue()[name] as (...given: readonly unknown[]) => unknown)(...args);

  it.each<[string, () => unknown, readonly string[]]>([
    [
      "enqueue(name, data) of BullMQ",
      call("enqueue", "send", { to: "a@b.test" }),
      ["enqueue(data, options)", "{ name, ...options }", "to"],
    ],
    ["schedule() without an id", call("schedule"), ['schedule("daily-report")', "enqueue(data,"]],
    [
      "schedule({ pattern })",
      call("schedule", { pattern: "0 9 * * *" }),
      ['schedule("daily-report")', "enqueue(data,"],
    ],
    [
      "enqueue(name, data), where a field looks like a mistyped option",
      call("enqueue", "send", { a: 1 }),
      ["enqueue(data, options)", "did you mean at?"],
    ],
    [
      "enqueue(name, data), where a field is an option of others",
      call("enqueue", "send", { userId: 1, name: "x" }),
      ["enqueue(data, options)", "did you mean key?"],
    ],
    [
      "enqueue(name, data, options) of BullMQ",
      call("enqueue", "send", { to: 1 }, { attempts: 3 }),
      ["enqueue(data, options)", "{ name, ...options }"],
    ],
    [
      "a mistyped option beside a text",
      call("enqueue", "a", { dealyMs: 5 }),
      ["did you mean delayMs?"],
    ],
    ["retries of a job", call("enqueue", {}, { retries: 5 }), ["did you mean attempts?"]],
    ["runAt of a job", call("enqueue", {}, { runAt: 5 }), ["did you mean at or delayMs?"]],
    ["the tenant of a job", call("enqueue", {}, { tenantId: "a" }), ["did you mean key?"]],
    ["replay()", call("replay"), ["idOrFilter", "{ reason:", "replay({})"]],
    ["purge()", call("purge"), ["idOrFilter", "purge({})"]],
    [
      'queue("q") without a bucket',
      () => (open().queue as (name: string) => unknown)("q"),
      ["bucket", 'sluice.queue("q", { bucket })'],
    ],
  ])("is named with a remedy: %s", async (_what, refused, parts) => {
    const message = await refusalOf(refused);

    for (const part of parts) expect(message).toContain(part);
  });
});
