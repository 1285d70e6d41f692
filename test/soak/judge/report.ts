import type { Paint } from "../../../examples/demo/view/terminal.ts";
import { FAULT_KINDS, type FaultName } from "../plan/fault-kinds.ts";
import type { Struck } from "../records.ts";
import type { Run, Verdict } from "./verdict.ts";

const KEPT = "✓";
const BROKEN = "✗";

/** Formats a fault that is over. */
export function formatStruck(
  { fault: { name }, began, ended }: Struck,
  secondsAt: (ms: number) => string,
): string {
  const lasted = ((ended.ms - began.ms) / 1_000).toFixed(2);
  return `${secondsAt(began.ms).padStart(9)}  ${name}, for ${lasted} s`;
}

/** Formats the results of a soak as lines of text. */
export function reportOf(run: Run, verdict: Verdict, paint: Paint): string[] {
  const { plan, log, settled } = run;
  const { jobs, promises } = verdict;
  const width = Math.max(...promises.map(({ name }) => name.length));
  const refusals = settled.producer.refused;
  const lines = promises.map(({ name, seen, isKept }) => {
    const mark = isKept ? paint.good(KEPT) : paint.bad(BROKEN);
    return `${mark} ${name.padEnd(width)}  ${seen}`;
  });
  const isKept = promises.every((promise) => promise.isKept);
  const beside = run.beside === undefined ? "" : ` --beside ${run.beside}`;
  const only = plan.only === undefined ? "" : ` --only "${plan.only.join(",")}"`;
  const replay = `npm run soak -- --minutes ${plan.minutes} --seed ${plan.seed}${only}${beside}`;
  return [
    ...faultTable(verdict),
    "",
    `calls ${log.calls.length}, of these ${countJobs(run)} for jobs; refusals of enqueue ${refusals}`,
    `jobs confirmed ${log.confirmed.length}, done ${jobs.done}, again ${jobs.again}, dead ${settled.dead.size}, lost ${jobs.lost.length}`,
    `tenants: calls ${log.tenants.calls.length}, jobs confirmed ${countStored(run)}, done ${verdict.tenants.done}, dead ${settled.tenants.dead.length}; refusals of enqueue ${settled.tenants.producer.refused}`,
    `newcomers behind so many turns beyond theirs: ${verdict.tenants.newcomers.map(({ beyond }) => beyond).join(" ")}`,
    `standstills of workers long enough to end a lock, including SIGSTOP: ${log.standstills.length}`,
    `errors of replicas ${settled.replicas.map(({ after }) => JSON.stringify(after.errors)).join(" ")}`,
    "",
    ...lines,
    "",
    isKept ? paint.good("Every promise was kept.") : paint.bad("A promise was broken."),
    `seed ${plan.seed}; again: ${replay}`,
  ];
}

/** Formats a line for each kind of fault that struck. */
function faultTable({ recovered }: Verdict): string[] {
  const names = Object.keys(FAULT_KINDS) as FaultName[];
  const width = Math.max(...names.map(({ length }) => length));
  const rows = names.flatMap((name) => {
    const of = recovered.filter(({ struck }) => struck.fault.name === name);
    if (of.length === 0) return [];
    const calls = seconds(Math.max(...of.map(({ callsMs }) => callsMs)));
    const jobs = seconds(Math.max(...of.map(({ jobsMs }) => jobsMs)));
    return [`${name.padEnd(width)}  ${String(of.length).padStart(5)}  ${calls}  ${jobs}`];
  });
  const head = `${"fault".padEnd(width)}  count  calls go on after  jobs go on after`;
  return [head, ...rows];
}

function seconds(ms: number): string {
  return (ms === Infinity ? "never" : `${(ms / 1_000).toFixed(2)} s`).padStart(17);
}

function countStored({ log }: Run): number {
  return log.tenants.stored.reduce((sum, { jobs }) => sum + jobs.length, 0);
}

function countJobs({ log }: Run): number {
  return log.calls.filter(({ job }) => job !== undefined).length;
}
