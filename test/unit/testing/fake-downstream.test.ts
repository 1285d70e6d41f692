import { once } from "node:events";
import { request } from "node:http";
import { describe, expect, it } from "vitest";
import { useDownstream } from "../../support/servers/use-downstream.ts";

const BODY = "x".repeat(100_000);

describe.each([
  { keepBodies: undefined, kept: BODY },
  { keepBodies: false, kept: "" },
])("a fake downstream with keepBodies $keepBodies", ({ keepBodies, kept }) => {
  const downstream = useDownstream({ keepBodies });

  it("logs a call once all of it has arrived, and answers it", async () => {
    const { status } = await fetch(downstream.url, { method: "POST", body: BODY });

    expect(status).toBe(200);
    expect(downstream.arrivals.map(({ body }) => body)).toEqual([kept]);
  });

  it("logs nothing of a caller that disconnects in the middle of its request", async () => {
    const headers = { expect: "100-continue", "content-length": 9 };
    const half = request(`${downstream.url}/half`, { method: "POST", headers });
    half.on("error", () => undefined);
    half.flushHeaders();
    // The downstream has read the head now.
    await once(half, "continue");

    half.destroy();
    await fetch(`${downstream.url}/whole`);

    expect(downstream.arrivals.map(({ path }) => path)).toEqual(["/whole"]);
  });
});

describe("a fake downstream with a cap of two calls a second", () => {
  // All calls are within its second, however slow the machine is.
  let lateMs = -Infinity;
  const downstream = useDownstream({ maxPerSecond: 2, seenLateMs: () => lateMs });
  const statusOfNext = async (): Promise<number> => (await fetch(downstream.url)).status;

  it("refuses a third, unless it may have seen it late by a second", async () => {
    const first = [await statusOfNext(), await statusOfNext(), await statusOfNext()];
    lateMs = 1_000;
    const then = await statusOfNext();

    expect(first).toEqual([200, 200, 429]);
    expect(then).toBe(200);
  });
});

describe("a fake downstream that answers by itself", () => {
  const downstream = useDownstream({
    answer({ path }) {
      if (path === "/busy") return { status: 429, headers: { "retry-after": "7" } };
      return path === "/" ? { status: 200, body: "hello" } : 404;
    },
  });
  const ask = (path: string): Promise<Response> => fetch(`${downstream.url}${path}`);

  it("sends the configured status, headers and body", async () => {
    const [hello, busy, none] = [await ask("/"), await ask("/busy"), await ask("/none")];

    expect([hello.status, await hello.text()]).toEqual([200, "hello"]);
    expect([busy.status, busy.headers.get("retry-after")]).toEqual([429, "7"]);
    expect([none.status, await none.text()]).toEqual([404, ""]);
    expect(downstream.arrivals.map(({ status }) => status)).toEqual([200, 429, 404]);
    expect(downstream.refused).toBe(1);
  });
});
