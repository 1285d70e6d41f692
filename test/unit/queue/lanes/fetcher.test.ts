import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  beginWaits,
  lookAgain,
  setUpFetcher,
  startMany,
  takenJobs,
  type FetcherSetup,
} from "../../../support/jobs/open-fetcher.ts";
import { simulateLatency } from "../../../support/servers/simulate-latency.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** Runs what is due within so many ms. */
const pass = (ms: number): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

/** How many jobs it asked for last. */
const mostOf = ({ asked }: FetcherSetup): number => asked.at(-1)!.most;

describe("the next job", () => {
  it("is requested when it is needed, with separate, unguessable locks for each request", async () => {
    const setup = setUpFetcher();
    await pass(5_000);
    const before = setup.asked.length;

    await setup.fetcher.next();
    await lookAgain(setup.fetcher);

    expect(before).toBe(0);
    const token = expect.stringMatching(/^w:[\w-]{20}:$/) as string;
    const asked = { queue: "jobs", lockMs: 30_000, token, most: 1 };
    expect(setup.asked).toMatchObject([asked, asked]);
    expect(setup.asked[1]!.token).not.toBe(setup.asked[0]!.token);
    await setup.fetcher.close();
  });

  it("is the next of a batch, and only then another batch is requested", async () => {
    const setup = setUpFetcher();
    setup.answer = () => ({ jobs: takenJobs("1", "2", "3") });

    const ids = [];
    for (let n = 0; n < 4; n++) ids.push((await setup.fetcher.next()).job!.id);

    expect(ids).toEqual(["1", "2", "3", "1"]);
    expect(setup.asked).toHaveLength(2);
    await setup.fetcher.close();
  });

  it("is undefined if there is none, until the time at which there may be one", async () => {
    const setup = setUpFetcher();
    setup.answer = () => ({ nextMs: 300 });

    const first = await setup.fetcher.next();
    await pass(200);
    const second = await setup.fetcher.next();
    await pass(100);
    setup.answer = () => ({ jobs: takenJobs("1") });
    const third = await setup.fetcher.next();

    expect([first, second]).toEqual([300, 100].map((nextMs) => ({ job: undefined, nextMs })));
    expect(third.job).toMatchObject({ id: "1" });
    expect(setup.asked).toHaveLength(2);
    await setup.fetcher.close();
  });

  it("is asked for again when Redis announces that there may be one", async () => {
    const setup = setUpFetcher();
    await setup.fetcher.next();
    setup.answer = () => ({ jobs: takenJobs("1") });

    expect((await lookAgain(setup.fetcher)).job).toMatchObject({ id: "1" });
    await setup.fetcher.close();
  });

  it("is asked for again when Redis announces it before an earlier reply has arrived", async () => {
    const setup = setUpFetcher();
    setup.answer = () => {
      setup.answer = () => ({ jobs: takenJobs("1") });
      return simulateLatency(100).then(() => ({}));
    };
    setup.fetcher.wake("acme");
    await pass(10);

    const next = lookAgain(setup.fetcher);
    await pass(100);

    expect((await next).job).toMatchObject({ id: "1" });
    await setup.fetcher.close();
  });

  it("is requested until it arrives, if there may be one immediately", async () => {
    const setup = setUpFetcher();
    setup.answer = () => (setup.asked.length < 4 ? { nextMs: 0 } : { jobs: takenJobs("1") });

    expect((await setup.fetcher.next()).job).toMatchObject({ id: "1" });
    expect(setup.asked).toHaveLength(4);
    await setup.fetcher.close();
  });

  it("is handed out to a later request, when it came with a reply to reports", async () => {
    const setup = setUpFetcher();
    await setup.fetcher.next();
    setup.answer = () => ({ jobs: takenJobs("1") });
    let isReady = false;
    const ready = setup.fetcher.untilReady().then(() => (isReady = true));
    await pass(1_000);
    const before = isReady;

    setup.fetcher.wake("acme");
    await pass(10);
    await ready;
    // Told also to who asks only now.
    await setup.fetcher.untilReady();

    expect(before).toBe(false);
    expect((await setup.fetcher.next()).job).toMatchObject({ id: "1" });
    await setup.fetcher.close();
  });

  it("is neither taken nor handed out before there is room for it", async () => {
    const setup = setUpFetcher();
    startMany(setup.fetcher, 40);
    setup.places = 0;
    setup.answer = ({ most }) => ({ jobs: takenJobs("1", "2", "3", "4").slice(0, most) });
    const handedOut: unknown[] = [];
    const next = setup.fetcher.next().then(({ job }) => handedOut.push(job!.id));

    await pass(100);
    const before = [handedOut.length, setup.asked.length];
    setup.places = 1;
    setup.fetcher.end();
    await next;

    expect(before).toEqual([0, 0]);
    expect(handedOut).toEqual(["1"]);
    await setup.fetcher.close();
  });

  it.each<[string, (setup: FetcherSetup) => void, (setup: FetcherSetup) => void]>([
    [
      "a job ends",
      (setup) => (setup.places = 0),
      (setup) => {
        setup.places = 1;
        setup.fetcher.end();
      },
    ],
    [
      "a job starts",
      ({ fetcher }) => void beginWaits(fetcher, 1),
      ({ fetcher }) => startMany(fetcher, 4),
    ],
    [
      "its key holds a job back",
      ({ fetcher }) => void beginWaits(fetcher, 1),
      (setup) => (setup.heldBack = 1),
    ],
  ])("is requested when the worker can start more, since %s", async (_what, fill, happen) => {
    const setup = setUpFetcher();
    setup.answer = () => ({ jobs: takenJobs("1") });
    fill(setup);
    const next = setup.fetcher.next();
    await pass(100);
    const before = setup.asked.length;

    happen(setup);
    await pass(25);

    expect([before, setup.asked.length]).toEqual([0, 1]);
    expect((await next).job).toMatchObject({ id: "1" });
    await setup.fetcher.close();
  });

  it("is still looked for four times a second by a busy worker, for jobs that become due", async () => {
    const setup = setUpFetcher();
    beginWaits(setup.fetcher, 1);
    const next = setup.fetcher.next();

    await pass(990);
    const looks = setup.asked.map(({ most, mostExpired }) => ({ most, mostExpired }));
    setup.answer = () => ({ jobs: takenJobs("expired") });
    await pass(250);

    expect(looks).toEqual(Array(3).fill({ most: 0, mostExpired: 50 }));
    expect((await next).job).toMatchObject({ id: "expired" });
    await setup.fetcher.close();
  });

  it("is not looked for by a worker without room", async () => {
    const setup = setUpFetcher();
    setup.places = 0;
    const next = setup.fetcher.next();

    await pass(5_000);

    expect(setup.asked).toEqual([]);
    await setup.fetcher.close();
    await next;
  });

  it("rejects when the lanes are unreachable, and is requested again", async () => {
    const setup = setUpFetcher();
    setup.answer = () => {
      throw new Error("no reply");
    };
    await expect(setup.fetcher.next()).rejects.toThrow("no reply");

    setup.answer = () => ({ jobs: takenJobs("1") });

    expect((await setup.fetcher.next()).job).toMatchObject({ id: "1" });
    expect(setup.warnings).toEqual([]);
    await setup.fetcher.close();
  });

  it("waits for a request in progress, and sends its own request if that fails", async () => {
    const setup = setUpFetcher();
    setup.answer = async () => {
      setup.answer = () => ({ jobs: takenJobs("1") });
      await simulateLatency(100);
      throw new Error("no reply");
    };
    setup.fetcher.wake("acme");
    await pass(10);

    const next = setup.fetcher.next();
    await pass(50);
    const whileUnderWay = setup.asked.length;
    await pass(100);

    expect(whileUnderWay).toBe(1);
    expect((await next).job).toMatchObject({ id: "1" });
    await setup.fetcher.close();
  });
});

