import { expect, it } from "vitest";
import { block } from "../../support/async/block.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();

it("a slot that a busy process could not use costs a slow key nothing", async () => {
  const sluice = sluices.open();
  const bucket = sluice.bucket("p", { rate: "200/s", perKey: { rate: "1/h" } });
  const queue = sluice.queue<string>("p", { bucket });
  const keys = ["a", "b", "c", "d", "e", "f"];
  await queue.enqueueMany(keys, (key) => ({ key }));
  const done = new Set<string>();

  sluice.worker(queue, async ({ data }) => {
    block(60);
    done.add(data);
  });

  await waitUntil(() => done.size === keys.length, "each key has had the one call of its hour");
  expect([...done].toSorted()).toEqual(keys);
});
