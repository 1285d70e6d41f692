import { afterEach, beforeEach, describe, expect, inject, it } from "vitest";
import { children } from "../../support/children/child.ts";
import { startHangingServer, type HangingServer } from "../../support/servers/hanging-server.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const AT_ONCE = 10;
const CALLS = 12;
const sluices = realSluices();
const processes = children();
let server: HangingServer;
beforeEach(async () => {
  server = await startHangingServer();
});
afterEach(async () => {
  await server.close();
});

const openNow = (): number => [...server.open.values()].reduce((sum, open) => sum + open, 0);

describe("a downstream that hangs", () => {
  it("never gets more calls than the limit of all processes, and a killed process frees its share", async () => {
    const args = [inject("redisUrl"), sluices.prefix(), server.url, String(CALLS)];
    const callers = Array.from({ length: 3 }, () => processes.start("lease-caller.ts", args));
    const areReady = (): boolean => callers.every(({ messages }) => messages.includes("ready"));
    await waitUntil(areReady, "all are ready");
    for (const caller of callers) caller.send("go");
    await waitUntil(() => openNow() === AT_ONCE, "as many hang as may");
    const openOf = (pid: number): number => server.open.get(String(pid)) ?? 0;
    const doomed = callers.find(({ pid }) => openOf(pid) > 0)!;
    const living = callers.filter((caller) => caller !== doomed);
    const held = openOf(doomed.pid);

    const killedMs = performance.now();
    doomed.signal("SIGKILL");
    await waitUntil(() => openOf(doomed.pid) === 0, "its calls are gone");
    await waitUntil(() => openNow() === AT_ONCE, "others have its leases");
    const backMs = performance.now() - killedMs;
    const calls = server.came;
    server.release();
    const codes = await Promise.all(living.map(({ ended }) => ended));

    reportFigures("the downstream hangs, a process dies", {
      recoveryMs: backMs,
      extra: server.most - AT_ONCE,
      "leases that it held": held,
    });
    expect(server.most).toBe(AT_ONCE);
    expect(calls).toBe(AT_ONCE + held);
    expect(codes).toEqual([0, 0]);
    expect(server.came).toBe(2 * CALLS + held);
  });
});
