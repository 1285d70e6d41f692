import { Redis } from "ioredis";
import OpenAI from "openai";
import Stripe from "stripe";
import { describe, expect, it } from "vitest";
import { CallError } from "../../../workers/shared/call.ts";
import { secretsOf } from "../../../workers/shared/settings.ts";
import { createWorkerLog } from "../../../workers/shared/log.ts";

const KEY = "sk_test_0123456789";
const HEADERS = { authorization: `Bearer ${KEY}`, cookie: KEY };

/** What a log with these secrets writes of some objects. */
function written(secrets: readonly string[], ...values: readonly object[]): string {
  let text = "";
  const log = createWorkerLog("trace", secrets, { write: (line) => void (text += line) });
  for (const value of values) log.info(value, "Told.");
  return text;
}

function commandError(): Error {
  const command = { name: "set", args: ["key", KEY] };
  return Object.assign(new Error("READONLY"), { command });
}

describe("the log of a worker", () => {
  it.each([
    ["a client of OpenAI", { client: new OpenAI({ apiKey: KEY }) }],
    ["a client of Stripe", { client: new Stripe(KEY) }],
    [
      "an error of OpenAI",
      { error: new OpenAI.AuthenticationError(401, { KEY }, KEY, new Headers(HEADERS)) },
    ],
    [
      "an error of Stripe",
      {
        err: new Stripe.errors.StripeAuthenticationError({
          message: KEY,
          type: "api_error",
          headers: HEADERS,
        }),
      },
    ],
    ["an error of Redis, with its command", { error: commandError() }],
    ["an error of a call", { error: new CallError(`refused ${KEY}`, { headers: HEADERS }) }],
    ["a client of Redis", { client: new Redis({ password: KEY, lazyConnect: true }).options }],
    ["what fetch is given", { init: { headers: HEADERS } }],
    ["a message", { msg: `the key is ${KEY}` }],
  ])("does not show the key that is in %s", (_what, value) => {
    const text = written([KEY], value);

    // Not by toContain: that would print all that there is of a client.
    expect(text.includes("level")).toBe(true);
    expect(text.includes("0123456789")).toBe(false);
  });

  it("does not show fields that hold keys, whatever these are", () => {
    const text = written(
      [],
      { apiKey: "secret" },
      { request: { headers: { authorization: "secret" } } },
      { client: new OpenAI({ apiKey: "secret" }) },
      { options: new Redis({ password: "secret", lazyConnect: true }).options },
    );

    expect(text).toContain("[redacted]");
    expect(text).not.toContain("secret");
  });

  it("keeps what an error says, and where it came from", () => {
    const text = written([KEY], { error: new CallError("was answered 500") });

    expect(text).toContain("was answered 500");
    expect(text).toContain("worker-log.test.ts");
  });

  it("knows passwords within addresses as secrets, also as they are written there", () => {
    const variables = {
      redis: { name: "REDIS_URL", as: undefined as never, isSecret: true },
      queue: { name: "QUEUE", as: undefined as never },
    };
    const url = "redis://me:p%40ssword@localhost";

    const secrets = secretsOf({ REDIS_URL: url, QUEUE: "jobs" }, variables);

    expect(secrets).toEqual([url, "p%40ssword", "p@ssword"]);
  });
});
