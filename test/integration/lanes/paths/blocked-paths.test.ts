import { expect, it } from "vitest";
import type { Key } from "sluice";
import { openLanes, upTo } from "../../../support/jobs/open-lanes.ts";
import { waitUntil } from "../../../support/async/wait-until.ts";

const lanes = openLanes();

it("a tenant at its own limit is skipped as a whole, and others continue", async () => {
  const { sluice, queue } = lanes.open({ rate: "1000/s", perKey: { rate: "1/s" } });
  for (let endpoint = 0; endpoint < 20; endpoint++) {
    await queue.enqueueMany(upTo(5), { key: ["acme", `e${endpoint}`] });
  }
  const aside = new Set<string>();
  const lookAside = async (): Promise<void> => {
    const found = await lanes.redis.zrange(`${lanes.prefix}:{jobs}:lanes:blocked`, 0, -1);
    for (const each of found) aside.add(each);
  };
  const done: Key[] = [];
  const countOf = (tenant: string): number => done.filter(([first]) => first === tenant).length;
  sluice.worker(queue, async ({ key }) => void done.push(key!));
  await waitUntil(async () => {
    await lookAside();
    return aside.size > 0 && countOf("acme") >= 2;
  }, "acme is aside");

  for (let tenant = 0; tenant < 10; tenant++) {
    await queue.enqueue(tenant, { key: [`t${tenant}`, "e0"] });
  }
  await waitUntil(async () => {
    await lookAside();
    return done.length - countOf("acme") === 10;
  }, "the others are done");

  expect([...aside]).toEqual(["acme"]);
  expect(countOf("acme")).toBeLessThan(100);
});
