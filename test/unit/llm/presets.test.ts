import { describe, expect, it } from "vitest";
import { countTokens } from "gpt-tokenizer";
import { createSluice, InvalidOptionError, type Sluice } from "sluice";
import { anthropic, azure, bedrock, estimateTokens, gemini, openai } from "sluice/llm";
import { fakeTimers } from "../../support/async/fake-timers.ts";
import { createTestBucket } from "../../support/draws/test-bucket.ts";

const logger = { warn() {}, error() {} };
const presets = { anthropic, azure, bedrock, gemini, openai };

describe("a preset", () => {
  it.each(Object.entries(presets))(
    "of %s is accepted by a bucket, also when declared twice",
    async (_name, preset) => {
      await using sluice: Sluice = createSluice({ logger });

      const bucket = sluice.bucket("model", preset({ requests: "600/min" }));

      expect(sluice.bucket("model", preset({ requests: "600/min" }))).toBe(bucket);
      const more = { ...preset({ requests: "60/min" }), concurrency: 5 };
      expect(sluice.bucket("other", more).name).toBe("other");
    },
  );

  it.each<[string, keyof typeof presets, object, string]>([
    ["no limit at all", "openai", {}, "requests"],
    ["an unknown option", "openai", { requests: "1/s", tokensPerMinute: 5 }, "tokensPerMinute"],
    ["the option of another provider", "anthropic", { requests: "1/s", tokens: "5/min" }, "tokens"],
    ["the option of another provider", "gemini", { input: "5/min", output: "5/min" }, "output"],
    ["a rate that is none", "openai", { tokens: "many" }, "tokens"],
    ["a number for a rate", "bedrock", { tokens: 200_000 }, "tokens"],
    ["a day of nothing", "openai", { requestsPerDay: 0 }, "requestsPerDay"],
    ["a rate for a day", "gemini", { requestsPerDay: "100/d" }, "requestsPerDay"],
    ["too much headroom", "azure", { requests: "1/s", headroom: 0.6 }, "headroom"],
    ["a negative headroom", "azure", { requests: "1/s", headroom: -0.1 }, "headroom"],
    ["no tokenizer", "openai", { tokens: "5/min", tokenizer: "o200k" }, "tokenizer"],
    ["another way to count", "openai", { tokens: "5/min", counts: "all" }, "counts"],
    ["half a token", "bedrock", { tokens: "5/min", burndown: 1.5 }, "burndown"],
    [
      "a word for a choice",
      "anthropic",
      { input: "5/min", countsCacheReads: "yes" },
      "countsCacheReads",
    ],
  ])("refuses %s: of %s, %j", (_what, name, options, option) => {
    const make = (): unknown => presets[name](options as never);

    expect(make).toThrow(InvalidOptionError);
    expect(make).toThrow(`${name}()`);
    expect(make).toThrow(option);
  });

  it("shows limits as they were given", async () => {
    await using sluice: Sluice = createSluice({ logger });
    const options = { requests: "500/min", tokens: "200000/min", requestsPerDay: 10_000 };

    const { limits } = await sluice.bucket("model", openai(options)).peek();

    expect(limits.map(({ name }) => name)).toEqual([
      "500 per 1min",
      "200000 per 1min tokens",
      "at most 200000 per 1min tokens",
      "10000 each 1d",
    ]);
  });

  it.each([
    ["0.03 of it by default", openai, {}, 0.03],
    ["0.045 of Azure's", azure, {}, 0.045],
    ["as much as headroom says", azure, { headroom: 0.2 }, 0.2],
    ["nothing where headroom is 0", gemini, { headroom: 0 }, 0],
  ])("leaves this part of a limit per minute unused: %s", (_what, preset, options, unused) => {
    const [limit] = preset({ requests: "600/min", ...options }).limits;

    const perMin = (limit!.count * 60_000_000) / limit!.periodUs;

    expect(1 - perMin / 600).toBeCloseTo(unused, 4);
  });

  it("uses whole days, which end at the provider's midnight", () => {
    const { limits } = gemini({ requestsPerDay: 250 });

    expect(limits).toMatchObject([
      { count: 250, align: { at: "00:00", timeZone: "America/Los_Angeles" } },
    ]);
    expect(openai({ tokensPerDay: 5_000_000 }).limits).toMatchObject([
      { count: 5_000_000, unit: "tokens", align: { timeZone: "UTC" } },
    ]);
  });

  it("accepts the largest limits of providers", () => {
    for (const tokens of ["150000000/min", "1000000000/min", "9000000/h", "1000000/d"]) {
      expect(openai({ tokens }).limits).toHaveLength(1);
    }
  });
});

