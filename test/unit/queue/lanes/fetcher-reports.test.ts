import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  beginWaits,
  lookAgain,
  setUpFetcher,
  startMany,
  takenJobs,
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

const refuse = (): never => {
  throw new Error("no reply");
};

describe("the reports of a fetcher", () => {
  it("are collected for some ms, and sent in one round trip", async () => {
    const setup = setUpFetcher();

    setup.fetcher.wake("acme");
    await pass(2);
    setup.fetcher.wake("acme");
    setup.fetcher.start("probed", { key: "probed", wentAtOnce: true });
    setup.fetcher.missProbe("missed");
    await pass(10);

    expect(setup.asked).toHaveLength(1);
    expect(setup.asked[0]!.woken).toEqual(["acme"]);
    expect(Object.fromEntries(setup.asked[0]!.probes)).toEqual({ probed: true, missed: false });
    await setup.fetcher.close();
  });

  it("are sent with a request for jobs, if there is one earlier", async () => {
    const setup = setUpFetcher();
    setup.fetcher.wake("acme");

    await setup.fetcher.next();
    await pass(1_000);

    expect(setup.asked).toMatchObject([{ most: 1, woken: ["acme"] }]);
    await setup.fetcher.close();
  });

  it("bring jobs back, as many as the worker could start", async () => {
    const setup = setUpFetcher();
    startMany(setup.fetcher, 20);
    beginWaits(setup.fetcher, 2);
    setup.answer = () => ({ jobs: takenJobs("1") });

    setup.fetcher.wake("acme");
    await pass(10);

    expect(setup.asked).toMatchObject([{ most: 12 - 2 }]);
    expect((await setup.fetcher.next()).job).toMatchObject({ id: "1" });
    await setup.fetcher.close();
  });

  it("are empty while jobs start in their turn", async () => {
    const setup = setUpFetcher();

    startMany(setup.fetcher, 10);
    setup.fetcher.end();
    await pass(5_000);

    expect(setup.asked).toEqual([]);
    await setup.fetcher.close();
  });

  it("wait for the reply to the previous request", async () => {
    const setup = setUpFetcher();
    setup.answer = () => simulateLatency(500).then(() => ({}));
    setup.fetcher.wake("a");
    await pass(10);

    setup.fetcher.wake("b");
    await pass(300);
    const whileUnderWay = setup.asked.length;
    setup.answer = () => ({});
    await pass(300);

    expect(whileUnderWay).toBe(1);
    expect(setup.asked.map(({ woken }) => woken)).toEqual([["a"], ["b"]]);
    await setup.fetcher.close();
  });

  it("park jobs that go back before others are asked for", async () => {
    const setup = setUpFetcher();
    const joinedBefore: number[] = [];
    setup.answer = () => {
      joinedBefore.push(setup.joined.length);
      return {};
    };

    setup.fetcher.park({ id: "1", roomInMs: 500 });
    setup.fetcher.park({ id: "2", weights: [3] });
    await pass(10);

    expect(setup.joined).toEqual([
      [
        { id: "1", roomInMs: 500 },
        { id: "2", weights: [3] },
      ],
    ]);
    expect(joinedBefore).toEqual([1]);
    await setup.fetcher.close();
  });
});

describe("a fetcher whose lanes cannot be reached", () => {
  it("repeats which keys may have room, and the results of probes", async () => {
    const setup = setUpFetcher();
    setup.answer = () => {
      setup.answer = () => ({});
      return refuse();
    };

    setup.fetcher.wake("*");
    setup.fetcher.start("acme", { key: "acme", wentAtOnce: false });
    await pass(500);
    const before = setup.asked.length;
    await pass(1_000);

    const news = { woken: ["*"], probes: [["acme", false]] };
    expect(before).toBe(1);
    expect(setup.asked).toMatchObject([news, news]);
    expect(setup.warnings.join()).toMatch(/^Could not send .+ no reply$/);
    await setup.fetcher.close();
  });

  it("leaves jobs that could not join their lane until they come back by themselves, and continues", async () => {
    const setup = setUpFetcher();
    setup.joinFails = true;
    setup.fetcher.park({ id: "1" });
    await pass(10);

    setup.joinFails = false;
    setup.fetcher.park({ id: "2" });
    await pass(1_100);

    expect(setup.joined).toEqual([[{ id: "2" }]]);
    await setup.fetcher.close();
  });

  it("warns once a second while they fail, for whatever reason", async () => {
    const setup = setUpFetcher();
    setup.answer = refuse;

    for (let id = 0; id < 100; id++) {
      setup.fetcher.wake(String(id));
      await pass(100);
    }

    expect(setup.asked.length).toBeGreaterThan(5);
    expect(setup.asked.length).toBeLessThanOrEqual(12);
    expect(setup.warnings).toHaveLength(setup.asked.length);
    await setup.fetcher.close();
  });
});

