import { describe, expect, it, onTestFinished } from "vitest";
import { budget, createSluice, InvalidOptionError } from "sluice";
import { openai, priceOf, type PriceTable } from "sluice/llm";

const table: PriceTable = {
  "gpt-5": {
    input: 1,
    output: 10,
    cacheRead: 0.1,
    cacheWrite: 2,
    batch: 0.5,
    longContext: { over: 200_000, input: 2, output: 20 },
  },
  "gpt-5-mini": { input: 0.2, output: 2 },
};
const usage = { input: 1_000, output: 100 };

describe("priceOf()", () => {
  it.each([
    ["input and output", "gpt-5", usage, 0.002],
    ["cache reads and writes", "gpt-5", { input: 0, cacheRead: 1_000, cacheWrite: 500 }, 0.0011],
    ["a long prompt, with its cached part", "gpt-5", { input: 1, cacheRead: 200_000 }, 0.400002],
    ["a model without a price of cache reads", "gpt-5-mini", { cacheRead: 1_000 }, 0.0002],
    ["a model with a date", "gpt-5-2026-01-01", usage, 0.002],
    ["the longest name that matches", "gpt-5-mini-2026-01-01", usage, 0.0004],
  ])("prices %s", (_what, model, used, usd) => {
    expect(priceOf(table)({ model, usage: used })["usd"]).toBeCloseTo(usd, 12);
  });

  it("prices batches, and other units and models", () => {
    const price = priceOf({ ...table, "*": { input: 5, output: 5 } }, { unit: "eur", batch: true });

    expect(price({ model: "gpt-5", usage })).toEqual({ eur: 0.001 });
    expect(price({ model: "unknown", usage })).toEqual({ eur: 0.0055 });
  });

  it("refuses unknown models and prices that can never be", () => {
    expect(() => priceOf(table)({ model: "gpt-50", usage })).toThrow(InvalidOptionError);
    expect(() => priceOf({ a: { input: -1, output: 1 } })).toThrow(/input/);
    expect(() => priceOf({ a: { input: 1, output: 1, cached: 1 } as never })).toThrow(/cached/);
  });
});

it("a preset with prices reserves the usual price, and settles that of the answer", async () => {
  const sluice = createSluice({ redis: "memory", logger: { warn() {}, error() {} } });
  onTestFinished(() => sluice.close());
  const preset = openai({ tokens: "100000/min", price: priceOf(table) });
  const limits = [...preset.limits, budget({ unit: "usd", amount: 1, per: "month" })];
  const bucket = sluice.bucket("gpt", { ...preset, limits });
  let reserved = 0;
  const complete = bucket.throttled(async (_request: object) => {
    reserved = (await bucket.budgets())[0]!.reserved;
    return { usage: { prompt_tokens: 1_000, completion_tokens: 100 } };
  });

  await complete({
    model: "gpt-5",
    max_tokens: 30_000,
    messages: [{ role: "user", content: "Hello" }],
  });

  // Not the 0.3 of the longest answer that the request allows.
  expect(reserved).toBeGreaterThan(0.009);
  expect(reserved).toBeLessThan(0.02);
  await expect
    .poll(async () => (await bucket.budgets())[0])
    .toMatchObject({ spent: 0.002, reserved: 0 });
});
