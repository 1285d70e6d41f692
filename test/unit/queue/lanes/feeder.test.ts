import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { beginWaits, setUpFeeder } from "../../../support/jobs/open-feeder.ts";
import { simulateLatency } from "../../../support/servers/simulate-latency.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** Runs what is due within so many ms. */
const pass = (ms: number): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

describe("what a feeder tells", () => {
  it("asks for jobs at once, and looks in each second while jobs are parked", async () => {
    const setup = setUpFeeder();
    setup.answer = () => ({ parked: 5 });

    await pass(3_500);

    expect(setup.told.map(({ want }) => want)).toEqual([1, 1, 1, 1]);
    expect(setup.told[0]).toMatchObject({ queue: "jobs", worker: "w", arrived: [], forMs: 3_000 });
    await setup.feeder.close();
  });

  it("gathers the news of some ms in one round trip", async () => {
    const setup = setUpFeeder();
    await pass(100);

    const arrivals = ["1", "2", "3"].map((id) => setup.feeder.arrive(id));
    await pass(0);
    setup.feeder.wake("acme");
    setup.feeder.wake("acme");
    setup.feeder.start({ key: "probed", wentAtOnce: true });
    setup.feeder.missProbe("missed");
    await pass(10);

    expect(await Promise.all(arrivals)).toEqual(["fed", "fed", "fed"]);
    expect(setup.told.slice(1).flatMap(({ arrived }) => arrived)).toEqual(["1", "2", "3"]);
    expect(setup.told.slice(1).flatMap(({ woken }) => woken)).toEqual(["acme"]);
    const probes = setup.told.slice(1).flatMap((each) => each.probes);
    expect(Object.fromEntries(probes)).toEqual({ probed: true, missed: false });
    expect(setup.told.length).toBeLessThanOrEqual(3);
    await setup.feeder.close();
  });

  it("gives each job the answer that is its own", async () => {
    const setup = setUpFeeder();
    setup.answer = ({ arrived }) => ({
      arrivals: arrived.map((id) => (id === "odd" ? "unfed" : id === "probe" ? "probe" : "fed")),
    });

    const arrivals = ["a", "odd", "probe"].map((id) => setup.feeder.arrive(id));
    await pass(20);

    expect(await Promise.all(arrivals)).toEqual(["fed", "unfed", "probe"]);
    await setup.feeder.close();
  });

  it("parks jobs that go back before it asks for others", async () => {
    const setup = setUpFeeder();
    await pass(100);

    setup.feeder.park({ id: "1", roomInMs: 500 });
    setup.feeder.park({ id: "2", weight: 3 });
    await pass(10);

    expect(setup.joined).toEqual([
      [
        { id: "1", roomInMs: 500 },
        { id: "2", weight: 3 },
      ],
    ]);
    await setup.feeder.close();
  });

  it("comes back when a lane that stands aside is due", async () => {
    const setup = setUpFeeder();
    await pass(10);
    setup.answer = () => ({ parked: 1, nextMs: 300 });
    setup.feeder.wake("acme");
    await pass(0);

    await pass(299);
    const before = setup.told.length;
    await pass(2);

    expect([before, setup.told.length]).toEqual([2, 3]);
    await setup.feeder.close();
  });

  it("tells of a start only while jobs are parked", async () => {
    const setup = setUpFeeder();
    await pass(10);
    setup.feeder.start();
    await pass(10);
    const whileEmpty = setup.told.length;
    setup.answer = () => ({ parked: 5 });
    await pass(1_000);
    const before = setup.told.length;

    setup.feeder.start();
    await pass(10);

    expect(whileEmpty).toBe(1);
    expect(setup.told.length).toBe(before + 1);
    await setup.feeder.close();
  });
});

describe("a feeder that had too many", () => {
  it("tells of a start although no jobs are parked, for those that are enqueued next", async () => {
    const setup = setUpFeeder();
    const endOne = beginWaits(setup.feeder, 3);
    setup.feeder.wake("any");
    await pass(10);
    await endOne();

    setup.feeder.start();
    await pass(10);

    expect(setup.told.map(({ want }) => want)).toEqual([1, -1, 1 - 2]);
    await setup.feeder.close();
  });
});

