import { expect, inject, it } from "vitest";
import type { Priority } from "sluice";
import { simulate } from "sluice/simulate";
import type { Arrival as Request } from "sluice/testing";
import { createRandom, exponential } from "../../../src/entries/simulate/random.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { children } from "../../support/children/child.ts";
import type { TimedCallerSettings } from "../../support/processes/timed-caller.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const processes = children();
const sluices = realSluices();
const downstream = useDownstream();

const PER_SECOND = 100;
const INTERVAL_MS = 1_000 / PER_SECOND;
const POLICY = { rate: `${PER_SECOND}/s` } as const;
const LOAD = { perSecond: 160, forMs: 3_000, keys: { large: 0.7, small: 0.2, tiny: 0.1 } };

/** The bounds that docs/guides/operate/simulate.md states. */
const HORIZON_MS = 100;
/** A call may wait this long for a reply of Redis before the time counts as lost. */
const DRAW_MS = 10;
const MOST_APART = 0.1;
const SHARES_APART = 0.05;

interface Call {
  readonly calledMs: number;
  /** How late the process made the call, because it was busy or the machine was. */
  readonly lateMs: number;
  readonly slotMs: number;
  readonly key: string;
  readonly priority: Priority;
  readonly replica: number;
}

type Timed = TimedCallerSettings["calls"][number];

/** Draws the calls of each process from a seed. */
function callsOf(replicas: number, seed: number): readonly (readonly Timed[])[] {
  const random = createRandom(seed);
  const all: Timed[][] = Array.from({ length: replicas }, () => []);
  const { perSecond, forMs, keys } = LOAD;
  for (let atMs = 0; atMs < forMs; atMs += exponential(random, perSecond / 1_000)) {
    let left = random();
    const key = Object.entries(keys).find(([, share]) => (left -= share) < 0)?.[0] ?? "large";
    const priority = random() < 0.1 ? "critical" : "normal";
    all[Math.floor(random() * replicas)]!.push({ atMs, key, priority });
  }
  return all;
}

function readCall({ headers }: Request): Call {
  return {
    calledMs: Number(headers["x-called-ms"]),
    lateMs: Number(headers["x-late-ms"]),
    slotMs: Number(headers["x-slot-ms"]),
    key: String(headers["x-key"]),
    priority: headers["x-priority"] as Priority,
    replica: Number(headers["x-replica"]),
  };
}

/**
 * Takes the time out of a run in which the bucket gave no slot although a call waited: on a busy machine all processes
 * can be late together. The times then begin with the first call. `mostLateMs` is the longest time for which a process
 * or all of them were late.
 */
function withoutLostTime(calls: readonly Call[]): {
  readonly real: readonly Call[];
  readonly mostLateMs: number;
} {
  const bySlot = calls.toSorted((a, b) => a.slotMs - b.slotMs);
  const byCall = calls.toSorted((a, b) => a.calledMs - b.calledMs);
  const lost: { readonly fromMs: number; readonly untilMs: number }[] = [];
  for (const [index, { slotMs: untilMs }] of bySlot.entries()) {
    const before = bySlot[index - 1]?.slotMs ?? byCall[0]!.calledMs;
    const waiting = bySlot.slice(index).map(({ calledMs }) => calledMs);
    const fromMs = Math.max(before + INTERVAL_MS, Math.min(...waiting) + DRAW_MS);
    if (untilMs > fromMs) lost.push({ fromMs, untilMs });
  }
  const startMs = byCall[0]!.calledMs;
  const moved = (atMs: number): number =>
    lost.reduce(
      (left, { fromMs, untilMs }) => left - Math.max(0, Math.min(atMs, untilMs) - fromMs),
      atMs - startMs,
    );
  const real = bySlot.map((call) => ({
    ...call,
    calledMs: moved(call.calledMs),
    slotMs: moved(call.slotMs),
  }));
  const lostMs = lost.map(({ fromMs, untilMs }) => untilMs - fromMs);
  return { real, mostLateMs: Math.max(...lostMs, ...calls.map(({ lateMs }) => lateMs)) };
}

