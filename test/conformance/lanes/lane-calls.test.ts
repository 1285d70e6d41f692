import { expect, it } from "vitest";
import { createRedisLanes } from "../../../src/stores/redis/queue/store.ts";
import { openLanes, upTo } from "../../support/jobs/open-lanes.ts";

const lanes = openLanes();

it("lanes-look counts the calls that jobs cost, by a sample of the first jobs of a long lane", async () => {
  const { queue } = lanes.open({ rate: "100/s", burst: 10 });
  await queue.enqueueMany(upTo(10), { key: "a", cost: 3 });
  const [, last] = await queue.enqueueMany(upTo(2), { key: "a" });
  await queue.enqueue(0, { key: "b", cost: 5 });
  await queue.enqueueMany(upTo(4), { cost: 2 });
  const keyless = await queue.enqueue(0);
  const store = createRedisLanes(lanes.redis, lanes.prefix);

  const all = await store.look({ queue: "jobs", id: last!.id, counted: 100 });
  const few = await store.look({ queue: "jobs", id: last!.id, counted: 4 });
  const beyond = await store.look({ queue: "jobs", id: keyless.id, counted: 2 });

  expect(all.lanes.map(({ key, calls }) => [key, calls])).toEqual([
    ["a", 32],
    ["b", 5],
  ]);
  expect(all.jobPosition).toEqual({ in: "lane", key: "a", before: 11, callsBefore: 31 });
  expect(all.lanelessCalls).toBe(9);
  expect(few.lanes.map(({ calls }) => calls)).toEqual([36, 5]);
  expect(few.jobPosition).toMatchObject({ callsBefore: 33 });
  expect(beyond.jobPosition).toEqual({ in: "queue", before: 4, callsBefore: 8 });
  expect(beyond.lanelessCalls).toBe(10);
});