describe("how many jobs a feeder asks for", () => {
  it("is what it starts in 150 ms, less those that wait for their slots", async () => {
    const setup = setUpFeeder();
    for (let count = 0; count < 20; count++) setup.feeder.start();
    const endOne = beginWaits(setup.feeder, 4);
    await endOne();

    setup.feeder.wake("any");
    await pass(10);

    expect(setup.told.at(-1)!.want).toBe(12 - 3);
    await setup.feeder.close();
  });

  it("does not count those that their own key holds back", async () => {
    const setup = setUpFeeder();
    beginWaits(setup.feeder, 5);
    setup.heldBack = 4;

    setup.feeder.wake("any");
    await pass(10);

    expect(setup.told.at(-1)!.want).toBe(1 - 1);
    await setup.feeder.close();
  });

  it("is bounded by its places, but for a tenth that lie ready", async () => {
    const setup = setUpFeeder();
    setup.places = 1;
    for (let count = 0; count < 40; count++) setup.feeder.start();

    setup.feeder.wake("any");
    await pass(10);

    expect(setup.told.at(-1)!.want).toBe(1 + 4);
    await setup.feeder.close();
  });

  it("is below none when it holds more than it starts, by no more than it starts itself", async () => {
    const setup = setUpFeeder();
    beginWaits(setup.feeder, 40);
    setup.feeder.wake("any");
    await pass(10);

    for (let count = 0; count < 20; count++) setup.feeder.start();
    setup.feeder.wake("any");
    await pass(10);

    expect(setup.told.map(({ want }) => want)).toEqual([1, -1, -12]);
    await setup.feeder.close();
  });

  it("is more where a round trip takes long, but no more than it starts in a second", async () => {
    const setup = setUpFeeder();
    const wants: number[] = [];
    for (const tripMs of [20, 500]) {
      setup.answer = () => simulateLatency(tripMs).then(() => ({}));
      for (let trip = 0; trip < 40; trip++) {
        setup.feeder.wake("any");
        await pass(tripMs + 10);
      }
      for (let count = 0; count < 10; count++) setup.feeder.start();
      setup.feeder.wake("any");
      await pass(10);
      wants.push(setup.told.at(-1)!.want);
      await pass(tripMs);
    }
    setup.answer = () => ({});

    expect(wants).toEqual([Math.ceil((10 * (150 + 10 * 20)) / 250), (10 * 1_000) / 250]);
    await setup.feeder.close();
  });

  it("counts a job among those that it holds from the moment in which it tells of it", async () => {
    const setup = setUpFeeder();
    for (let count = 0; count < 10; count++) setup.feeder.start();
    await pass(10);

    const arrivals = ["1", "2", "3"].map((id) => setup.feeder.arrive(id));
    await pass(10);

    await Promise.all(arrivals);
    expect(setup.told.at(-1)).toMatchObject({ arrived: ["1", "2", "3"], want: 6 - 3 });
    await setup.feeder.close();
  });

  it("falls back to one when nothing has started for a while", async () => {
    const setup = setUpFeeder();
    for (let count = 0; count < 10; count++) setup.feeder.start();

    await pass(2_000);

    expect(setup.told.at(-1)!.want).toBe(1);
    await setup.feeder.close();
  });
});

