import { toMachineTime } from "../clocks.ts";
import type { FaultName } from "../plan/fault-kinds.ts";
import type { Plan } from "../plan/plan.ts";
import type { Resources } from "../processes/messages.ts";
import type { Call, Struck } from "../records.ts";
import type { Leftovers, Settled } from "../settle.ts";
import { PER_SECOND, type Log } from "../stage/stage.ts";
import { judgeTenants, type TenantsVerdict } from "../tenants/judge-tenants.ts";
import { TENANTS_PER_SECOND } from "../tenants/tenants.ts";
import {
  arrivalsOf,
  lateCalls,
  lagCap,
  lagOf,
  mostExtra,
  slotsOf,
  HORIZON_MS,
  ratePhases,
  recoveries,
  type Recovery,
} from "./judge-calls.ts";
import { judgeJobs, type JobsVerdict } from "./judge-jobs.ts";

/** Everything to judge: the records of a run. */
export interface Run {
  readonly plan: Plan;
  /** The commit whose build ran beside this one. */
  readonly beside: string | undefined;
  readonly struck: readonly Struck[];
  readonly log: Log;
  readonly replicaPids: readonly number[];
  readonly settled: Settled;
  readonly leftovers: Leftovers;
  /** Formats a time on the machine's clock as seconds since the load began. */
  readonly secondsAt: (ms: number) => string;
}

/** One promise, and whether it was kept. */
interface Promised {
  readonly name: string;
  readonly seen: string;
  readonly isKept: boolean;
}

export interface Verdict {
  readonly recovered: readonly Recovery[];
  readonly jobs: JobsVerdict;
  readonly tenants: TenantsVerdict;
  readonly promises: readonly Promised[];
}

/** Errors that callers may get: from an absent Redis, and from a downstream that does not answer. */
const EXPECTED_ERRORS = ["CallFailedError", "StoreUnavailableError"];
const SHOWN = 5;
/** How many jobs workers may hold, and start before a newcomer's: docs/guarantees.md names them, and what they depend on. */
const MOST_HELD = 40;

export function judge(run: Run): Verdict {
  const { struck, log, replicaPids, settled, leftovers, secondsAt } = run;
  const { calls } = log;
  const jobs = judgeJobs({ ...settled, ...log, struck });
  const tenants = judgeTenants({
    ...log.tenants,
    ...settled.tenants,
    struck,
    standstills: log.standstills,
  });
  const recovered = recoveries(calls, { struck, replicas: replicaPids });
  const stuck = recovered.filter(({ callsMs, jobsMs }) => callsMs + jobsMs === Infinity);
  const grown = settled.replicas.flatMap(({ before, after }) =>
    growth("resources" in before ? before.resources : {}, after.resources),
  );
  const strange = settled.replicas.flatMap(({ after }) =>
    Object.keys(after.errors).filter((name) => !EXPECTED_ERRORS.includes(name)),
  );
  const promises = [
    ...judgeCalls(run),
    none("faults after which calls or jobs did not go on", stuck.map(nameOf)),
    none("confirmed jobs lost", jobs.lost.map(String)),
    none(
      "jobs done again whose lock cannot have ended",
      jobs.unexplained.map(
        ({ first, second }) =>
          `${first.job} at ${secondsAt(first.leftMs)} by ${first.pid}, at ${secondsAt(second.leftMs)} by ${second.pid}`,
      ),
    ),
    none("jobs that still wait", [...settled.waiting].map(String)),
    none("unexpected errors of callers", strange),
    none("unexpected errors of the producers", [
      ...settled.producer.errors,
      ...settled.tenants.producer.errors,
    ]),
    ...judgeQueue(run, tenants),
    none("processes that crashed", log.complaints),
    none("processes that did not end", leftovers.processes),
    none("connections left in Redis", leftovers.clients),
    none("keys left in Redis without an end", leftovers.keys),
    none("timers, sockets and listeners that grew", grown),
  ];
  return { recovered, jobs, tenants, promises: promises.filter(isJudged(run)) };
}

