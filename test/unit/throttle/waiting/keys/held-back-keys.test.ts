import { expect, it, onTestFinished, vi } from "vitest";
import type { OwnedBucket } from "../../../../../src/throttle/bucket.ts";
import { Group } from "../../../../../src/throttle/waiting/group.ts";
import { fakeTimers } from "../../../../support/async/fake-timers.ts";
import { createTestBucket } from "../../../../support/draws/test-bucket.ts";

const advance = fakeTimers();

/** A bucket in which one caller waits for each of so many keys, which are all held back for an hour. */
async function openHeldBack(keys: number) {
  const { bucket } = createTestBucket({ rate: "100000/s", perKey: { rate: "1/h" } });
  const leaving = new AbortController();
  const names = Array.from({ length: keys }, (_, number) => `key ${number}`);
  for (const key of names) bucket.draw({ key }).catch(() => undefined);
  for (const key of names.slice(1)) bucket.draw({ key }).catch(() => undefined);
  bucket.draw({ key: "key 0", signal: leaving.signal }).catch(() => undefined);
  await advance(2_000);
  expect(bucket.waiting).toBe(keys);
  return { bucket, leaving };
}

/** How often the lines of groups are looked at meanwhile, beside so many keys that are held back. */
async function looksDuring(
  happens: (parts: { bucket: OwnedBucket; leaving: AbortController }) => unknown,
  keys: number,
): Promise<number> {
  const parts = await openHeldBack(keys);
  const line = vi.spyOn(Group.prototype, "line", "get");
  onTestFinished(() => line.mockRestore());
  await happens(parts);
  await advance(1);
  const looks = line.mock.calls.length;
  line.mockRestore();
  await Promise.all([parts.bucket.close(), advance(100)]);
  return looks;
}

it.each<[string, Parameters<typeof looksDuring>[0]]>([
  ["a key that is free is drawn for", ({ bucket }) => bucket.draw({ key: "free" })],
  ["a caller leaves", ({ leaving }) => leaving.abort()],
  ["there is news of one key", ({ bucket }) => bucket.redraw("key 1")],
])("when %s, few of the keys are looked at that are held back", async (_what, happens) => {
  const beside300 = await looksDuring(happens, 300);
  const beside3000 = await looksDuring(happens, 3_000);

  expect(beside3000).toBeLessThan(2 * beside300);
  expect(beside3000).toBeLessThan(300);
});