describe("a feeder whose lanes cannot be reached", () => {
  it("asks again about the jobs that arrived, and warns", async () => {
    const setup = setUpFeeder();
    let fails = 2;
    setup.answer = () => {
      fails -= 1;
      if (fails >= 0) throw new Error("no reply");
      return {};
    };

    const arrival = setup.feeder.arrive("1");
    await pass(3_000);

    expect(await arrival).toBe("fed");
    expect(setup.warnings.join()).toMatch(/Could not fetch .+ no reply,.+ no reply$/);
    expect(setup.told.filter(({ arrived }) => arrived.includes("1")).length).toBeGreaterThan(1);
    await setup.feeder.close();
  });

  it("leaves jobs that could not join to come back by themselves, and goes on", async () => {
    const setup = setUpFeeder();
    await pass(10);
    setup.joinFails = true;
    setup.feeder.park({ id: "1" });
    await pass(10);

    setup.joinFails = false;
    setup.feeder.park({ id: "2" });
    await pass(1_100);

    expect(setup.joined).toEqual([[{ id: "2" }]]);
    await setup.feeder.close();
  });

  it("tells once more which keys may have room, and what came of probes", async () => {
    const setup = setUpFeeder();
    await pass(10);
    setup.answer = () => {
      setup.answer = () => ({});
      throw new Error("no reply");
    };

    setup.feeder.wake("*");
    setup.feeder.start({ key: "acme", wentAtOnce: false });
    await pass(1_100);

    expect(setup.told.at(-1)).toMatchObject({ woken: ["*"], probes: [["acme", false]] });
    await setup.feeder.close();
  });

  it("asks once a second while they refuse, whatever has come", async () => {
    const setup = setUpFeeder();
    await pass(10);
    setup.answer = () => {
      throw new Error("LOADING Redis is loading the dataset in memory");
    };

    for (let id = 0; id < 100; id++) {
      void setup.feeder.arrive(String(id));
      setup.feeder.wake(String(id));
      await pass(100);
    }

    expect(setup.warnings.length).toBeGreaterThan(5);
    expect(setup.warnings.length).toBeLessThanOrEqual(12);
    await setup.feeder.close();
  });

  it("does not ask again before the reply to what it asked", async () => {
    const setup = setUpFeeder();
    let reply: () => void = () => {};
    await pass(10);
    setup.answer = () => new Promise((resolve) => (reply = () => resolve({})));
    const arrivals = [setup.feeder.arrive("1")];
    await pass(10);

    arrivals.push(setup.feeder.arrive("2"));
    await pass(5_000);
    const whileUnderWay = setup.told.length;
    setup.answer = () => ({});
    reply();
    await pass(10);

    expect(whileUnderWay).toBe(2);
    expect(await Promise.all(arrivals)).toEqual(["fed", "fed"]);
    await setup.feeder.close();
  });
});

describe("a feeder that is closed", () => {
  it("takes its want back, and leaves no timer behind", async () => {
    const setup = setUpFeeder();
    await pass(10);

    await setup.feeder.close();

    expect(setup.told.at(-1)!.forMs).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("lets those go that wait to hear how they came", async () => {
    const setup = setUpFeeder();
    setup.answer = () => new Promise(() => {});
    const arrival = setup.feeder.arrive("1");
    await pass(0);

    void setup.feeder.close();

    expect(await arrival).toBe("fed");
    expect(await setup.feeder.arrive("2")).toBe("fed");
  });

  it("tells what it had yet to tell", async () => {
    const setup = setUpFeeder();
    await pass(10);
    setup.feeder.wake("acme");
    setup.feeder.park({ id: "1" });

    await setup.feeder.close();

    expect(setup.told.at(-1)!.woken).toEqual(["acme"]);
    expect(setup.joined).toEqual([[{ id: "1" }]]);
  });

  it("still parks jobs that were on their way back", async () => {
    const setup = setUpFeeder();
    await pass(10);
    await setup.feeder.close();

    setup.feeder.park({ id: "1" });
    setup.feeder.park({ id: "2" });
    await pass(10);

    expect(setup.joined.flat()).toEqual([{ id: "1" }, { id: "2" }]);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("says nothing more when its lanes are away", async () => {
    const setup = setUpFeeder();
    await pass(10);
    setup.answer = () => {
      throw new Error("no reply");
    };

    await setup.feeder.close();
    await pass(10_000);

    expect(setup.told.length).toBe(2);
    expect(vi.getTimerCount()).toBe(0);
  });
});
