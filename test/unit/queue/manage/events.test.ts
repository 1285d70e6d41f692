import { describe, expect, it } from "vitest";
import { EVENT_NAMES, EVENT_READERS } from "../../../../src/queue/manage/events.ts";

describe("the events of a queue", () => {
  it.each([
    ["waiting", { jobId: "1", prev: "delayed" }, { jobId: "1" }],
    ["active", { jobId: "1", prev: "waiting" }, { jobId: "1" }],
    ["delayed", { jobId: "1", delay: 1_790_000_000_000 }, { jobId: "1", atMs: 1_790_000_000_000 }],
    ["done", { jobId: "1", returnvalue: { sum: 7 } }, { jobId: "1", result: { sum: 7 } }],
    ["failed", { jobId: "1", failedReason: "no" }, { jobId: "1", reason: "no" }],
    [
      "retrying",
      { jobId: "1", attempt: "2", reason: "no" },
      { jobId: "1", attempt: 2, reason: "no" },
    ],
    ["progress", { jobId: "1", data: 50 }, { jobId: "1", progress: 50 }],
    ["stalled", { jobId: "1" }, { jobId: "1" }],
    ["removed", { jobId: "1", prev: "failed" }, { jobId: "1" }],
  ] as const)("reads %s from what BullMQ stores", (name, stored, event) => {
    expect(EVENT_READERS[name].read(stored)).toEqual(event);
  });

  it("have each a name of BullMQ's of its own", () => {
    const stored = EVENT_NAMES.map((name) => EVENT_READERS[name].stored);

    expect(new Set(stored).size).toBe(EVENT_NAMES.length);
  });
});
