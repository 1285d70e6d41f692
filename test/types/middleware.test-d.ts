import { expectTypeOf, test } from "vitest";
import {
  createSluice,
  type EnqueueCall,
  type EnqueueOptions,
  type HandlerResult,
  type Job,
  type Queue,
  type Worker,
} from "sluice";
import * as z from "zod";

const sluice = createSluice();
const bucket = sluice.bucket("b", { rate: "1/s" });

test("the middleware of a sluice sees data and results of unknown type", () => {
  const remove = sluice.use({
    handler(job, next) {
      expectTypeOf(job).toEqualTypeOf<Job<unknown>>();
      expectTypeOf(next()).toEqualTypeOf<Promise<HandlerResult<unknown>>>();
      return next();
    },
    enqueue(call, next) {
      expectTypeOf(call).toEqualTypeOf<EnqueueCall<unknown>>();
      return next(call.jobs.map(({ data, options }) => ({ data, options: { ...options } })));
    },
  });

  expectTypeOf(remove).toEqualTypeOf<() => void>();
});

test("the middleware of a queue sees what its producers give and what its handlers get", () => {
  const schema = z.object({ at: z.coerce.number() });
  const queue = sluice.queue("q", { bucket, schema });
  queue.use({
    handler: (job, next, { attempt }) => {
      expectTypeOf(job.data).toEqualTypeOf<{ at: number }>();
      expectTypeOf(attempt).toEqualTypeOf<number>();
      return next();
    },
    enqueue: async ({ jobs }, next) => {
      expectTypeOf(jobs[0]!.data).toEqualTypeOf<z.input<typeof schema>>();
      expectTypeOf(jobs[0]!.options).toEqualTypeOf<EnqueueOptions>();
      const [stored] = await next();
      expectTypeOf(stored!.data).toEqualTypeOf<{ at: number }>();
      return [stored!];
    },
  });
});

test("a handler function returns a result of the queue", () => {
  const queue = sluice.queue<string, number>("q", { bucket });

  expectTypeOf(queue.use({ handler: () => 1 })).toEqualTypeOf<() => void>();
  // @ts-expect-error: the results of the queue are numbers
  queue.use({ handler: () => "one" });
  // @ts-expect-error: a worker enqueues no jobs
  sluice.worker(queue, () => 1).use({ enqueue: (_call, next) => next() });
});

test("a queue with any result, and a worker of any data, keep their wider types", () => {
  expectTypeOf<Queue<string, number>>().toExtend<Queue<string>>();
  expectTypeOf<Worker<string, number>>().toExtend<Worker<never>>();
});
