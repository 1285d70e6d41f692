import { expect, it } from "vitest";
import { createSteeringLog } from "../../../src/core/stores/insight/steering-log.ts";
import { createMemoryInsight } from "../../../src/memory/memory-insight.ts";

it("makes a change that cannot be noted, and says so in the log of the process", async () => {
  const warnings: string[] = [];
  const logger = { warn: (_facts: object, text: string) => void warnings.push(text), error() {} };
  const store = {
    ...createMemoryInsight(),
    noteSteering: async () => {
      throw new Error("OOM command not allowed");
    },
  };
  const log = createSteeringLog({ store, logger, process: "web-7:1" });
  const change = { queue: "charges", action: "drain", by: "ann" } as const;

  expect(await log.make(change, async () => 5)).toBe(5);

  expect(warnings).toEqual([
    'drain of queue "charges" by ann is made, but is not in the log of changes.',
  ]);
});
