import { describe, expect, it } from "vitest";
import { watchEvents } from "../../../../src/throttle/wrap/fetch.ts";

/** What is reported of a stream of these lines. */
function reportedOf(lines: readonly string[]): readonly unknown[] {
  const reported: unknown[] = [];
  const tap = watchEvents((data) => reported.push(data));
  tap.pass(new TextEncoder().encode(lines.map((line) => `${line}\n`).join("")));
  return reported;
}

describe("an error in a stream of events", () => {
  it.each([
    ["named so", ["event: error", 'data: {"message":"m"}'], { message: "m" }],
    ["of Anthropic", ['data: {"type":"error","error":{}}'], { type: "error", error: {} }],
    [
      "of OpenAI's responses",
      ['data: {"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded"}}}'],
      { type: "response.failed", response: { error: { code: "rate_limit_exceeded" } } },
    ],
    [
      "of OpenRouter",
      ['data: {"id":"gen-1","created":1,"error":{"code":429},"choices":[{"delta":{}}]}'],
      { id: "gen-1", created: 1, error: { code: 429 }, choices: [{ delta: {} }] },
    ],
  ])("is reported, %s", (_whose, lines, expected) => {
    expect(reportedOf(lines)).toEqual([expected]);
  });

  it.each([
    [
      "whose text speaks of one",
      'data: {"id":"1","choices":[{"delta":{"content":"\\"error\\":{"}}]}',
    ],
    ["without one", 'data: {"id":"1","error":null,"choices":[]}'],
    ["that is no JSON", "data: [DONE]"],
  ])("is not seen in an event %s", (_what, line) => {
    expect(reportedOf([line])).toEqual([]);
  });
});