describe("a fetcher makes no requests", () => {
  it("for a quarter of a minute after it has seen no parked and no held job", async () => {
    const setup = setUpFetcher();
    const isQuiet = [setup.fetcher.isQuiet];

    await setup.fetcher.next();
    for (const ms of [0, 14_000, 2_000]) {
      await pass(ms);
      isQuiet.push(setup.fetcher.isQuiet);
    }

    expect(isQuiet).toEqual([false, true, true, false]);
    await setup.fetcher.close();
  });

  it.each([{ active: 1 }, { parked: 1 }])("until it has seen %j", async (seen) => {
    const setup = setUpFetcher();
    await setup.fetcher.next();

    setup.answer = () => seen;
    await lookAgain(setup.fetcher);

    expect(setup.fetcher.isQuiet).toBe(false);
    await setup.fetcher.close();
  });
});

describe("a fetcher that is closed", () => {
  it("looks once for another worker to wake, takes no more jobs, and leaves no timer behind", async () => {
    const setup = setUpFetcher();
    setup.places = 0;
    const next = setup.fetcher.next();
    await pass(10);

    await setup.fetcher.close();

    expect(await next).toMatchObject({ job: undefined });
    expect(await setup.fetcher.next()).toMatchObject({ job: undefined });
    expect(setup.asked).toMatchObject([{ most: 0, mostExpired: 0 }]);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("gives back the jobs that it has taken and not handed out", async () => {
    const setup = setUpFetcher();
    setup.answer = () => {
      setup.answer = () => ({});
      return { jobs: takenJobs("1", "2", "3") };
    };
    await setup.fetcher.next();

    const left = await setup.fetcher.close();

    expect(left).toMatchObject(takenJobs("2", "3"));
  });

  it("gives back the jobs of a request in progress", async () => {
    const setup = setUpFetcher();
    setup.answer = () => {
      setup.answer = () => ({});
      return simulateLatency(100).then(() => ({ jobs: takenJobs("1") }));
    };
    const next = setup.fetcher.next();
    await pass(10);

    const closing = setup.fetcher.close();
    await pass(100);

    expect(await closing).toMatchObject(takenJobs("1"));
    expect(await next).toMatchObject({ job: undefined });
    expect(setup.asked.map(({ most }) => most)).toEqual([1, 0]);
  });

  it("sends its pending reports", async () => {
    const setup = setUpFetcher();
    setup.fetcher.wake("acme");
    setup.fetcher.park({ id: "1" });

    await setup.fetcher.close();

    expect(setup.asked.at(-1)!.woken).toEqual(["acme"]);
    expect(setup.joined).toEqual([[{ id: "1" }]]);
  });

  it("still parks jobs on their way back, and takes none for them", async () => {
    const setup = setUpFetcher();
    await setup.fetcher.close();

    setup.fetcher.park({ id: "1" });
    setup.fetcher.park({ id: "2" });
    await pass(10);

    expect(setup.joined.flat()).toEqual([{ id: "1" }, { id: "2" }]);
    expect(setup.asked.map(({ most, mostExpired }) => most + mostExpired)).toEqual([0, 0]);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("tries once, and logs no warning, when its lanes are unreachable", async () => {
    const setup = setUpFetcher();
    setup.answer = refuse;
    setup.fetcher.wake("acme");

    await setup.fetcher.close();
    await pass(10_000);

    expect(setup.asked).toHaveLength(1);
    expect(setup.warnings).toEqual([]);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("tries only once to report a job that ended later, if its lanes are unreachable by then", async () => {
    const setup = setUpFetcher();
    await setup.fetcher.close();
    setup.answer = refuse;

    setup.fetcher.wake("acme");
    await pass(10_000);

    expect(setup.asked).toHaveLength(2);
    expect(setup.warnings).toEqual([]);
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe("a reply with too few jobs", () => {
  it("hands out its jobs before it reports that there are no more", async () => {
    const setup = setUpFetcher();
    startMany(setup.fetcher, 40);
    setup.places = 2;
    setup.answer = () => ({ jobs: takenJobs("1", "2"), nextMs: 300 });
    const ids = [(await setup.fetcher.next()).job!.id];
    setup.places = 0;
    const next = setup.fetcher.next().then(({ job }) => ids.push(job!.id));
    await pass(500);

    setup.places = 1;
    setup.fetcher.end();
    await next;

    expect(ids).toEqual(["1", "2"]);
    await setup.fetcher.close();
  });
});

describe("the lock of a job", () => {
  it("belongs to this worker from the reply that brought the job until its end is stored", async () => {
    const setup = setUpFetcher();
    setup.answer = () => ({ jobs: takenJobs("1") });
    const holds = (): boolean => setup.fetcher.holds("1", "of 1");
    const seen = [holds()];

    await setup.fetcher.next();
    seen.push(holds());
    setup.fetcher.end();
    seen.push(holds());
    setup.fetcher.release("1", "of 1");
    seen.push(holds());

    expect(seen).toEqual([false, true, true, false]);
    await setup.fetcher.close();
  });
});
