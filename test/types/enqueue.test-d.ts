import { expectTypeOf, test } from "vitest";
import * as z from "zod";
import {
  createSluice,
  type EnqueueOptions,
  type FromJson,
  type Job,
  type Queue,
  type QueuedJob,
} from "sluice";

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

test("the data of a job is what JSON gives back", () => {
  interface Order {
    readonly id: number;
    readonly at: Date;
    readonly note?: string | undefined;
    readonly lines: readonly { readonly sent: Date | null; readonly of?: Order }[];
    readonly total: { toJSON(): { readonly cents: number } };
    readonly seen: ReadonlyMap<string, number>;
    readonly more: unknown;
    onDone(): void;
  }
  interface Stored {
    readonly id: number;
    readonly at: string;
    readonly note?: string | undefined;
    readonly lines: readonly { readonly sent: string | null; readonly of?: Stored }[];
    readonly total: { readonly cents: number };
    readonly seen: Record<string, never>;
    readonly more: unknown;
    readonly onDone: undefined;
  }
  const sluice = createSluice();
  const bucket = sluice.bucket("a", { rate: "1/s" });
  const orders = sluice.queue<Order>("orders", { bucket });

  expectTypeOf<FromJson<Order>>().toExtend<Stored>();
  expectTypeOf<Parameters<typeof orders.enqueue>[0]>().toEqualTypeOf<Order>();
  sluice.worker(orders, ({ data }) => {
    expectTypeOf(data.at).toEqualTypeOf<string>();
    expectTypeOf(data.total.cents).toEqualTypeOf<number>();
    return data.id;
  });
  // @ts-expect-error: a Date comes back as a text
  sluice.worker(orders, ({ data }) => data.at.getTime());
  expectTypeOf<FromJson<(Date | undefined)[]>>().toEqualTypeOf<(string | null)[]>();
  expectTypeOf<FromJson<[Date, 1]>>().toEqualTypeOf<[string, 1]>();
  expectTypeOf<FromJson<bigint>>().toEqualTypeOf<never>();
});

test("data that is JSON keeps its type", () => {
  interface Mail {
    readonly to: string;
    readonly cc?: readonly string[];
  }
  const sluice = createSluice();
  const bucket = sluice.bucket("a", { rate: "1/s" });
  const mails = sluice.queue<Mail, boolean>("mails", { bucket });
  const send = async ({ data }: Job<Mail>): Promise<boolean> => data.to !== "";

  expectTypeOf(mails).toExtend<Queue<Mail, boolean>>();
  sluice.worker(mails, send);
  expectTypeOf(sluice.queue<string>("texts", { bucket })).toEqualTypeOf<Queue<string>>();
  expectTypeOf<FromJson<unknown>>().toEqualTypeOf<unknown>();
});

test("a schema says what the handler gets", () => {
  const sluice = createSluice();
  const bucket = sluice.bucket("a", { rate: "1/s" });
  const schema = z.object({ at: z.coerce.date() });
  const orders = sluice.queue<{ at: Date }, unknown, unknown>("orders", { bucket, schema });

  sluice.worker(orders, ({ data }) => expectTypeOf(data.at).toEqualTypeOf<Date>());
});
