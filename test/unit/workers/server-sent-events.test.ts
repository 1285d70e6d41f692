import { describe, expect, it } from "vitest";
import { readEvents } from "../../../workers/llm/server-sent-events.ts";

async function read(chunks: readonly (string | Uint8Array)[]): Promise<string[]> {
  async function* body(): AsyncGenerator<Uint8Array> {
    for (const chunk of chunks) yield typeof chunk === "string" ? Buffer.from(chunk) : chunk;
  }
  const events: string[] = [];
  for await (const event of readEvents(body())) events.push(event);
  return events;
}

describe("readEvents", () => {
  it.each([
    ["line feeds", "data: one\n\ndata: two\n\n"],
    ["carriage returns with line feeds", "data: one\r\n\r\ndata: two\r\n\r\n"],
    ["carriage returns", "data: one\r\rdata: two\r\r"],
    ["comments, names and ids between", ": hello\nevent: x\ndata:one\nid: 7\n\n:\n\ndata: two\n\n"],
    ["no empty line at the end", "data: one\n\ndata: two"],
  ])("reads events with %s, wherever the stream is cut", async (_how, text) => {
    const bytes = Buffer.from(text);
    const cuts = Array.from({ length: bytes.length }, (_, cut) => cut);

    const found = await Promise.all(
      cuts.map((cut) => read([bytes.subarray(0, cut), bytes.subarray(cut)])),
    );

    expect(found).toEqual(cuts.map(() => ["one", "two"]));
  });

  it("joins the lines of one event, and keeps characters whole that are cut in two", async () => {
    const bytes = Buffer.from("data: ☃\ndata: snow\n\n");

    const found = await read([bytes.subarray(0, 7), bytes.subarray(7)]);

    expect(found).toEqual(["☃\nsnow"]);
  });
});
