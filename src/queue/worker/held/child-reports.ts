/** Notifies the children of jobs that a worker has ended, and checks the jobs of its queue that wait for parents. */
import type { Flows } from "../../manage/flows.ts";

interface ChildReports {
  /** True once the queue is known to have flows. */
  readonly hasBegun: boolean;
  /** Called when the queue is known to have flows. Before that, the worker makes no request for them. */
  begin(): void;
  /** Records that an attempt of a job has ended. */
  readonly note: (id: string) => void;
  /** Notifies the children of the last jobs. */
  close(): Promise<void>;
}

/** Ids of ended jobs are gathered for this time, then handled together. */
const GATHER_MS = 4;
/** While no flow of the queue is known, the worker asks this long after the end of a job whether there is one now. */
const ASK_MS = 250;
const CHECK_MS = 5_000;

export function createChildReports({
  queue,
  flows,
  isUsed,
}: {
  readonly queue: string;
  readonly flows: Pick<Flows, "settle" | "check">;
  /** Resolves with true if jobs of the queue have ever had parents or children. */
  readonly isUsed: () => Promise<boolean>;
}): ChildReports {
  let hasBegun = false;
  let isClosed = false;
  let ended: string[] = [];
  let timer: NodeJS.Timeout | undefined;
  let checking: NodeJS.Timeout | undefined;
  let settling: Promise<void> | undefined;
  let asking: Promise<void> | undefined;

  function settle(): void {
    timer = undefined;
    if (settling !== undefined) return;
    const ids = ended;
    ended = [];
    settling = flows
      .settle(queue, ids)
      // The workers of the children's queues notice the ends of these jobs when they check their waiting jobs.
      .catch(() => undefined)
      .finally(() => {
        settling = undefined;
        if (ended.length > 0) settle();
      });
  }

  /** Asks whether jobs of the queue have got children. Otherwise, the ended jobs need no report. */
  async function ask(): Promise<void> {
    timer = undefined;
    const ids = ended;
    ended = [];
    if (!hasBegun && !(await isUsed().catch(() => false))) return;
    begin();
    ended.unshift(...ids);
    settle();
  }

  function check(): void {
    flows
      .check(queue)
      .catch(() => undefined)
      .finally(() => {
        if (!isClosed) checking = setTimeout(check, CHECK_MS).unref();
      });
  }

  function begin(): void {
    if (hasBegun || isClosed) return;
    hasBegun = true;
    check();
  }

  return {
    get hasBegun() {
      return hasBegun;
    },
    begin,
    note(id) {
      ended.push(id);
      if (settling !== undefined) return;
      timer ??= hasBegun
        ? setTimeout(settle, GATHER_MS)
        : setTimeout(() => void (asking = ask()), ASK_MS);
    },
    async close() {
      isClosed = true;
      clearTimeout(checking);
      clearTimeout(timer);
      await asking;
      while (settling !== undefined) await settling;
      if (ended.length === 0) return;
      const isNeeded = hasBegun || (await isUsed().catch(() => false));
      if (isNeeded) await flows.settle(queue, ended).catch(() => undefined);
    },
  };
}
