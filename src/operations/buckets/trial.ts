/** Tries a change of a bucket on the calls of its history, in the simulator. */
import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";
import { formatPolicy, type Policy } from "../../core/policy/policy.ts";
import { arrivalsOfHistory } from "../../entries/simulate/history.ts";
import type { Simulation } from "../../entries/simulate/index.ts";
import type { Run } from "../../entries/simulate/simulate.ts";
import type { OwnedBucket } from "../../throttle/bucket.ts";
import type { History, Point } from "../../throttle/bucket/facts/status.ts";
import { agoField, durationField } from "../fields.ts";
import { operation } from "../operation.ts";
import { COUNT, NUMBER, object, TEXT } from "../shapes.ts";
import { counted, duration } from "../text.ts";
import { BUCKET, LOOK, OF_TARGET } from "./shared.ts";
import { readsPreview } from "./steer.ts";

/** The most calls that a trial simulates. If the history has more, the trial begins shortly before its busiest step. */
const MOST_CALLS = 20_000;
const CALLS_BEFORE = 1_000;
/** A trial stops after this time. Both simulations then end at about the same simulated time. */
const MOST_MS = 10_000;
/** How long a trial runs before the process does other work, and how long it then waits at least, in ms. */
const SLICE_MS = 8;
const PAUSE_MS = 2;
/** The number of steps between two looks at the clock. */
const STEPS = 10;
/** How long a trial goes on after the last arrivals, so that these get their slots if there is room. */
const AFTER_MS = 1_000;
const MOST_REPLICAS = 16;
const DAY_MS = 86_400_000;
const USUAL_DEADLINE_MS = 30_000;

/** The waits of the simulated calls under one policy. */
interface Outcome {
  readonly policy: string;
  readonly started: number;
  /** The calls that still wait when the history ends. */
  readonly waiting: number;
  /** The calls that waited longer than `maxWaitMs`. */
  readonly late: number;
  /** The calls that did not fit into a budget. */
  readonly refused: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly longestMs: number;
}

interface Trial {
  readonly bucket: string;
  /** The part of the history that was simulated, in ms since 1970. */
  readonly fromMs: number;
  readonly untilMs: number;
  /** False if the trial simulated only a part of the history. */
  readonly isWhole: boolean;
  /** The calls of the whole history, and those that arrived in the simulation. */
  readonly callsInHistory: number;
  readonly calls: number;
  /** The calls of the simulated part that the API rejected. */
  readonly rejectedByApi: number;
  readonly maxWaitMs: number;
  readonly now: Outcome;
  readonly after: Outcome;
}

const OUTCOME = object({
  policy: TEXT,
  started: COUNT,
  waiting: COUNT,
  late: COUNT,
  refused: COUNT,
  p50Ms: NUMBER,
  p99Ms: NUMBER,
  longestMs: NUMBER,
});

export const trial = operation({
  ...LOOK,
  name: "bucket.trial",
  target: "bucket",
  summary: "How long the calls of the last hours would have waited under another policy",
  input: z.strictObject({
    ...BUCKET,
    policy: z.looseObject({}).describe('Options of a bucket, such as { "rate": "20/s" }.'),
    sinceMs: agoField(
      "last",
      "The beginning of the history, in ms since 1970. Defaults to 24 hours ago.",
      "how much of the history, up to 24h; defaults to 24h",
    ),
    maxWaitMs: durationField(
      "max-wait",
      "Counts the calls that would wait longer, in ms. Defaults to 30 seconds.",
      "counts the calls that would wait longer; defaults to 30s",
    ),
  }),
  answers:
    "The waits of the same simulated calls under the policy in force and under the other one. The arrivals are drawn at random from the counts of each ten seconds.",
  output: object({
    bucket: TEXT,
    fromMs: NUMBER,
    untilMs: NUMBER,
    isWhole: { type: "boolean" },
    callsInHistory: COUNT,
    calls: COUNT,
    rejectedByApi: COUNT,
    maxWaitMs: NUMBER,
    now: OUTCOME,
    after: OUTCOME,
  }),
  privacy: OF_TARGET,
  async run(context, { bucket: name, policy: change, sinceMs, maxWaitMs = USUAL_DEADLINE_MS }) {
    const found = (await context.bucket(name)) as OwnedBucket;
    const where = `bucket(${JSON.stringify(name)}).trial()`;
    const [now, after, history, { reports }] = await Promise.all([
      found.inForce(),
      found.suppose(where, change),
      found.history({ sinceMs: sinceMs ?? Date.now() - DAY_MS }),
      found.status(),
    ]);
    if (now.policy.pool !== undefined) {
      const remedy = "give a bucket that is no pool; the simulator knows no members";
      throw new InvalidOptionError({ where, option: "bucket", value: name, remedy });
    }
    if (history.points.length === 0) {
      const remedy = "no call started in this time; give an earlier time, up to 24 hours ago";
      throw new InvalidOptionError({ where, option: "sinceMs", value: sinceMs, remedy });
    }
    const policies = [now.policy, after.policy] as const;
    const replicas = Math.min(MOST_REPLICAS, Math.max(1, reports.length));
    return oneAtATime(() => tryOut({ name, history, policies, replicas, maxWaitMs }));
  },
  http: { path: "POST /api/v1/buckets/:bucket/trial", tag: "steering" },
  cli: {
    command: "try <name>",
    args: ["bucket"],
    about:
      "how long the calls of the last hours would have waited under other limits; changes nothing",
    examples: ["sluice try stripe --rate 20/s", "sluice try stripe --rate 20/s --last 1h"],
    ...readsPolicy(),
    show: showTrial,
  },
});