describe("how many jobs a fetcher asks for", () => {
  it("is the number that it starts in 150 ms, minus the jobs that wait for their slots", async () => {
    const setup = setUpFetcher();
    startMany(setup.fetcher, 20);
    const endOne = beginWaits(setup.fetcher, 4);
    await endOne();

    await setup.fetcher.next();

    expect(mostOf(setup)).toBe(12 - 3);
    await setup.fetcher.close();
  });

  it("does not count jobs that their own key delays", async () => {
    const setup = setUpFetcher();
    startMany(setup.fetcher, 10);
    beginWaits(setup.fetcher, 5);
    setup.heldBack = 4;

    await setup.fetcher.next();

    expect(mostOf(setup)).toBe(6 - 1);
    await setup.fetcher.close();
  });

  it("includes the jobs that keys with a floor need, for 32 keys at a time", async () => {
    const setup = setUpFetcher();
    startMany(setup.fetcher, 20);
    setup.floors = Array.from({ length: 40 }, (_, index) => {
      return { name: `k${index}`, part: 0.4, callsPerSecond: undefined };
    });
    setup.fetcher.whileWaiting("k1", new Promise(() => {})).catch(() => {});

    await setup.fetcher.next();
    await lookAgain(setup.fetcher);

    const [first, second] = setup.asked.map(({ floors }) => floors!);
    expect(first).toHaveLength(32);
    // 0.4 of the 12 jobs that start in 150 ms, without the one that waits.
    expect(first).toContainEqual(["k1", 4]);
    expect(first).toContainEqual(["k2", 5]);
    expect(new Set([...first!, ...second!].map(([name]) => name)).size).toBe(40);
    await setup.fetcher.close();
  });

  it("includes no more jobs of a key than its floor, whatever the worker could run", async () => {
    const setup = setUpFetcher();
    setup.floors = [{ name: "k", part: 0.5, callsPerSecond: 8 }];
    const ofFloor = async (): Promise<unknown> => {
      await lookAgain(setup.fetcher);
      return setup.asked.at(-1)!.floors;
    };

    const first = await ofFloor();
    await setup.fetcher.whileWaiting("k", Promise.resolve());
    const second = await ofFloor();
    await setup.fetcher.whileWaiting("k", Promise.resolve());
    const third = await ofFloor();

    // Two jobs in 250 ms.
    expect([first, second, third]).toEqual([[["k", 1]], [["k", 1]], []]);
    await setup.fetcher.close();
  });

  it("is limited by its free places", async () => {
    const setup = setUpFetcher();
    setup.places = 1;
    startMany(setup.fetcher, 40);

    await setup.fetcher.next();

    expect(mostOf(setup)).toBe(1);
    await setup.fetcher.close();
  });

  it("is at most 500, since Redis serves no other client during that time", async () => {
    const setup = setUpFetcher();
    setup.places = 10_000;
    startMany(setup.fetcher, 2_000);

    await setup.fetcher.next();

    expect(mostOf(setup)).toBe(500);
    await setup.fetcher.close();
  });

  it("is higher if a round trip takes long, but at most what it starts in a second", async () => {
    const setup = setUpFetcher();
    const wants: number[] = [];
    for (const tripMs of [20, 500]) {
      setup.answer = () => simulateLatency(tripMs).then(() => ({}));
      for (let trip = 0; trip < 40; trip++) {
        const next = lookAgain(setup.fetcher);
        await pass(tripMs);
        await next;
      }
      await pass(1_000);
      startMany(setup.fetcher, 10);
      const next = lookAgain(setup.fetcher);
      await pass(tripMs);
      await next;
      wants.push(mostOf(setup));
    }
    setup.answer = () => ({});

    expect(wants).toEqual([Math.ceil((10 * (150 + 10 * 20)) / 250), (10 * 1_000) / 250]);
    await setup.fetcher.close();
  });

  it("is zero while it holds almost as many, so that several are requested together", async () => {
    const setup = setUpFetcher();
    startMany(setup.fetcher, 40);
    const endOne = beginWaits(setup.fetcher, 24);
    const next = setup.fetcher.next();

    for (let n = 0; n < 3; n++) {
      await pass(2);
      await endOne();
      setup.fetcher.end();
    }
    await next;

    expect(setup.asked).toMatchObject([{ most: 3 }]);
    await setup.fetcher.close();
  });

  it("is two more for each key that waits here with more jobs than it starts", async () => {
    const setup = setUpFetcher();
    startMany(setup.fetcher, 10);
    const ends: (() => void)[] = [];
    const waits = [1, 2, 3].map(() =>
      setup.fetcher.whileWaiting("acme", new Promise<void>((resolve) => ends.push(resolve))),
    );

    await setup.fetcher.next();
    await lookAgain(setup.fetcher);

    // The first request finds out that the key has enough.
    expect(setup.asked.map(({ most }) => most)).toEqual([6 - 3, 6 + 2 - 3]);
    for (const end of ends) end();
    await Promise.all(waits);
    await setup.fetcher.close();
  });

  it("falls back to one when nothing has started for some time", async () => {
    const setup = setUpFetcher();
    startMany(setup.fetcher, 10);

    await setup.fetcher.next();
    await pass(2_000);
    await lookAgain(setup.fetcher);

    expect(setup.asked.map(({ most }) => most)).toEqual([6, 1]);
    await setup.fetcher.close();
  });
});

