import { describe, expect, it } from "vitest";
import { estimateTokens } from "../../../workers/llm/queue.ts";

function asked(content: unknown, more: object = {}): number {
  return estimateTokens({ model: "m", messages: [{ role: "user", content }], ...more });
}

describe("estimateTokens", () => {
  it("takes a quarter of the prompt's characters, and max_tokens for the answer", () => {
    expect(asked("a".repeat(401), { max_tokens: 200 })).toBe(101 + 200);
  });

  it("takes the newer name of max_tokens, and 500 when the answer's length is open", () => {
    expect(asked("four", { max_completion_tokens: 7 })).toBe(1 + 7);
    expect(asked("four")).toBe(1 + 500);
  });

  it("counts the texts of all messages, and 1,000 for each picture", () => {
    const picture = { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } };
    const messages = [
      { role: "system", content: "four" },
      { role: "user", content: [{ type: "text", text: "four" }, picture] },
      { role: "assistant" },
    ];

    expect(estimateTokens({ model: "m", messages, max_tokens: 0 })).toBe(2 + 1_000);
  });

  it("counts the tools that the model is told of", () => {
    const tools = [{ type: "function", function: { name: "look_up" } }];

    expect(asked("", { tools, max_tokens: 0 })).toBe(Math.ceil(JSON.stringify(tools).length / 4));
  });
});
