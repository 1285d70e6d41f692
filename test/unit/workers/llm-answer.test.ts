import { describe, expect, it } from "vitest";
import { CallError } from "../../../workers/shared/call.ts";
import { readStreamedAnswer } from "../../../workers/llm/answer.ts";

const SNOW = '{"choices":[{"delta":{"content":"☃ "}}]}';
const STOP = '{"choices":[{"delta":{"content":"snow"},"finish_reason":"stop"}]}';
const WHOLE = { text: "☃ snow", finishReason: "stop", totalTokens: undefined };

/** What is read of a stream that comes in these chunks. */
function read(chunks: readonly Uint8Array[]): ReturnType<typeof readStreamedAnswer> {
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });
  return readStreamedAnswer(new Response(body), () => {});
}

describe("readStreamedAnswer", () => {
  it.each([
    ["line feeds", `data: ${SNOW}\n\ndata: ${STOP}\n\n`],
    ["carriage returns with line feeds", `data: ${SNOW}\r\n\r\ndata: ${STOP}\r\n\r\n`],
    ["carriage returns", `data: ${SNOW}\r\rdata: ${STOP}\r\r`],
    ["comments, names and ids", `: hi\nevent: x\ndata:${SNOW}\nid: 7\n\n:\n\ndata: ${STOP}\n\n`],
    ["a piece on several lines", `data: ${SNOW}\n\ndata: {\ndata: ${STOP.slice(1)}\n\n`],
    ["no empty line at the end", `data: ${SNOW}\n\ndata: ${STOP}`],
    ["an end of its own", `data: ${SNOW}\n\ndata: ${STOP}\n\ndata: [DONE]\n\ndata: no JSON\n\n`],
  ])("reads events with %s, wherever the stream is cut", async (_how, text) => {
    const bytes = Buffer.from(text);
    const cuts = Array.from({ length: bytes.length }, (_, cut) => cut);

    const found = await Promise.all(
      cuts.map((cut) => read([bytes.subarray(0, cut), bytes.subarray(cut)])),
    );

    expect(found).toEqual(cuts.map(() => WHOLE));
  });

  it("gives the text so far with each piece, before the stream ends", async () => {
    const texts: string[] = [];
    const body = new ReadableStream<Uint8Array>(
      {
        pull(controller) {
          // The second piece comes only when the first has been read.
          controller.enqueue(Buffer.from(`data: ${texts.length === 0 ? SNOW : STOP}\n\n`));
          if (texts.length > 0) controller.close();
        },
      },
      { highWaterMark: 0 },
    );

    await readStreamedAnswer(new Response(body), (text) => texts.push(text));

    expect(texts).toEqual(["☃ ", "☃ snow"]);
  });

  it("refuses a stream that breaks off", async () => {
    await expect(read([Buffer.from(`data: ${SNOW}\n\n`)])).rejects.toThrow(CallError);
  });
});
