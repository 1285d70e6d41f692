import { expect, it } from "vitest";
import type { DrawRequest } from "../../../../src/core/store.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import type { TryOptions } from "../../../../src/throttle/call-options.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

const perKey = { rate: "10/s" } as const;

function watchedStore() {
  const inMemory = createMemoryStore();
  const wished: number[] = [];
  const held: (() => void)[] = [];
  const draw = async (request: DrawRequest): ReturnType<typeof inMemory.draw> => {
    wished.push(request.slotRequests.length);
    await new Promise<void>((resolve) => held.push(resolve));
    return inMemory.draw(request);
  };
  const answerAll = async (): Promise<void> => {
    for (; held.length > 0; await Promise.resolve()) held.shift()!();
  };
  return { store: { ...inMemory, draw }, wished, answerAll };
}

const oneKey = (index: number): TryOptions => ({ key: `k${index}` });
const threeKeys = (index: number): TryOptions => ({
  keys: { address: `a${index}`, email: `e${index}`, account: `c${index}` },
});
const perName = { address: perKey, email: perKey, account: perKey };

it.each([
  ["128 keys that have one limit", { perKey }, oneKey, [128, 72]],
  ["128 keys, however many a call has", { perKey: perName }, threeKeys, [42, 42, 42, 42, 32]],
  ["32 where a limit is shared", { rate: "1000/s", perKey }, oneKey, [32, 32, 32, 32, 32, 32, 8]],
] as const)("one request asks for %s", async (_what, policy, optionsOf, sizes) => {
  const { store, wished, answerAll } = watchedStore();
  const { bucket } = createTestBucket(policy, { store });

  const tries = Array.from({ length: 200 }, (_, index) => bucket.tryDraw(optionsOf(index)));
  await Promise.resolve();
  await answerAll();
  await Promise.all(tries);

  expect(wished).toEqual(sizes);
  await bucket.close();
});

it("tries that fill a request do not wait for the one under way, and fewer do", async () => {
  const { store, wished, answerAll } = watchedStore();
  const { bucket } = createTestBucket({ perKey }, { store });
  const ask = (from: number, count: number): Promise<unknown>[] =>
    Array.from({ length: count }, (_, key) => bucket.tryDraw({ key: `k${from + key}` }));
  const tries = ask(0, 1);
  await Promise.resolve();

  tries.push(...ask(1, 127));
  await Promise.resolve();
  const before = [...wished];
  tries.push(...ask(128, 1));
  await Promise.resolve();

  expect([before, wished]).toEqual([[1], [1, 128]]);
  await answerAll();
  await Promise.all(tries);
  await bucket.close();
});
