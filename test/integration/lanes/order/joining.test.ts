import { expect, it } from "vitest";
import { orderedWorkers, type Step } from "../../../support/jobs/ordered-workers.ts";
import { waitUntil } from "../../../support/async/wait-until.ts";

const workers = orderedWorkers();
const [PROCESSES, JOBS] = [4, 200];

/** How many jobs that joined earlier begin for the first time after one, at most. */
function mostPassed(steps: readonly Step[]): number {
  const order = new Map<number, number>();
  for (const { name, what } of steps) {
    const number = Number(name);
    if (what === "begin" && !order.has(number)) order.set(number, order.size);
  }
  const passed = [...order].map(
    ([number, at]) => [...order].filter(([other, then]) => other < number && then > at).length,
  );
  return Math.max(...passed);
}

it.each([
  ["that is slower than its workers", { rate: "200/s", concurrency: 5 }],
  ["that has no room at times", { keyRate: "40/s", concurrency: 5 }],
  ["whose workers have many places", { rate: "200/s", concurrency: 20 }],
])(
  "in four processes, jobs of a key %s start ahead of no more earlier ones than workers hold",
  async (_which, settings) => {
    const queue = workers.open(false);
    const policy = { rate: "1000/s", ...settings };
    const data = Array.from({ length: JOBS }, (_, number) => ({ name: `${number}`, takesMs: 20 }));
    await queue.enqueueMany(data, { key: "acme" });

    await workers.start(PROCESSES, false, policy);
    await waitUntil(async () => (await workers.steps()).length >= 2 * JOBS, "all have run");

    const passed = mostPassed(await workers.steps());
    console.log(`${JSON.stringify(settings)}: before ${passed} earlier ones at most`);
    // The worker that begins a job holds it, too.
    expect(passed).toBeLessThan(PROCESSES * settings.concurrency);
  },
);
