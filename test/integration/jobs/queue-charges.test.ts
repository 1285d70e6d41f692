import { describe, expect, it } from "vitest";
import {
  concurrency,
  fixedWindow,
  leakyBucket,
  throttledClient,
  type Bucket,
  type BucketOptions,
  type DrawOptions,
  type EnqueueOptions,
} from "sluice";
import { worstWindow } from "sluice/testing";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";

const sluices = realSluices();

/** Windows show exactly what is booked; hardly ever does one end in a test. */
const COUNTED = [fixedWindow(500, "1d"), fixedWindow(100_000, "1d", { unit: "tokens" })];

type Send = () => Promise<unknown>;

/** Each way in which a handler can call through its bucket. */
const WAYS: [
  string,
  (bucket: Bucket, call: DrawOptions, send: (url?: string) => Promise<Response>) => Send,
][] = [
  ["a throttled function", (bucket, call, send) => bucket.throttled(() => send(), call)],
  [
    "a throttled function with options",
    (bucket, call, send) => {
      const paced = bucket.throttled(() => send());
      return () => paced.with(call)();
    },
  ],
  [
    "a throttled client",
    (bucket, call, send) => {
      const client = throttledClient({ chats: { create: async () => send() } }, bucket, call);
      return () => client.chats.create();
    },
  ],
  [
    "a drawn slot",
    (bucket, call, send) => async () => {
      const slot = await bucket.draw(call);
      await send();
      slot.release();
    },
  ],
];

interface Work {
  readonly policy: BucketOptions;
  readonly jobs: number;
  readonly job?: EnqueueOptions;
  readonly handle: (bucket: Bucket) => Send;
}

/** Runs jobs to their ends; resolves with what is booked under each limit then. */
async function work({ policy, jobs, job, handle }: Work): Promise<number[]> {
  const sluice = sluices.open();
  const bucket = sluice.bucket("downstream", policy);
  const queue = sluice.queue<number>("jobs", { bucket });
  const run = handle(bucket);
  const data = Array.from({ length: jobs }, (_, number) => number);
  const handles = await Promise.all(data.map((each) => queue.enqueue(each, job)));
  sluice.worker(queue, async () => void (await run()));
  await Promise.all(handles.map((each) => each.finished()));
  const { limits } = await bucket.peek({ key: job?.key });
  return limits.map(({ capacity, remaining }) => capacity - remaining);
}

describe.each(WAYS)("jobs whose handlers call by %s", (_way, wayOf) => {
  const downstream = useDownstream();
  const handleWith =
    (call: DrawOptions) =>
    (bucket: Bucket): Send =>
      wayOf(bucket, call, () => fetch(downstream.url));

  it.each<[string, EnqueueOptions, DrawOptions, number[]]>([
    ["that name nothing", {}, {}, [5, 0]],
    ["whose calls alone cost tokens", {}, { cost: { tokens: 800 } }, [5, 4_000]],
    ["of the same cost", { cost: { tokens: 500 } }, { cost: { tokens: 500 } }, [5, 2_500]],
    ["whose calls cost less", { cost: { tokens: 500 } }, { cost: { tokens: 100 } }, [5, 500]],
    ["whose calls have keys", {}, { key: "acme", priority: "critical" }, [5, 0]],
  ])("are charged once: %s", async (_which, job, call, expected) => {
    const booked = await work({
      policy: { limits: COUNTED },
      jobs: 5,
      job,
      handle: handleWith(call),
    });

    expect(booked).toEqual(expected);
    expect(downstream.arrivals).toHaveLength(5);
  });

  it.each<[string, BucketOptions, EnqueueOptions, DrawOptions]>([
    ["a cost", { concurrency: 1 }, {}, { cost: { tokens: 10 } }],
    ["a key", { concurrency: 1, perKey: { rate: "500/s" } }, {}, { key: "b" }],
    [
      "another key",
      { concurrency: 1, perKey: { rate: "500/s", concurrency: 1 } },
      { key: "a" },
      { key: "b" },
    ],
  ])(
    "never wait for a second lease where their calls name %s",
    async (_which, policy, job, call) => {
      const [calls] = await work({
        policy: { limits: [...COUNTED, concurrency(1)], perKey: policy.perKey },
        jobs: 20,
        job,
        handle: handleWith(call),
      });

      expect(calls).toBe(20);
      expect(downstream.arrivals).toHaveLength(20);
    },
  );
});

describe("jobs whose handlers call by fetch", () => {
  let refusals = 0;
  const downstream = useDownstream({
    answer: () => (refusals-- > 0 ? { status: 429, headers: { "retry-after-ms": "20" } } : 200),
  });
  const byFetch = (call: DrawOptions) => (bucket: Bucket) => async () => {
    const answer = await bucket.fetch.with(call)(downstream.url);
    await answer.text();
  };

  it.each<[string, number, EnqueueOptions, DrawOptions, number[]]>([
    ["that names nothing", 0, {}, {}, [5, 0]],
    ["whose calls cost tokens", 0, {}, { cost: { tokens: 800 } }, [5, 4_000]],
    ["of one cost", 0, { cost: { tokens: 500 } }, { cost: { tokens: 500 } }, [5, 2_500]],
    ["whose first try is refused", 1, {}, { cost: { tokens: 800 } }, [6, 4_000]],
  ])("are charged once for each request: %s", async (_which, refused, job, call, expected) => {
    refusals = refused;

    const booked = await work({ policy: { limits: COUNTED }, jobs: 5, job, handle: byFetch(call) });

    expect(booked).toEqual(expected);
    expect(downstream.arrivals).toHaveLength(5 + refused);
  });
});

describe("jobs without a cost, whose calls cost tokens,", () => {
  const downstream = useDownstream();

  it("reach the downstream no faster than the tokens allow", async () => {
    const limits = [
      leakyBucket("500/s"),
      leakyBucket("1000/s", { unit: "tokens", burst: 200 }),
      concurrency(8),
    ];
    await work({
      policy: { limits },
      jobs: 20,
      handle: (bucket) => bucket.throttled(() => fetch(downstream.url), { cost: { tokens: 100 } }),
    });

    const times = downstream.arrivals.map(({ atMs }) => atMs);
    // A burst of two, one for each 100 ms, and one more for the timers and the network.
    expect(worstWindow(times, 1_000)).toBeLessThanOrEqual(13);
  });
});
