import { describe, expect, it, vi } from "vitest";
import { LeaseLostError } from "../../../../src/core/errors.ts";
import type { OwnedBucket } from "../../../../src/throttle/bucket.ts";
import { waitUntil } from "../../../support/async/wait-until.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";
import { collectGarbage } from "../../../support/garbage.ts";

async function* count(most: number): AsyncGenerator<number, { readonly used: number }, void> {
  for (let each = 1; each <= most; each++) yield await Promise.resolve(each);
  return { used: most };
}

function* countAtOnce(most: number): Generator<number, string, void> {
  for (let each = 1; each <= most; each++) yield each;
  return "end";
}

/** Whether no call holds the only lease of a bucket. */
async function isFree(bucket: OwnedBucket): Promise<boolean> {
  const { slot } = await bucket.tryDraw();
  slot?.release();
  return slot !== undefined;
}

describe("a generator that a throttled function returns", () => {
  it("keeps its lease until it has run to its end", async () => {
    const { bucket } = createTestBucket({ concurrency: 1 });
    const numbers = await bucket.throttled(count)(2);

    const free = [await isFree(bucket)];
    const seen: number[] = [];
    for await (const number of numbers) {
      seen.push(number);
      free.push(await isFree(bucket));
    }

    expect(seen).toEqual([1, 2]);
    expect(free).toEqual([false, false, false]);
    expect(await isFree(bucket)).toBe(true);
    await bucket.close();
  });

  it("keeps its lease until its reader breaks out", async () => {
    const { bucket } = createTestBucket({ concurrency: 1 });
    const numbers = await bucket.run(() => count(5));

    for await (const number of numbers) if (number === 2) break;

    expect(await isFree(bucket)).toBe(true);
    await bucket.close();
  });

  it("keeps its lease until it throws, and the bucket reads the error", async () => {
    const { bucket } = createTestBucket({ concurrency: 1, rate: "1000/s", burst: 100 });
    const tooMany = Object.assign(new Error("slow down"), { status: 429 });
    const numbers = await bucket.run(async function* () {
      yield 1;
      throw tooMany;
    });

    await expect(numbers.next()).resolves.toEqual({ value: 1, done: false });
    expect(await isFree(bucket)).toBe(false);
    await expect(numbers.next()).rejects.toBe(tooMany);

    await waitUntil(async () => (await bucket.peek()).coolingForMs > 0, "a cooldown");
    expect((await bucket.peek()).limits.at(-1)).toMatchObject({ name: "1 at once", level: 0 });
    await bucket.close();
  });

  it("keeps its lease while its finally runs, however it ended", async () => {
    const { bucket } = createTestBucket({ concurrency: 1 });
    const numbers = await bucket.run(async function* () {
      try {
        yield 1;
      } finally {
        yield 2;
      }
    });
    await numbers.next();

    await expect(numbers.return(undefined)).resolves.toEqual({ value: 2, done: false });
    const during = await isFree(bucket);
    await numbers.next();

    expect([during, await isFree(bucket)]).toEqual([false, true]);
    await bucket.close();
  });

  it("keeps its lease if it is one that runs at once", async () => {
    const { bucket } = createTestBucket({ concurrency: 1 });
    const numbers = await bucket.throttled(countAtOnce)(2);

    const free: boolean[] = [];
    for (const _number of numbers) free.push(await isFree(bucket));

    expect(free).toEqual([false, false]);
    expect(await isFree(bucket)).toBe(true);
    await bucket.close();
  });

  it("keeps its place among those of its function", async () => {
    const { bucket } = createTestBucket({ rate: "1000/s", burst: 10 });
    const read = bucket.throttled(count, { concurrency: 1 });
    const first = await read(1);
    const begun: string[] = [];
    const second = read(1).then(() => begun.push("second"));
    await waitUntil(() => bucket.waiting === 0, "an empty line");

    begun.push("first ends");
    for await (const _number of first);
    await second;

    expect(begun).toEqual(["first ends", "second"]);
    await bucket.close();
  });

  it("stays the object that it was", async () => {
    const { bucket } = createTestBucket({ concurrency: 1 });
    const made = Object.assign(count(1), { model: "large" });

    const numbers = await bucket.run(() => made);

    expect(numbers).toBe(made);
    expect(numbers[Symbol.asyncIterator]()).toBe(numbers);
    await numbers.return({ used: 0 });
    await bucket.close();
  });

  it("settles by what it returns at its end, and not if it is left before", async () => {
    const { bucket } = createTestBucket({ rate: "100/h", burst: 100 });
    const settle = vi.fn((end: { readonly used: number }) => ({ calls: end.used }));
    const read = bucket.throttled(count, { cost: 40, settle });

    for await (const _number of await read(3));
    for await (const _number of await read(3)) break;

    await waitUntil(async () => (await bucket.peek()).limits[0]!.level === 43, "a settled cost");
    expect(settle.mock.calls).toEqual([[{ used: 3 }]]);
    await bucket.close();
  });

  it("throws when its lease is lost, and runs its finally", async () => {
    const { bucket } = createTestBucket({ concurrency: 1 });
    const lost = new AbortController();
    const drawn = await bucket.draw();
    const { bucket: name, key, atMs, waitedMs, generation } = drawn;
    vi.spyOn(bucket, "drawByHand").mockResolvedValue({
      bucket: name,
      key,
      keys: undefined,
      encodedKey: undefined,
      atMs,
      waitedMs,
      generation,
      hasLease: true,
      signal: lost.signal,
      settle: async () => {},
      release: () => drawn.release(),
      [Symbol.dispose]: () => {},
      [Symbol.asyncDispose]: async () => {},
    });
    const ended = vi.fn();
    const numbers = await bucket.run(async function* () {
      try {
        yield 1;
        yield 2;
      } finally {
        ended();
      }
    });
    await numbers.next();

    lost.abort(new LeaseLostError("test"));

    await expect(numbers.next()).rejects.toBeInstanceOf(LeaseLostError);
    expect(ended).toHaveBeenCalledOnce();
    await bucket.close();
  });

  it("gives its lease back when it is garbage-collected", async () => {
    const { bucket } = createTestBucket({ concurrency: 1 });
    await (async () => void (await bucket.run(() => count(5))))();

    await waitUntil(async () => {
      collectGarbage();
      return isFree(bucket);
    }, "a free lease");

    expect(await isFree(bucket)).toBe(true);
    await bucket.close();
  });

  it("is not taken for one if it is a stream or has no such methods", async () => {
    const { bucket } = createTestBucket({ concurrency: 1 });
    const stream = new ReadableStream();

    await expect(bucket.run(() => stream)).resolves.toBe(stream);
    await expect(bucket.run(() => [1][Symbol.iterator]())).resolves.toBeDefined();
    await expect(bucket.run(() => new Proxy({}, { get: broken }))).rejects.toThrow("broken");

    expect(await isFree(bucket)).toBe(true);
    await bucket.close();
  });
});

function broken(): never {
  throw new Error("broken");
}
