import { expectTypeOf, test } from "vitest";
import type { EnqueueOptions, Job, Queue, QueuedJob } from "sluice";

test("enqueue says whether its job is new, and jobOf finds it", () => {
  expectTypeOf<QueuedJob<string>["isNew"]>().toEqualTypeOf<boolean>();
  expectTypeOf<Job<string>>().not.toHaveProperty("isNew");
  expectTypeOf<ReturnType<Queue<string, number>["jobOf"]>>().toEqualTypeOf<
    Promise<QueuedJob<string, number> | undefined>
  >();
});

test("dedupe is one of three words", () => {
  expectTypeOf<{ dedupeId: string; dedupe: "first" }>().toExtend<EnqueueOptions>();
  expectTypeOf<{ dedupeId: string; dedupe: "last" }>().toExtend<EnqueueOptions>();
  expectTypeOf<{ dedupeId: string; dedupe: "again" }>().toExtend<EnqueueOptions>();
  expectTypeOf<{ dedupeId: string; dedupe: "latest" }>().not.toExtend<EnqueueOptions>();
});

test("a recurring job has a dedupeId, and either every or cron", () => {
  expectTypeOf<{ dedupeId: string; every: number }>().toExtend<EnqueueOptions>();
  expectTypeOf<{ dedupeId: string; cron: string; timeZone: string }>().toExtend<EnqueueOptions>();
  expectTypeOf<{ dedupeId: string; every?: number | undefined }>().toExtend<EnqueueOptions>();
  expectTypeOf<{ dedupeId: string; every: number; cron: string }>().not.toExtend<EnqueueOptions>();
  expectTypeOf<{
    dedupeId: string;
    every: number;
    timeZone: string;
  }>().not.toExtend<EnqueueOptions>();
  expectTypeOf<{ every: number }>().not.toExtend<EnqueueOptions>();
  expectTypeOf<{ cron: string }>().not.toExtend<EnqueueOptions>();
});

test("a job has a name, a time limit, and times that are undefined until they come", () => {
  expectTypeOf<Job<string>["name"]>().toEqualTypeOf<string | undefined>();
  expectTypeOf<Job<string>["timeoutMs"]>().toEqualTypeOf<number | undefined>();
  expectTypeOf<Job<string>["dueAtMs"]>().toEqualTypeOf<number>();
  expectTypeOf<Job<string>["startedAtMs"]>().toEqualTypeOf<number | undefined>();
  expectTypeOf<Job<string>["endedAtMs"]>().toEqualTypeOf<number | undefined>();
  expectTypeOf<QueuedJob<string, boolean>["result"]>().toEqualTypeOf<boolean | undefined>();
});
