import type { ServerResponse } from "node:http";
import { describe, expect, it } from "vitest";
import { anthropic, bedrock, openai, type LlmBucket } from "sluice/llm";
import { fakeApis } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const apis = fakeApis();

const MILLION = 1_000_000;
/** Of its 24 million bytes, none ends an event or is one of a frame's. */
const FILL = Buffer.alloc(24 * MILLION, "x");

/** The beginning of a frame that says it has so many bytes. */
function frameOf(bytes: number): Buffer {
  const prelude = Buffer.alloc(12);
  prelude.writeUInt32BE(bytes);
  return prelude;
}

const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
const whole = Buffer.from(`{"usage":${JSON.stringify(usage)},"text":"`);
const message = JSON.stringify({ type: "message_start", message: { usage: { input_tokens: 1 } } });

describe("a response that is too long to be searched for a usage", () => {
  it.each<[string, LlmBucket, string, Buffer, string]>([
    [
      "a whole one",
      openai({ tokens: "2000/h", counts: "used" }),
      "application/json",
      whole,
      "an answer",
    ],
    [
      "an event of a stream",
      anthropic({ input: "2000/h" }),
      "text/event-stream",
      Buffer.from(`data: ${message}\n\ndata: `),
      "an event of an answer",
    ],
    [
      "a frame of Bedrock's",
      bedrock({ tokens: "2000/h" }),
      "application/vnd.amazon.eventstream",
      frameOf(25 * MILLION),
      "an event of an answer",
    ],
  ])(
    "is returned whole, and released from memory while it arrives: %s",
    async (_what, preset, type, head, what) => {
      let answering: ServerResponse | undefined;
      const api = await apis.start(() => ({
        headers: { "content-type": type },
        stream(response) {
          answering = response;
          response.write(head);
          response.write(FILL);
        },
      }));
      const warnings: string[] = [];
      const note = (_facts: object, text: string): void => void warnings.push(text);
      const nothing = (): void => {};
      const logger = { debug: nothing, info: nothing, warn: note, error: note };
      const bucket = sluices.open({ logger }).bucket("model", preset);
      const request = {
        model: "m",
        max_tokens: 100,
        messages: [{ role: "user", content: "Sing." }],
      };
      const before = preset.estimate(request);

      const response = await bucket.fetch(api.url, {
        method: "POST",
        body: JSON.stringify(request),
      });
      const reading = response.arrayBuffer();
      await waitUntil(() => warnings.length > 0, "the log says that the usage is not read");
      // So it was said before the answer was over.
      answering!.end("}");
      const bytes = Buffer.from(await reading);

      expect(bytes.length).toBe(head.length + FILL.length + 1);
      expect(bytes.subarray(0, head.length).equals(head)).toBe(true);
      expect(warnings).toEqual([
        `settle() failed; the estimate of bucket "model" stays: TooLong: the usage is not read from ${what} of more than 20000000 bytes`,
      ]);
      const levels = (await bucket.peek()).limits.map(({ unit, level }) => [unit, level] as const);
      for (const [unit, amount] of Object.entries(before as Record<string, number>)) {
        const level = levels.findLast(([name]) => name === unit)![1];
        expect(level).toBeGreaterThan(amount - 10);
      }
    },
  );
});
