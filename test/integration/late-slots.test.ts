import { expect, it } from "vitest";
import { realSluices } from "../support/real-sluice.ts";
import { waitUntil } from "../support/wait-until.ts";

const sluices = realSluices();

/** Does nothing else meanwhile, as a parser of a large answer would. */
function blockFor(ms: number): void {
  const endsAtMs = performance.now() + ms;
  while (performance.now() < endsAtMs);
}

it("a slot that a busy process could not use costs a slow key nothing", async () => {
  const sluice = sluices.open();
  const bucket = sluice.bucket("p", { rate: "200/s", perKey: { rate: "1/h" } });
  const queue = sluice.queue<string>("p", { bucket });
  const keys = ["a", "b", "c", "d", "e", "f"];
  await queue.enqueueMany(keys, (key) => ({ key }));
  const done = new Set<string>();

  sluice.worker(queue, async ({ data }) => {
    blockFor(60);
    done.add(data);
  });

  await waitUntil(() => done.size === keys.length, "each key has had the one call of its hour");
  expect([...done].toSorted()).toEqual(keys);
});
