import type { Call, Struck } from "./records.ts";

/** How long it took after a fault until all went on, in ms; Infinity if it never did. */
export interface Recovery {
  readonly struck: Struck;
  readonly callsMs: number;
  readonly jobsMs: number;
}

/** Calls go on when each replica has called again, jobs when one is done again; `calls` are in the order of their arrival. */
export function recoveries(
  calls: readonly Call[],
  { struck, replicas }: { struck: readonly Struck[]; replicas: readonly number[] },
): Recovery[] {
  return struck.map((each) => {
    const { ms } = each.ended;
    const later = calls.filter(({ leftMs, answer }) => leftMs > ms && answer === "ok");
    const firstOf = (pid: number) =>
      later.find((call) => call.job === undefined && call.pid === pid);
    const since = (call: Call | undefined) => (call === undefined ? Infinity : call.arrivedMs - ms);
    return {
      struck: each,
      callsMs: Math.max(...replicas.map((pid) => since(firstOf(pid)))),
      jobsMs: since(later.find(({ job }) => job !== undefined)),
    };
  });
}
