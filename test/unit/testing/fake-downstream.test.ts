import { describe, expect, it } from "vitest";
import { useDownstream } from "../../support/use-downstream.ts";

const BODY = "x".repeat(100_000);

describe.each([
  { keepBodies: undefined, kept: BODY },
  { keepBodies: false, kept: "" },
])("a fake downstream with keepBodies $keepBodies", ({ keepBodies, kept }) => {
  const downstream = useDownstream({ keepBodies });

  it("logs a call when all of it has come, and answers it", async () => {
    const { status } = await fetch(downstream.url, { method: "POST", body: BODY });

    expect(status).toBe(200);
    expect(downstream.arrivals.map(({ body }) => body)).toEqual([kept]);
  });

  it("logs nothing of a caller that hangs up", async () => {
    const stop = new AbortController();
    const body = new ReadableStream({
      start: (chunks) => chunks.enqueue("half"),
      pull: () => stop.abort(),
    });
    const call = fetch(downstream.url, {
      method: "POST",
      body: body.pipeThrough(new TextEncoderStream()),
      duplex: "half",
      signal: stop.signal,
    });
    await expect(call).rejects.toThrow("aborted");
    await fetch(downstream.url);

    expect(downstream.arrivals.map(({ path }) => path)).toEqual(["/"]);
  });
});