describe("how many expired jobs a fetcher asks for", () => {
  it.each([
    ["there are places beside those", 30, 30 - 6],
    ["Redis serves no other meanwhile, 50 at most", 200, 50],
    ["others leave places, which is none", 6, 0],
  ])("is %s", async (_why, places, mostExpired) => {
    const setup = setUpFetcher();
    setup.places = places;
    startMany(setup.fetcher, 10);

    await setup.fetcher.next();

    expect(setup.asked).toMatchObject([{ most: 6, mostExpired }]);
    await setup.fetcher.close();
  });

  it("is one in every other turn for a last free place, while there are some", async () => {
    const setup = setUpFetcher();
    setup.places = 1;
    for (const isMoreDue of [false, true, true, true, true, false, false]) {
      setup.answer = () => ({ isMoreDue });
      await lookAgain(setup.fetcher);
    }

    const turns = setup.asked.map(({ most, mostExpired }) => (mostExpired === 1 ? "e" : most));
    expect(turns.slice(0, 2)).toEqual([1, 1]);
    expect([
      [1, "e", 1, "e"],
      ["e", 1, "e", 1],
    ]).toContainEqual(turns.slice(2, 6));
    expect(turns[6]).toBe(1);
    await setup.fetcher.close();
  });

  it.each([
    ["a last place", 1],
    ["several places, all of them for others", 5],
  ])("is one in every other turn for %s", async (_what, places) => {
    const setup = setUpFetcher();
    startMany(setup.fetcher, 60);
    setup.places = places;
    setup.answer = () => ({ isMoreDue: true, active: 1 });
    for (let n = 0; n < 7; n++) {
      setup.fetcher.look();
      setup.fetcher.wake("acme");
      await pass(5);
    }

    const expired = setup.asked.slice(-6).map(({ mostExpired }) => mostExpired);
    expect([
      [0, 1, 0, 1, 0, 1],
      [1, 0, 1, 0, 1, 0],
    ]).toContainEqual(expired);
    expect(setup.asked.slice(-6).every(({ most }) => most >= 0)).toBe(true);
    await setup.fetcher.close();
  });
});
