import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { encodeKey } from "../../../../src/core/key-path.ts";
import {
  createBreaker,
  type Breaker,
  type BreakerCall,
  type BreakerSettings,
  type Pass,
} from "../../../../src/throttle/outage/breaker.ts";

const SETTINGS = { failures: 3, coolMs: 100, maxCoolMs: 300 };
const AWAY = { thrown: Object.assign(new Error("refused"), { code: "ECONNREFUSED" }) };

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

function open(settings: BreakerSettings | false | "unset" = SETTINGS) {
  const cooled: [key: string | undefined, coolMs: number][] = [];
  const lines: string[] = [];
  const told: [key: string | undefined, news: number | "back"][] = [];
  const breaker = createBreaker({
    bucket: "b",
    settings: settings === "unset" ? undefined : settings,
    logger: { warn: (_facts, text) => void lines.push(text), error: () => {} },
    hasOwnLimits: (key) => key === "limited",
    coolDown: (...change) => void cooled.push(change),
    onChange: (key, { isBack, forMs }) => void told.push([key, isBack ? "back" : forMs]),
  });
  return { breaker, cooled, lines, told };
}

const job = (id: string | number, key?: string): BreakerCall => ({ id: String(id), key });

function enter(breaker: Breaker, call: BreakerCall): Pass {
  const pass = breaker.enter(call);
  if (!pass.passes) throw new Error(`${call.id} is blocked for ${pass.inMs} ms`);
  return pass;
}

function fail(breaker: Breaker, call: BreakerCall): string {
  const spared = breaker.failed(call, enter(breaker, call), AWAY);
  return spared === undefined ? "counts" : spared.scope;
}

function succeed(breaker: Breaker, call: BreakerCall): void {
  breaker.succeeded(call, enter(breaker, call));
}

