import { describe, expect, it, onTestFinished, vi } from "vitest";
import type { JobToStore } from "../../../src/queue/enqueue/storing.ts";
import { moveRows, type MoveParts } from "../../../src/queue/outbox/move.ts";

type OutboxQueue = MoveParts["queues"] extends ReadonlyMap<string, infer Found> ? Found : never;

describe("a batch of an outbox", () => {
  it("leaves the rows for which it has no time after 10 s, and stores the others", async () => {
    vi.useFakeTimers({ toFake: ["performance"] });
    onTestFinished(() => void vi.useRealTimers());
    const stored: string[] = [];
    const queue = {
      async check({ id }: { readonly id: string }) {
        vi.advanceTimersByTime(4_000);
        return { row: id } as JobToStore<unknown>;
      },
      async store(jobs: readonly JobToStore<unknown>[]) {
        stored.push(...jobs.map(({ row }) => row!));
      },
    } as unknown as OutboxQueue;
    const rows = ["1", "2", "3", "4", "5"].map((id) => {
      const row = { id, isWebhook: false, target: "jobs", orderKey: undefined };
      return { ...row, json: "1", options: {} };
    });
    const claim = { outbox: "o", untilMs: new Map([["jobs", 20_000]]) };

    const queues = new Map([["jobs", queue]]);
    const { moved, rejected } = await moveRows(rows, claim, { queues, webhooks: undefined });

    expect(stored).toEqual(["1", "2", "3"]);
    expect(moved).toEqual(stored);
    expect(rejected).toEqual([]);
  });
});