/** Simulates the calls at the times at which the processes made them. */
function simulated(calls: readonly Call[], replicas: number): Call[] {
  const made: Call[] = [];
  simulate({
    policy: POLICY,
    arrivals: calls
      .toSorted((a, b) => a.calledMs - b.calledMs)
      .map(({ calledMs: atMs, key, priority, replica }) => ({ atMs, key, priority, replica })),
    replicas,
    downstream: { latencyMs: 1 },
    onCall: ({ arrivedMs, startedMs, key, priority, replica }) =>
      void made.push({
        calledMs: arrivedMs,
        lateMs: 0,
        slotMs: startedMs,
        key: key as string,
        priority,
        replica,
      }),
  });
  return made;
}

function waitOf(calls: readonly Call[], part: number): number {
  const sorted = calls.map(({ slotMs, calledMs }) => slotMs - calledMs).sort((a, b) => a - b);
  return sorted[Math.ceil(sorted.length * part) - 1]!;
}

function groupsOf(calls: readonly Call[]): Map<string, Call[]> {
  const groups = new Map<string, Call[]>();
  for (const call of calls) {
    const name = `${call.key}, ${call.priority}`;
    groups.set(name, [...(groups.get(name) ?? []), call]);
  }
  return groups;
}

function countsOf(calls: readonly Call[]): Readonly<Record<string, number>> {
  return Object.fromEntries([...groupsOf(calls)].map(([name, group]) => [name, group.length]));
}

/** A process that is late loses its turns to the others for that time. */
const areWaitsClose = (one: number, other: number, mostLateMs: number): boolean =>
  Math.abs(one - other) <= HORIZON_MS + mostLateMs + MOST_APART * Math.max(one, other);

const areSharesClose = (one: number, other: number, lateCalls: number): boolean =>
  Math.abs(one - other) <= SHARES_APART + lateCalls;

function sharesOfFirstHalf(calls: readonly Call[]): Readonly<Record<string, number>> {
  const first = calls.toSorted((a, b) => a.slotMs - b.slotMs).slice(0, calls.length / 2);
  return Object.fromEntries(
    [...groupsOf(first)].map(([name, group]) => [name, group.length / first.length]),
  );
}

it.each([2, 4])(
  "%i processes get the slots that the simulator predicts, by key and priority",
  // A busy machine may delay one process for longer than the bounds allow.
  { timeout: 60_000, retry: 3 },
  async (replicas) => {
    const settings = {
      redis: inject("redisUrl"),
      prefix: sluices.prefix(),
      url: downstream.url,
      policy: POLICY,
    };
    const started = callsOf(replicas, 11).map((calls, index) =>
      processes.start("timed-caller.ts", [JSON.stringify({ ...settings, calls }), String(index)]),
    );
    await waitUntil(() => started.every(({ messages }) => messages.length === 1), "all are ready");
    for (const each of started) each.send("go");
    await Promise.all(started.map((each) => each.success()));

    const { real, mostLateMs } = withoutLostTime(downstream.arrivals.map(readCall));
    const predicted = simulated(real, replicas);

    expect(predicted).toHaveLength(real.length);
    const [last, lastPredicted] = [real, predicted].map((calls) =>
      Math.max(...calls.map(({ slotMs }) => slotMs)),
    );
    expect(Math.abs(last! - lastPredicted!)).toBeLessThanOrEqual(HORIZON_MS);
    expect(countsOf(predicted)).toEqual(countsOf(real));
    const [sharesReal, sharesPredicted] = [real, predicted].map(sharesOfFirstHalf);
    const [realGroups, predictedGroups] = [real, predicted].map(groupsOf);
    const latePart = mostLateMs / INTERVAL_MS / (real.length / 2);
    const compared = [...realGroups!].flatMap(([name, group]) => {
      const waits = [0.5, 0.95].map((part) => {
        const [one, other] = [group, predictedGroups!.get(name)!].map((calls) =>
          waitOf(calls, part),
        );
        return [`wait ${part}`, one!, other!, areWaitsClose(one!, other!, mostLateMs)] as const;
      });
      const [one, other] = [sharesReal![name] ?? 0, sharesPredicted![name] ?? 0];
      const share = ["share", one, other, areSharesClose(one, other, latePart)] as const;
      return [...waits, share].map(([what, ...rest]) => [`${name}: ${what}`, ...rest] as const);
    });
    expect(compared.filter(([, , , isClose]) => !isClose)).toEqual([]);
  },
);