describe("the breaker of a bucket", () => {
  it("opens after several failed jobs in a row, cools the bucket down once, and then tries one job at a time", () => {
    const { breaker, cooled, lines, told } = open();

    expect([1, 2, 3].map((id) => fail(breaker, job(id)))).toEqual(["counts", "counts", "bucket"]);
    expect(breaker.blocked(job(4))).toMatchObject({ scope: "bucket", inMs: 100 });
    expect(breaker.admits).toBe(0);

    vi.advanceTimersByTime(100);
    expect(breaker.admits).toBe(1);
    const probe = enter(breaker, job(4));
    expect(probe.isProbe).toBe(true);
    expect(breaker.admits).toBe(0);
    expect(breaker.enter(job(5)).passes).toBe(false);
    expect(breaker.failed(job(4), probe, AWAY)).toMatchObject({ inMs: 200 });

    vi.advanceTimersByTime(200);
    expect(breaker.failed(job(5), enter(breaker, job(5)), AWAY)).toMatchObject({ inMs: 300 });
    vi.advanceTimersByTime(300);
    expect(breaker.failed(job(6), enter(breaker, job(6)), AWAY)).toMatchObject({ inMs: 300 });
    vi.advanceTimersByTime(300);
    succeed(breaker, job(7));

    expect(breaker.admits).toBe(Infinity);
    expect(cooled).toEqual([[undefined, 100]]);
    expect(told.map(([, news]) => news)).toEqual([100, 200, 300, 300, "back"]);
    expect(lines).toEqual([
      expect.stringMatching(
        /bucket "b" is unreachable after 3 failures in a row \(Error: refused\)/,
      ),
      expect.stringMatching(/answers again/),
    ]);
  });

  it("begins its row anew after a success", () => {
    const { breaker } = open();
    fail(breaker, job(1));
    fail(breaker, job(2));
    succeed(breaker, job(3));

    expect([4, 5, 6].map((id) => fail(breaker, job(id)))).toEqual(["counts", "counts", "bucket"]);
  });

  it("does not open by one job alone, nor by one that fails while others go well", () => {
    const { breaker } = open();
    const alone = Array.from({ length: 9 }, () => fail(breaker, job(1)));
    const bad = ["a", "b", "c", "d"].map((id) => job(id));
    for (const each of bad) {
      fail(breaker, each);
      succeed(breaker, job("good"));
    }
    const later = bad.map((each) => fail(breaker, each));

    expect(new Set([...alone, ...later])).toEqual(new Set(["counts"]));
  });

  it("spares those that ran when it opened, and those that hung since before it was closed", () => {
    const { breaker } = open();
    const [running, hanging] = [enter(breaker, job("r")), enter(breaker, job("h"))];
    for (const id of [1, 2, 3]) fail(breaker, job(id));
    const duringOutage = breaker.failed(job("r"), running, AWAY);
    vi.advanceTimersByTime(100);
    succeed(breaker, job(4));
    const afterwards = breaker.failed(job("h"), hanging, AWAY);

    expect(duringOutage).toMatchObject({ scope: "bucket" });
    expect(afterwards).toMatchObject({ scope: "bucket" });
    expect(breaker.admits).toBe(Infinity);
  });

  it("is not closed by a job that began before it opened", () => {
    const { breaker } = open();
    const early = enter(breaker, job("early"));
    vi.advanceTimersByTime(1);
    for (const id of [1, 2, 3]) fail(breaker, job(id));
    breaker.succeeded(job("early"), early);

    expect(breaker.admits).toBe(0);
  });

  it("lets another job try when one hangs, or has left", () => {
    const { breaker } = open();
    for (const id of [1, 2, 3]) fail(breaker, job(id));
    vi.advanceTimersByTime(100);
    enter(breaker, job("hangs"));
    vi.advanceTimersByTime(300);
    const second = enter(breaker, job("leaves"));
    breaker.release(job("leaves"), second);

    expect(enter(breaker, job("third")).isProbe).toBe(true);
  });

  it("lets no second job try beside one that tries, when an earlier one takes long to go back", () => {
    const { breaker } = open();
    for (const id of [1, 2, 3]) fail(breaker, job(id));
    vi.advanceTimersByTime(100);
    const first = enter(breaker, job(4));
    breaker.failed(job(4), first, AWAY);
    vi.advanceTimersByTime(200);
    enter(breaker, job(5));
    breaker.release(job(4), first);

    expect(breaker.enter(job(6)).passes).toBe(false);
  });

  it("lets no second job try beside one that tries, when one that hung has left", () => {
    const { breaker } = open();
    for (const id of [1, 2, 3]) fail(breaker, job(id));
    vi.advanceTimersByTime(100);
    const hung = enter(breaker, job("hangs"));
    vi.advanceTimersByTime(300);
    enter(breaker, job(5));
    breaker.failed(job("hangs"), hung, AWAY);
    breaker.release(job("hangs"), hung);

    expect(breaker.enter(job(6)).passes).toBe(false);
    vi.advanceTimersByTime(300);
    // Only what came of the one that tries could make it wait longer.
    expect(breaker.enter(job(6)).passes).toBe(true);
  });

  it("closes by an answer, whatever it is", () => {
    const { breaker } = open();
    for (const id of [1, 2, 3]) fail(breaker, job(id));
    vi.advanceTimersByTime(100);

    expect(breaker.failed(job(4), enter(breaker, job(4)), undefined)).toBeUndefined();
    expect(breaker.admits).toBe(Infinity);
  });

  it("opens as another process has", () => {
    const { breaker } = open();
    breaker.adoptOpen(undefined, 250);

    expect(breaker.isOpenFor(job(1))).toBe(true);
    expect(breaker.blocked(job(1))).toMatchObject({ scope: "bucket", inMs: 250 });
    expect(breaker.unreachableForMs).toBe(250);
    vi.advanceTimersByTime(250);
    expect(breaker.unreachableForMs).toBe(1);
  });

  it("lets a job try at once, where another process has opened before this one began", () => {
    const { breaker } = open();
    breaker.adoptOpen(undefined, 250, { triesAtOnce: true });

    expect(enter(breaker, job(1)).isProbe).toBe(true);
    expect(breaker.enter(job(2)).passes).toBe(false);
  });

  it("never opens if it is off", () => {
    const { breaker, cooled } = open(false);
    const outcomes = Array.from({ length: 20 }, (_, id) => fail(breaker, job(id)));

    expect(new Set(outcomes)).toEqual(new Set(["counts"]));
    expect(breaker.admits).toBe(Infinity);
    expect(cooled).toEqual([]);
  });
});

