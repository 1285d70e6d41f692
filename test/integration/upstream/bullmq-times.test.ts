/** Where BullMQ's scripts get the time, which `src/queue/bullmq/connection.ts` replaces by that of Redis. */
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { createRequire } from "node:module";
import { describe, expect, it } from "vitest";
import { TIME_AT } from "../../../src/queue/bullmq/connection.ts";

const SCRIPTS = join(dirname(createRequire(import.meta.url).resolve("bullmq")), "commands");
const TIME_ARGUMENT = /^\s*ARGV\[(\d+)\]\s+timestamp\s*$/m;
/**
 * Scripts that get another time than the present one: how old jobs are that are removed, and those that are retried;
 * and those that Sluice does not run: of flows, of schedules, of delays and BullMQ's own fetch. New jobs have theirs in a
 * packed argument, from `stored-queue.ts`.
 */
const OTHERS = [
  "addJobScheduler",
  "changeDelay",
  "cleanJobsInSet",
  "moveJobsToWait",
  "moveToActive",
  "moveToWaitingChildren",
  "releaseParentIfNoPendingDependencies",
  "updateJobScheduler",
];

describe("the time in BullMQ's scripts", () => {
  it("lies where Sluice writes that of Redis", () => {
    const found = readdirSync(SCRIPTS)
      .filter((file) => file.endsWith(".lua") && !file.startsWith("relay"))
      .flatMap((file): [string, number][] => {
        const [, script = "", keys] = /^(\w+)-(\d+)\.lua$/.exec(file) ?? [];
        const [, argument] = TIME_ARGUMENT.exec(readFileSync(join(SCRIPTS, file), "utf8")) ?? [];
        if (argument === undefined || OTHERS.includes(script)) return [];
        return [[script, Number(keys) + Number(argument) - 1]];
      });

    expect(Object.fromEntries(found)).toEqual(TIME_AT);
  });
});
