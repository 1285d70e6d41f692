import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { startRetryAfterServer } from "../../support/servers/retry-after-server.ts";

const CAP_MS = 500;
const sluices = realSluices();
let server: Awaited<ReturnType<typeof startRetryAfterServer>>;
beforeEach(async () => {
  server = await startRetryAfterServer();
});
afterEach(async () => {
  await server.close();
});

const values: [string, string][] = [
  ["a billion seconds", "1000000000"],
  ["more than any number holds", "9".repeat(400)],
  ["below zero", "-1"],
  ["no number", "NaN"],
  ["Infinity", "Infinity"],
  ["nothing", ""],
  ["a date long ago", "Mon, 01 Jan 1990 00:00:00 GMT"],
  ["a date far off", "Fri, 31 Dec 9999 23:59:59 GMT"],
  ["a date that does not exist", "Tue, 99 Foo 2026 99:99:99 GMT"],
  ["several numbers", "1, 100000, -5"],
  ["a number in another base", "0xffffffff"],
  ["an exponent", "1e308"],
  ["a fraction", "0.0000001"],
  ["a long text", "z".repeat(8_000)],
  ["a script", "${7*7}; redis.call('FLUSHALL')"],
];

describe("a 429 with a Retry-After of", () => {
  it.each(values)(
    "%s stops calls for at most the cap, and throws no error",
    async (_name, value) => {
      const sluice = sluices.open();
      const bucket = sluice.bucket("b", { rate: "1000/s", maxCooldownMs: CAP_MS });
      const call = bucket.throttled((ask: string) =>
        fetch(server.url, { headers: { "x-ask": Buffer.from(ask).toString("base64") } }),
      );

      const response = await call(value);
      const { coolingForMs } = await bucket.peek();
      // The next one leaves when the cooldown is over.
      const again = await call("0");

      expect(response.status).toBe(429);
      expect(coolingForMs).toBeLessThanOrEqual(CAP_MS);
      expect(again.status).toBe(429);
    },
  );
});

describe("a response with a Retry-After of 1 MB, which some clients accept", () => {
  it.each(["9", " ", "z"])("made of %j, stops calls for at most the cap", async (letter) => {
    const bucket = sluices.open().bucket("b", { rate: "1000/s", maxCooldownMs: CAP_MS });
    const headers = { "retry-after": letter.repeat(1_000_000) };
    const call = bucket.throttled(async () => ({ status: 429, headers }));

    await call();
    const { coolingForMs } = await bucket.peek();

    expect(coolingForMs).toBeLessThanOrEqual(CAP_MS);
    await expect(call()).resolves.toMatchObject({ status: 429 });
  });
});