describe("the breaker of a bucket with keys", () => {
  it("holds one key back by its own jobs, and no other", () => {
    const { breaker, cooled } = open();
    const outcomes = [1, 2, 3].map((id) => fail(breaker, job(id, "acme")));

    expect(outcomes).toEqual(["counts", "counts", "key"]);
    expect(breaker.blocked(job(4, "acme"))).toMatchObject({ scope: "key" });
    expect(breaker.blocked(job(5, "bolt"))).toBeUndefined();
    expect(breaker.blocked(job(6))).toBeUndefined();
    expect(breaker.admits).toBe(Infinity);
    // A key without limits of its own has nothing that could be cooled down.
    expect(cooled).toEqual([]);
  });

  it("names the key in the log, and says that other keys continue, when only one key is unreachable", () => {
    const { breaker, lines } = open();
    for (const id of [1, 2, 3]) fail(breaker, job(id, "acme"));
    for (const id of [4, 5, 6]) fail(breaker, job(id, encodeKey(["bolt", "endpoint-7"])));
    vi.advanceTimersByTime(100);
    succeed(breaker, job(7, "acme"));

    expect(
      lines.map((line) =>
        line.replace(/ is unreachable.*\./, " is unreachable … Other keys continue."),
      ),
    ).toEqual([
      'Key "acme" of bucket "b": its downstream is unreachable … Other keys continue.',
      'Key ["bolt","endpoint-7"] of bucket "b": its downstream is unreachable … Other keys continue.',
      'Key "acme" of bucket "b": its downstream answers again (after 1 s).',
    ]);
    expect(lines[0]).toContain("Other keys continue");
  });

  it("cools down a key that has separate limits", () => {
    const { breaker, cooled } = open();
    for (const id of [1, 2, 3]) fail(breaker, job(id, "limited"));

    expect(cooled).toEqual([["limited", 100]]);
  });

  it("opens for all by several keys in a row, each of which counts once", () => {
    const { breaker } = open();
    fail(breaker, job(1, "a"));
    fail(breaker, job(2, "a"));
    fail(breaker, job(3, "b"));
    const before = breaker.blocked(job(9, "z"));
    const third = fail(breaker, job(4, "c"));

    expect(before).toBeUndefined();
    expect(third).toBe("bucket");
    expect(breaker.blocked(job(9, "z"))).toMatchObject({ scope: "bucket" });
  });
});

describe("a bucket whose calls count too", () => {
  it("cools down, and longer each time that the next call meets the same", () => {
    const { breaker, cooled } = open();
    for (let call = 0; call < 3; call++) breaker.noteCall(undefined, AWAY.thrown);
    breaker.noteCall(undefined, AWAY.thrown);
    vi.advanceTimersByTime(100);
    breaker.noteCall(undefined, AWAY.thrown);
    vi.advanceTimersByTime(200);
    breaker.noteCall(undefined, "a result");
    breaker.noteCall(undefined, AWAY.thrown);

    expect(cooled).toEqual([
      [undefined, 100],
      [undefined, 200],
    ]);
  });

  it("does nothing unless the breaker was set", () => {
    const { breaker, cooled } = open("unset");
    for (let call = 0; call < 20; call++) breaker.noteCall(undefined, AWAY.thrown);

    expect(cooled).toEqual([]);
  });
});
