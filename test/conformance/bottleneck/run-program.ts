/** Runs random programs on a limiter in virtual time, for Bottleneck itself and for its drop-in. */
import { callbackify } from "node:util";
import type Bottleneck from "sluice/bottleneck";
import { beginVirtualTime, type VirtualTime } from "../mixes/virtual-time.ts";

type LimiterClass = typeof Bottleneck;

/** What the function of a job does: it returns at once, throws, or waits until an operation ends it. */
type Work = "return" | "throw" | "wait";

export type Operation =
  | {
      readonly do: "schedule" | "submit" | "wrap";
      readonly work: Work;
      readonly options: Bottleneck.JobOptions;
      /** How often the listener of `"failed"` asks for another attempt. */
      readonly retries: number;
    }
  /** Ends the job that has waited longest, or the next ones in turn. */
  | { readonly do: "end"; readonly nth: number }
  | { readonly do: "update"; readonly settings: Bottleneck.ConstructorOptions }
  | { readonly do: "increment"; readonly by: number }
  | { readonly do: "stop" };

export interface Program {
  readonly settings: Bottleneck.ConstructorOptions;
  /** The operations, and the time after each. A later one may find jobs that wait for their pace or their retry. */
  readonly operations: readonly { readonly what: Operation; readonly thenMs: number }[];
}

/** What was seen after each operation. */
export interface Step {
  readonly operation: Operation["do"] | "finish";
  /** The events of each job, with their times after the operation, and the result of each call. */
  readonly ofJobs: Readonly<Record<string, readonly string[]>>;
  /** The order in which jobs were queued, started, dropped and finished. */
  readonly orders: Readonly<Record<string, readonly string[]>>;
  readonly ofLimiter: readonly string[];
  readonly state: unknown;
}

/** Longer than all that a limiter does by itself. */
const QUIET_MS = 2_000;
const RETRY_MS = 100;
/** Both limiters take some timers of a millisecond for steps in between. Times of programs are multiples of 50. */
const ROUND_TO_MS = 25;
const JOB_EVENTS = ["received", "queued", "scheduled", "executing", "failed", "done"] as const;
const ORDERED = new Set(["queued", "executing", "done", "dropped"]);

export async function runProgram(Limiter: LimiterClass, program: Program): Promise<Step[]> {
  const time = beginVirtualTime();
  try {
    return await runIn(time, Limiter, program);
  } finally {
    time.end();
  }
}