describe("the tokens of a bucket", () => {
  const advance = fakeTimers({ leavesNone: true });

  it("are never more than the limit in 61 s, and a quarter may start at once", async () => {
    const { bucket } = createTestBucket(openai({ tokens: "1000000/min" }));
    await bucket.draw();
    await advance(300_000);
    const atMs: number[] = [];
    const calls = Array.from({ length: 250 }, async () => {
      const slot = await bucket.draw({ cost: { tokens: 10_000 } });
      atMs.push(slot.atMs);
    });

    await advance(160_000);
    await Promise.all(calls);

    const taken = (fromMs: number, forMs: number): number =>
      atMs.filter((each) => each >= fromMs && each < fromMs + forMs).length * 10_000;
    expect(Math.max(...atMs.map((each) => taken(each, 61_000)))).toBe(1_000_000);
    expect(taken(atMs[0]!, 1)).toBe(250_000);
    await bucket.close();
  });
});

describe("the estimate of a request", () => {
  const messages = [{ role: "user", content: "Why is the sky blue?" }];

  it("equals what each provider counts when the request arrives", () => {
    const options = { tokens: "100000/min", tokenizer: countTokens };
    const request = { model: "m", messages, max_tokens: 200 };
    // Six words and a sign, four tokens of form.
    const prompt = countTokens("Why is the sky blue?") + 4;

    expect(openai(options).estimate(request)).toEqual({ tokens: 200 });
    expect(openai({ ...options, counts: "used" }).estimate(request)).toEqual({
      tokens: prompt + 200,
    });
    expect(azure(options).estimate({ ...request, best_of: 3 })).toEqual({ tokens: prompt + 600 });
    const apart = { input: "1000/min", output: "1000/min", tokenizer: countTokens };
    expect(anthropic(apart).estimate(request)).toEqual({ input: prompt, output: 200 });
    const { output: _output, ...input } = apart;
    const contents = [{ role: "user", parts: [{ text: "Why is the sky blue?" }] }];
    expect(gemini(input).estimate({ model: "m", contents })).toEqual({ input: prompt });
    const converse = {
      modelId: "m",
      messages: [{ role: "user", content: [{ text: "Why is the sky blue?" }] }],
      inferenceConfig: { maxTokens: 70 },
    };
    expect(bedrock(options).estimate(converse)).toEqual({ tokens: prompt + 70 });
  });

  it("has no tokens for a request without a model, and no answer for embeddings", () => {
    const { estimate } = openai({ tokens: "100000/min", counts: "used" });

    expect(estimate({ limit: 20 })).toBeUndefined();
    expect(estimate({ model: "text-embedding-3-small", input: ["one", "two"] })).toEqual({
      tokens: 2,
    });
  });

  it("draws no more than may start at once, so that an estimate fails no call", () => {
    const { estimate } = anthropic({ input: "40000/min", output: "8000/min" });

    expect(estimate({ model: "m", messages, max_tokens: 64_000 })).toMatchObject({ output: 2_000 });
  });

  it("counts a picture as media, and not by its characters", () => {
    const { estimate } = anthropic({ input: "400000/min" });
    const source = { type: "base64", media_type: "image/png", data: "A".repeat(400_000) };
    const content = [
      { type: "image", source },
      { type: "text", text: "What is it?" },
    ];

    const { input } = estimate({ model: "m", messages: [{ role: "user", content }] }) as {
      input: number;
    };

    expect(input).toBeGreaterThan(900);
    expect(input).toBeLessThan(1_100);
  });

  it("is by characters where the tokenizer throws or returns no number", () => {
    const byCharacters = openai({ tokens: "100000/min" }).estimate({ prompt: "one two" });
    const throwing = (): never => {
      throw new Error("a special token");
    };

    expect(
      openai({ tokens: "100000/min", tokenizer: throwing }).estimate({ prompt: "one two" }),
    ).toEqual(byCharacters);
    expect(
      openai({ tokens: "100000/min", tokenizer: () => Number.NaN }).estimate({ prompt: "one two" }),
    ).toEqual(byCharacters);
  });
});

describe("estimateTokens", () => {
  it.each([
    [
      "English",
      "The lock keeper opens the gate when the water on both sides has come to one level. ",
    ],
    [
      "German",
      "Die Schleuse überwindet Höhenunterschiede, und größere Aufträge blockieren kleinere nicht. ",
    ],
    [
      "French",
      "Les requêtes attendent leur tour et partent à un rythme régulier, même après une pause. ",
    ],
    ["Chinese", "所有副本共享同一个漏桶，请求按顺序等待，并以固定的速率离开。"],
    [
      "code",
      "export function limitsOf(rates: readonly Named[]): readonly Limit[] {\n  return rates;\n}\n",
    ],
    [
      "a table",
      `| ${"limit".padEnd(60)} | default |\n| ${"-".repeat(60)} | ------- |\n| ${"the most calls that wait".padEnd(60)} | 1,000   |\n`,
    ],
  ])("is right for %s within a third, before anything is learned", (_language, sentence) => {
    const text = sentence.repeat(20);

    const ratio = estimateTokens(text) / countTokens(text);

    expect(ratio).toBeGreaterThan(0.67);
    expect(ratio).toBeLessThan(1.34);
  });
});
