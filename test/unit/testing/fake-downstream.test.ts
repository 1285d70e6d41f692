import { once } from "node:events";
import { request } from "node:http";
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

  it("logs nothing of a caller that hangs up in the middle of its request", async () => {
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