/** Reads the policy, without the pause that a preview also knows. */
function readsPolicy(): Pick<ReturnType<typeof readsPreview>, "hidden" | "options" | "read"> {
  const { options = [], read } = readsPreview();
  return {
    hidden: ["policy"],
    options: options.filter(([flags]) => flags !== "--paused"),
    read: (given, args) => ({ policy: read!(given, args)["policy"] }),
  };
}

let last: Promise<unknown> = Promise.resolve();

/** Trials of a process run one after the other, so that they leave time for other work. */
function oneAtATime<Result>(run: () => Promise<Result>): Promise<Result> {
  const running = last.then(run);
  last = running.catch(() => {});
  return running;
}

async function tryOut(given: {
  readonly name: string;
  readonly history: History;
  readonly policies: readonly [now: Policy, after: Policy];
  readonly replicas: number;
  readonly maxWaitMs: number;
}): Promise<Trial> {
  const { name, history, policies, replicas, maxWaitMs } = given;
  // Loaded only here, because the simulator contains the translated scripts.
  const { openRun } = await import("../../entries/simulate/simulate.ts");
  const points = busiestPart(history.points);
  const fromMs = points[0]!.atMs;
  const spanMs = points.at(-1)!.atMs + history.stepMs - fromMs;
  const late = [0, 0];
  const runs = policies.map((policy, index) =>
    openRun({
      policy,
      arrivals: arrivalsOfHistory({ stepMs: history.stepMs, points }),
      replicas,
      downstream: {},
      seed: 1,
      roundTripMs: 1,
      untilMs: spanMs + AFTER_MS,
      onCall({ arrivedMs, startedMs }) {
        if (startedMs - arrivedMs > maxWaitMs) late[index]! += 1;
      },
    }),
  );
  const isFinished = await runTogether(runs);
  const [now, after] = runs.map((run) => run.found());
  const outcomeOf = (index: 0 | 1, found: Simulation): Outcome => ({
    policy: formatPolicy(policies[index]),
    started: found.started,
    waiting: found.waiting,
    late: late[index]!,
    refused: found.refused,
    p50Ms: found.waits.p50Ms,
    p99Ms: found.waits.p99Ms,
    longestMs: found.waits.maxMs,
  });
  const untilMs = fromMs + (isFinished ? spanMs : Math.min(now!.endMs, after!.endMs));
  return {
    bucket: name,
    fromMs,
    untilMs,
    isWhole: isFinished && points.length === history.points.length,
    callsInHistory: callsOf(history.points),
    calls: now!.calls,
    rejectedByApi: points
      .filter(({ atMs }) => atMs < untilMs)
      .reduce((sum, { refused }) => sum + refused, 0),
    maxWaitMs,
    now: outcomeOf(0, now!),
    after: outcomeOf(1, after!),
  };
}

const callsOf = (points: readonly Point[]): number =>
  points.reduce((sum, { started }) => sum + started, 0);

/** Returns the steps from shortly before the busiest one, as long as they have few enough calls. */
function busiestPart(points: readonly Point[]): readonly Point[] {
  if (callsOf(points) <= MOST_CALLS) return points;
  const busiest = points.reduce(
    (most, { started }, index) => (started > points[most]!.started ? index : most),
    0,
  );
  let from = busiest;
  for (let calls = 0; from > 0; from -= 1) {
    calls += points[from - 1]!.started;
    if (calls > CALLS_BEFORE) break;
  }
  let until = from;
  for (let calls = 0; until < points.length; until += 1) {
    calls += points[until]!.started;
    if (calls > MOST_CALLS && until > busiest) break;
  }
  return points.slice(from, until);
}

/** Runs simulations until all have ended or the time is over, at about the same simulated time. */
async function runTogether(runs: readonly Run[]): Promise<boolean> {
  const open = new Set(runs);
  const endsMs = performance.now() + MOST_MS;
  while (open.size > 0) {
    const sliceEndsMs = performance.now() + SLICE_MS;
    while (open.size > 0 && performance.now() < sliceEndsMs) {
      const behind = [...open].reduce((least, run) => (run.nowMs < least.nowMs ? run : least));
      if (!behind.advance(STEPS)) open.delete(behind);
    }
    if (performance.now() > endsMs) return open.size === 0;
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  return true;
}

function showTrial(shown: Trial): string[] {
  const { bucket: name, fromMs, untilMs, isWhole, callsInHistory, calls, maxWaitMs } = shown;
  const part = isWhole
    ? ""
    : ` (a part with the busiest step of ${counted(callsInHistory, "call")})`;
  const line = ({ policy, started, waiting, late, refused, p50Ms, p99Ms, longestMs }: Outcome) =>
    [
      `${policy}: half of ${counted(started, "call")} wait up to ${duration(p50Ms)}`,
      `99 % up to ${duration(p99Ms)}`,
      `the longest ${duration(longestMs)}`,
      `${late} longer than ${duration(maxWaitMs)}`,
      `${waiting} still wait at the end`,
      `${refused} do not fit into a budget.`,
    ].join(", ");
  return [
    `${name}: ${counted(calls, "simulated call")} in ${duration(untilMs - fromMs)} from ${new Date(fromMs).toISOString()}${part}.`,
    `now    ${line(shown.now)}`,
    `after  ${line(shown.after)}`,
    `In this time, the API rejected ${counted(shown.rejectedByApi, "call")}.`,
    "Nothing was changed. The arrivals are drawn at random from the counts of each ten seconds.",
  ];
}
