import { expect, it } from "vitest";
import { createBucketClock } from "../../../../src/throttle/slot/bucket-clock.ts";

/** A reply that was written at `atMs`, on a process's clock that runs 500 ms ahead, and took so long back. */
function reply(atMs: number, backMs: number): [arrivedMs: number, nowUs: number] {
  return [atMs + 500 + backMs, atMs * 1_000];
}

it("a clock follows the fastest reply of this second and the previous one", () => {
  const clock = createBucketClock();
  clock.sample(...reply(0, 2));

  const slower = clock.sample(...reply(900, 30));
  const nextSecond = clock.sample(...reply(1_100, 40));
  const quicker = clock.sample(...reply(1_200, 1));

  expect([slower, nextSecond, quicker]).toEqual([502, 502, 501]);
});

it("forgets what is older, so that a way that has become longer is not reckoned with for ever", () => {
  const clock = createBucketClock();
  clock.sample(...reply(0, 2));
  clock.sample(...reply(1_100, 40));

  const later = clock.sample(...reply(2_300, 35));
  const afterAQuietTime = clock.sample(...reply(9_000, 60));

  expect([later, afterAQuietTime]).toEqual([535, 560]);
});

it("a clock restarts when the bucket's clock has stepped back", () => {
  const clock = createBucketClock();
  clock.sample(...reply(5_000, 2));

  clock.reset();

  expect(clock.sample(5_600, 0)).toBe(5_600);
});
