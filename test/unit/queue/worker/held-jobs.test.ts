import { describe, expect, it, vi } from "vitest";
import { createRunning, type OwnedJobContext } from "../../../../src/queue/worker/context.ts";
import { createFetchedJobs } from "../../../../src/queue/worker/held/held-jobs.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";

const pass = fakeTimers();

function setUp() {
  const told: (readonly string[])[] = [];
  const setup = {
    told,
    answer: (): Promise<void> => Promise.resolve(),
    async reportFetched({ ids }: { readonly ids: readonly string[] }): Promise<void> {
      told.push(ids);
      await setup.answer();
    },
  };
  const running = createRunning();
  const jobs = createFetchedJobs({ lanes: setup, queue: "jobs", workerId: "w", running });
  const contexts = new Map<string, OwnedJobContext>();
  const held = {
    add(id: string) {
      contexts.set(id, running.add({ jobId: id, token: "t", attempt: 1 }));
      jobs.add();
    },
    delete(id: string) {
      running.started(contexts.get(id)!);
      jobs.remove(id);
    },
    close: () => jobs.close(),
  };
  return Object.assign(setup, { held });
}

describe("a worker's report of the jobs that it holds and has not begun", () => {
  it("is empty while each begins soon", async () => {
    const { held, told } = setUp();

    for (let id = 0; id < 100; id++) {
      held.add(String(id));
      await pass(40);
      held.delete(String(id));
    }
    await pass(1_000);

    expect(told).toEqual([]);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("contains all held jobs in order, once the first has waited long", async () => {
    const { held, told } = setUp();
    held.add("1");
    await pass(40);
    held.add("2");

    await pass(20);
    held.add("3");
    await pass(100);

    expect(told).toEqual([
      ["1", "2"],
      ["1", "2", "3"],
    ]);
    await held.close();
  });

  it("is sent ten times a second as they change, and once while they stay the same", async () => {
    const { held, told } = setUp();
    for (let id = 0; id < 20; id++) held.add(String(id));
    await pass(60);
    for (let id = 0; id < 15; id++) {
      held.delete(String(id));
      await pass(20);
    }
    const asTheyGo = told.map(([first]) => first);

    await pass(5_000);

    expect(asTheyGo).toEqual(["0", "5", "10", "15"]);
    expect(told).toHaveLength(4 + 5);
    await held.close();
  });

  it("is sent again when the same number of other jobs waits", async () => {
    const { held, told } = setUp();
    held.add("1");
    held.add("2");
    await pass(60);

    held.delete("1");
    held.add("3");
    await pass(100);

    expect(told).toEqual([
      ["1", "2"],
      ["2", "3"],
    ]);
    await held.close();
  });

  it("drops jobs that have begun", async () => {
    const { held, told } = setUp();
    held.add("1");
    await pass(50);
    held.add("2");
    await pass(60);
    held.add("3");

    held.delete("1");

    expect(told).toEqual([["1"], ["2", "3"]]);
    await held.close();
  });

  it("contains the first thousand", async () => {
    const { held, told } = setUp();
    for (let id = 0; id < 1_100; id++) held.add(String(id));

    await pass(60);

    expect(told.map((ids) => [ids.length, ids.at(-1)])).toEqual([[1_000, "999"]]);
    await held.close();
  });

  it("contains a job once that lost its lock and was fetched again", async () => {
    const { held, told } = setUp();
    held.add("1");
    held.add("1");

    await pass(110);

    expect(told).toEqual([["1"]]);
    await held.close();
  });

  it("becomes empty immediately and only once", async () => {
    const { held, told } = setUp();
    held.add("1");
    await pass(150);

    held.delete("1");
    held.delete("1");
    await pass(1_000);

    expect(told).toEqual([["1"], []]);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("waits for the reply to the previous one", async () => {
    const setup = setUp();
    let reply = (): void => {};
    setup.answer = () => new Promise((resolve) => (reply = resolve));
    setup.held.add("1");
    await pass(2_000);
    setup.held.delete("1");
    const whileUnderWay = [...setup.told];

    reply();
    await pass(10);

    expect(whileUnderWay).toEqual([["1"]]);
    expect(setup.told).toEqual([["1"], []]);
  });

  it("is sent again when it could not be sent", async () => {
    const setup = setUp();
    setup.answer = () => Promise.reject(new Error("no reply"));
    setup.held.add("1");
    await pass(60);

    setup.answer = () => Promise.resolve();
    await pass(250);

    expect(setup.told).toEqual([["1"], ["1"]]);
    await setup.held.close();
  });

  it("is withdrawn by a closing worker, which leaves no timer behind", async () => {
    const { held, told } = setUp();
    held.add("1");
    await pass(150);

    await held.close();
    held.add("2");
    await pass(1_000);

    expect(told).toEqual([["1"], []]);
    expect(vi.getTimerCount()).toBe(0);
  });
});