async function runIn(
  time: VirtualTime,
  Limiter: LimiterClass,
  { settings, operations }: Program,
): Promise<Step[]> {
  const limiter = new Limiter(settings);
  const steps: Step[] = [];
  const waiting: (() => void)[] = [];
  const retriesOf = new Map<string, number>();
  let hasReservoir = typeof settings.reservoir === "number";
  let sinceMs = time.now();
  let ofJobs: Record<string, string[]> = {};
  let orders: Record<string, string[]> = {};
  let ofLimiter: string[] = [];

  const note = (id: string, what: string): void => {
    const ms = Math.round((time.now() - sinceMs) / ROUND_TO_MS) * ROUND_TO_MS;
    (ofJobs[id] ??= []).push(`${what} at ${ms}`);
    const [event] = what.split(" ");
    if (ORDERED.has(event!)) (orders[event!] ??= []).push(id);
  };
  for (const name of JOB_EVENTS) {
    (limiter.on as (name: string, listener: (...given: never[]) => unknown) => unknown)(
      name,
      (...given: never[]) => {
        const info = given.at(-1)! as Bottleneck.EventInfoRetryable & Bottleneck.EventInfoQueued;
        const { options, retryCount, reachedHWM } = info;
        const facts = { retryCount, reachedHWM, priority: options.priority };
        note(options.id, `${name} ${JSON.stringify(facts)}`);
        if (name !== "failed") return undefined;
        return retryCount < (retriesOf.get(options.id) ?? 0) ? RETRY_MS : undefined;
      },
    );
  }
  limiter.on("retry", (_message, { options }) => note(options.id, "retry"));
  limiter.on("dropped", ({ options, args }) => note(options.id, `dropped ${args.join()}`));
  for (const name of ["empty", "idle"] as const) limiter.on(name, () => void ofLimiter.push(name));
  limiter.on("error", (error: Error) => void ofLimiter.push(`error ${error.message}`));

  async function passed<Result>(promise: Promise<Result>, ms = 50): Promise<Result | string> {
    const result = promise.catch((error: Error) => `error ${error.message}`);
    await time.runUntil(time.now() + ms);
    return Promise.race([result, Promise.resolve("pending")]);
  }

  async function stateNow(): Promise<unknown> {
    const counts = limiter.counts();
    const asked = Promise.all([
      limiter.running(),
      limiter.done(),
      limiter.currentReservoir(),
      limiter.check(1),
      limiter.check(2),
    ]);
    const asking = [limiter.empty(), limiter.queued(), limiter.queued(5), limiter.jobs("QUEUED")];
    return { counts, asking, asked: await passed(asked) };
  }

  async function endStep(operation: Step["operation"], ms: number): Promise<void> {
    await time.runUntil(sinceMs + ms);
    const state = await stateNow();
    steps.push({ operation, ofJobs, orders, ofLimiter, state });
    [sinceMs, ofJobs, orders, ofLimiter] = [time.now(), {}, {}, []];
  }

  async function work(id: string, kind: Work): Promise<string> {
    if (kind === "throw") throw new Error(`failed ${id}`);
    if (kind === "wait") await new Promise<void>((resolve) => void waiting.push(resolve));
    return id;
  }

  function begin(what: Operation, number: number): void {
    // Without a reservoir, Bottleneck creates one, and `sluice/bottleneck` does nothing.
    if (what.do === "increment" && !hasReservoir) return;
    if (what.do === "update" && what.settings.reservoir !== undefined) {
      hasReservoir = what.settings.reservoir !== null;
    }
    if (what.do === "end") waiting.splice(what.nth % Math.max(1, waiting.length), 1)[0]?.();
    else if (what.do === "update")
      void watch(
        "update",
        limiter.updateSettings(what.settings).then(() => "set"),
      );
    else if (what.do === "increment") void watch("increment", limiter.incrementReservoir(what.by));
    else if (what.do === "stop") void watch("stop", limiter.stop());
    else schedule(what, number);
  }

  async function watch(name: string, result: unknown): Promise<void> {
    // Bottleneck also returns values that are no promises, and nothing after `stop()`.
    const what = await Promise.resolve(result).catch((error: Error) => `error ${error.message}`);
    note(name, `is ${JSON.stringify(what ?? false)}`);
  }

  function schedule(
    {
      do: how,
      work: kind,
      options,
      retries,
    }: Operation & { work: Work; options: Bottleneck.JobOptions; retries: number },
    number: number,
  ): void {
    const id = options.id ?? `job-${number}`;
    retriesOf.set(id, retries);
    const given = { ...options, id };
    const ended = `result-${number}`;
    if (how === "submit") {
      const task = callbackify((called: string) => work(called, kind));
      const callback = (error: Error | null, result?: string): void => {
        note(ended, error === null ? `callback ${result}` : `callback error ${error.message}`);
      };
      void watch(`submit-${number}`, limiter.submit(given, task, id, callback));
    } else if (how === "schedule") {
      void watch(ended, limiter.schedule(given, work, id, kind));
    } else {
      void watch(ended, limiter.wrap(work).withOptions(given, id, kind));
    }
  }

  for (const [number, { what, thenMs }] of operations.entries()) {
    begin(what, number);
    await endStep(what.do, thenMs);
  }
  while (waiting.length > 0) {
    for (const end of waiting.splice(0)) end();
    await time.runUntil(time.now() + QUIET_MS);
  }
  await endStep("finish", QUIET_MS);
  await passed(limiter.disconnect(false), 60_000);
  return steps;
}
