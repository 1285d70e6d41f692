import { countTokens } from "gpt-tokenizer";
import { describe, expect, it } from "vitest";
import { estimateTokens } from "sluice/llm";
import { CORPUS } from "../../support/llm/corpus.ts";

const kinds = Object.entries(CORPUS);

function errorOf(text: string): number {
  return Math.abs(estimateTokens(text) / countTokens(text) - 1);
}

describe("the first estimate of tokens, before anything is learned", () => {
  it("is off by less than 15 % on average over many kinds of text", () => {
    const mean = kinds.reduce((sum, [, text]) => sum + errorOf(text), 0) / kinds.length;

    expect(kinds.length).toBeGreaterThanOrEqual(12);
    expect(mean).toBeLessThan(0.15);
  });

  it.each(kinds)("is off by less than a quarter for %s", (_kind, text) => {
    expect(errorOf(text)).toBeLessThan(0.25);
  });

  it.each(kinds)(
    "is off by less than a third for %s inside of JSON and of quotes",
    (_kind, text) => {
      expect(errorOf(JSON.stringify({ role: "user", content: text }))).toBeLessThan(0.33);
    },
  );

  it.each<[string, string, number]>([
    ["nothing", "", 0],
    ["a word", "lock", 1],
    ["a space", " ", 0],
    ["a thousand line breaks", "\n".repeat(1_000), 63],
  ])("is whole for %s", (_what, text, expected) => {
    expect(estimateTokens(text)).toBe(expected);
  });
});