/** Beside an earlier build, whose faults are not this one's, only what becomes of the jobs is judged. */
function isJudged({ beside }: Run): (promise: Promised) => boolean {
  return ({ name }) => beside === undefined || /lost|buried|still wait|crashed/.test(name);
}

function judgeQueue(
  { plan: { burst }, log, settled, secondsAt }: Run,
  { lost, buried, idle, newcomers }: TenantsVerdict,
): Promised[] {
  const phases = ratePhases(TENANTS_PER_SECOND, [], "wallMs");
  const late = newcomers.filter(({ beyond }) => beyond > MOST_HELD);
  return [
    zero(
      "tenants: extra slots in the worst window",
      mostExtra(slotsOf(log.tenants.calls), { phases, burst }),
    ),
    none("tenants: confirmed jobs lost", lost.map(String)),
    none("tenants: jobs buried that did not fail", buried),
    none("tenants: jobs that still wait", [...settled.tenants.waiting].map(String)),
    none(
      "tenants: times without a start while a job might",
      idle.map(({ fromMs, toMs }) => `${Math.round(toMs - fromMs)} ms from ${secondsAt(fromMs)}`),
    ),
    none(
      `tenants: newcomers, of ${newcomers.length}, behind more than ${MOST_HELD} turns too many`,
      late.map(({ tenant, beyond }) => `${beyond} before ${tenant}`),
    ),
  ];
}

function judgeCalls({
  plan: { burst },
  struck,
  log: { calls, clocks },
  secondsAt,
}: Run): Promised[] {
  const perSecond = PER_SECOND;
  const capAt = lagCap(perSecond, struck);
  const toMachineMs = toMachineTime(clocks);
  const lags = calls.map((call) => lagOf(call, toMachineMs));
  const slots = mostExtra(slotsOf(calls), {
    phases: ratePhases(perSecond, struck, "wallMs"),
    burst,
  });
  const arrivals = mostExtra(arrivalsOf(calls, { lags, perSecond, capAt }), {
    phases: ratePhases(perSecond, struck, "ms"),
    burst,
  });
  const late = lateCalls(calls, { lags, capAt, perSecond });
  const storms = struck
    .filter(({ fault }) => fault.name === ("429 storm" satisfies FaultName))
    .map((storm) => refusedBeyond(calls, storm));
  const lagOfCall = new Map(calls.map((call, index) => [call, lags[index]!]));
  const describe = (call: Call): string =>
    `${Math.round(lagOfCall.get(call)!)} ms by ${call.pid} at ${secondsAt(call.leftMs)}`;
  return [
    zero("extra slots in the worst window", slots),
    zero("extra arrivals in the worst window", arrivals),
    none("calls that left later than allowed", late.map(describe)),
    zero("calls refused beyond those on their way", Math.max(0, ...storms)),
  ];
}

function zero(name: string, seen: number): Promised {
  return { name, seen: String(seen), isKept: seen <= 0 };
}

function none(name: string, found: readonly string[]): Promised {
  const seen = found.length === 0 ? "0" : `${found.length}: ${found.slice(0, SHOWN).join(", ")}`;
  return { name, seen, isKept: found.length === 0 };
}

/** Allows one refusal, the calls of one horizon, and the calls that had left when the storm began. */
function refusedBeyond(calls: readonly Call[], { began, ended }: Struck): number {
  const refused = calls.filter(
    ({ answer, arrivedMs }) =>
      answer === "refused" && arrivedMs >= began.ms && arrivedMs <= ended.ms,
  );
  const slowestMs = Math.max(0, ...refused.map(({ arrivedMs, leftMs }) => arrivedMs - leftMs));
  return refused.length - 1 - Math.ceil((PER_SECOND * (HORIZON_MS + slowestMs)) / 1_000);
}

function growth(before: Resources, after: Resources): string[] {
  return Object.entries(after)
    .filter(([name, count]) => count > (before[name] ?? 0))
    .map(([name, count]) => `${name} ${before[name] ?? 0} → ${count}`);
}

function nameOf({ struck: { fault } }: Recovery): string {
  return `${fault.name} at ${Math.round(fault.startMs / 1_000)} s`;
}
