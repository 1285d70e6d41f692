import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { beginWaits, setUpFeeder, type FeederSetup } from "../../../support/jobs/open-feeder.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** Runs what is due within so many ms. */
const pass = (ms: number): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

describe("a feeder in a quiet time", () => {
  it("looks in every ten seconds while there is nothing to do, and its wants hold until then", async () => {
    const setup = setUpFeeder();

    await pass(61_500);

    expect(setup.told.map(({ forMs }) => forMs)).toEqual([3_000, ...Array(7).fill(30_000)]);
    expect(setup.feeder.isQuiet).toBe(true);
    await setup.feeder.close();
  });

  it.each<[string, (setup: FeederSetup) => void]>([
    ["a job without a key starts", ({ feeder }) => feeder.start()],
    ["a key has room again", ({ feeder }) => feeder.wake("acme")],
    ["a job arrives", ({ feeder }) => void feeder.arrive("1")],
    ["a job goes back", ({ feeder }) => feeder.park({ id: "1" })],
    ["Redis can be used again", ({ feeder }) => feeder.tellAgain()],
  ])("tells at once after a quiet time, and each second again, when %s", async (_what, happen) => {
    const setup = setUpFeeder();
    await pass(25_000);
    const before = setup.told.length;

    happen(setup);
    await pass(10);
    const atOnce = setup.told.length;
    await pass(1_000);

    expect([atOnce, setup.told.length]).toEqual([before + 1, before + 2]);
    expect(setup.told[before]).toMatchObject({ forMs: 3_000 });
    await setup.feeder.close();
  });

  it.each<[string, (setup: FeederSetup) => void]>([
    ["has no room for a job", (setup) => (setup.places = 0)],
    ["has a job that waits for its slot", ({ feeder }) => void beginWaits(feeder, 1)],
  ])("looks in each second while its worker %s", async (_what, prepare) => {
    const setup = setUpFeeder();
    prepare(setup);

    await pass(3_500);

    expect(setup.told).toHaveLength(4);
    await setup.feeder.close();
  });

  it("is not quiet while a worker holds a job", async () => {
    const setup = setUpFeeder();
    setup.answer = () => ({ active: 1 });

    await pass(3_500);

    expect(setup.feeder.isQuiet).toBe(false);
    await setup.feeder.close();
  });
});
