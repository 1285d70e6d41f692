import { expect, it } from "vitest";
import { CannotUndoError } from "../../../src/core/errors.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { createChangeLog } from "../../../src/core/stores/insight/change-log.ts";
import { createMemoryInsight } from "../../../src/stores/memory/memory-insight.ts";
import { deferred } from "../../support/async/deferred.ts";

it("makes a change that cannot be stored in the log, and logs that in the process", async () => {
  const warnings: string[] = [];
  const logger = { warn: (_facts: object, text: string) => void warnings.push(text), error() {} };
  const store = {
    ...createMemoryInsight(),
    noteChange: async () => {
      throw new Error("OOM command not allowed");
    },
  };
  const log = createChangeLog({ store, logger, process: "web-7:1" });
  const change = { queue: "charges", action: "drain", by: "ann" } as const;

  expect(await log.make(change, async () => 5)).toBe(5);

  expect(warnings).toEqual([
    'drain of queue "charges" by ann is made, but is not in the log of changes.',
  ]);
});

it("makes a change while its note is stored, and reports it once the note is stored", async () => {
  const [begun, noted] = [deferred(), deferred()];
  const noteChange = (): Promise<string> => noted.promise.then(() => "1-1");
  const store = { ...createMemoryInsight(), noteChange };
  const log = createChangeLog({ store, logger: console, process: "web-7:1" });
  let isNotified = false;
  const make = async (): Promise<number> => {
    begun.resolve();
    return 5;
  };

  const made = log.make({ queue: "charges", action: "pause" }, make).then((count) => {
    isNotified = true;
    return count;
  });
  await begun.promise;
  const before = isNotified;
  noted.resolve();

  expect([before, await made]).toEqual([false, 5]);
});

it("names the rules file whose change it cannot undo", async () => {
  const store = createMemoryInsight();
  const log = createChangeLog({ store, logger: console, process: "web-7:1" });
  const facts = { policy: "10/s", text: "", source: "rules", pausedForMs: 0 } as const;
  const id = await store.noteChange({
    bucket: "stripe",
    subject: "policy",
    action: "rules",
    by: "rules",
    reason: "team-a.yaml",
    before: facts,
    after: facts,
    key: undefined,
    forMs: undefined,
    undoes: undefined,
  });

  const undoing = log.undo(
    {
      bucket: "stripe",
      see: async () => ({ generation: 1 }),
      inverseOf: async () => ({ reason: "" }),
    },
    { id },
  );

  const refusal = await rejectionOf(undoing);
  expect(refusal).toBeInstanceOf(CannotUndoError);
  expect(String(refusal)).toContain("a rules file (team-a.yaml) made it");
});
