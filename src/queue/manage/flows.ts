/**
 * Flows: jobs that wait for other jobs, in any queues. A child stores which parents it awaits. Each parent lists its
 * children. When a parent has ended, its worker looks at the list and releases the children:
 *
 *     parent's queue: look ──▶ children's queues: release ──▶ parent's queue: forget
 *
 * The queues may be on different nodes of a cluster, so these are separate steps. Each step can be repeated. If one is
 * lost, the workers of the children's queues repeat all of them, because they check from time to time what their
 * waiting jobs await.
 */
import { InvalidOptionError } from "../../core/errors.ts";
import type { FlowStore } from "../../stores/redis/queue/store.ts";
import type {
  EndedParent,
  OutcomeLetter,
  ParentState as StoredState,
} from "../../stores/redis/scripts/queue/flows.ts";
import { GroupClosedError } from "../errors.ts";
import type { AwaitedParents, JobFlow, JobReference, ParentState } from "../job.ts";

/** How a parent of a job ended. */
export interface ParentOutcome extends JobReference {
  readonly state: ParentState;
  /** What the parent's handler returned, as JSON. Undefined if it returned nothing or null, or is not done. */
  readonly result: unknown;
  /** True if the parent's result has more than 100,000 characters. Such a result is not passed to children. */
  readonly isResultTooLong: boolean;
  /** Why the parent failed. Undefined unless it has failed. */
  readonly reason: string | undefined;
}

/** Returns access to the flows of a queue, which may be on another server. Resolves once Redis is reachable. */
export type ReachFlows = (queue: string) => Promise<FlowStore>;

type ReleaseReply = "missing" | "recorded" | "removed" | "resumed";

export type Flows = ReturnType<typeof createFlows>;

/** The most children, and the most parents, in one request. Redis is blocked while a script handles them. */
const CHILDREN_AT_ONCE = 500;
const PARENTS_AT_ONCE = 100;
/** A parent with more children is read again, a thousand children at a time. */
const CHILDREN_OF_EACH = 100;
const CHILDREN_OF_ONE = 1_000;
const LONGEST_RESULT = 100_000;
/** Stands for a result that is too long. Not JSON. */
const TOO_LONG = "!";
/** How long a replay of a dead letter resumes its children. */
const RESUMABLE_MS = 90 * 86_400_000;
/** How long a child is listed that is not stored yet. */
const UNSTORED_MS = 60_000;
/** How soon a waiting job is checked again, and how many are read at once. */
const CHECK_AGAIN_MS = 10_000;
const CHECKED_AT_ONCE = 500;
const PARENTS_CHECKED = 5_000;
/** How many parents and children of a job are shown. */
const LINKS_SHOWN = 24;
const MOST_CHECKS = 20;
/**
 * A job of a group that is not stored this long after it was announced never will be: its producer has died, or has
 * lost Redis. The final job then no longer waits for it. The `producerTimeoutMs` of a group replaces this time.
 */
const ANNOUNCED_MS = 60_000;

/** Returns the name of a job that is unique among all queues. Names of queues contain no colon. */
export function nameOfJob({ queue, id }: JobReference): string {
  return `${queue}:${id}`;
}

function jobOfName(name: string): JobReference {
  const colon = name.indexOf(":");
  return { queue: name.slice(0, colon), id: name.slice(colon + 1) };
}

export function createFlows(reach: ReachFlows) {
  /** Registers children of parents. Returns the state of each parent. */
  async function register(
    pairs: readonly { readonly parent: JobReference; readonly child: string }[],
  ) {
    const states = new Map<string, "registered" | "missing" | "cancelled">();
    for (const [queue, ofQueue] of groupBy(pairs, ({ parent }) => parent.queue)) {
      const flows = await reach(queue);
      for (const some of chunksOf(ofQueue, CHILDREN_AT_ONCE)) {
        const children = some.map(({ parent, child }) => ({ id: parent.id, child }));
        const replies = await flows.awaitParents({ queue, children });
        for (const [index, { parent }] of some.entries()) {
          const state = replies[index]!;
          if (state === "unknown") throw neverStored(parent);
          states.set(nameOfJob(parent), state);
        }
      }
    }
    return states;
  }

  /** Releases children, and cancels the children of those that were removed. Returns the reply for each child. */
  async function release(
    queue: string,
    children: readonly { readonly id: string; readonly parent: EndedParent }[],
  ): Promise<ReleaseReply[]> {
    const replies: ReleaseReply[] = [];
    const flows = await reach(queue);
    for (const some of chunksOf(children, CHILDREN_AT_ONCE)) {
      const parents = [...new Set(some.map(({ parent }) => parent))];
      const indexes = new Map(parents.map((parent, index) => [parent, index]));
      const listed = some.map(({ id, parent }) => ({ id, parent: indexes.get(parent)! }));
      const replied = await flows.releaseChildren({ queue, parents, children: listed });
      replies.push(...replied);
      const idsOf = (reply: ReleaseReply): string[] =>
        some.flatMap(({ id }, index) => (replied[index] === reply ? [id] : []));
      await settle(queue, idsOf("removed"));
      await resume(queue, idsOf("resumed"));
    }
    return replies;
  }

  /** Notifies the children of those jobs that have ended. Does nothing for the other jobs. */
  async function settle(queue: string, ids: readonly string[]): Promise<void> {
    for (const some of chunksOf(ids, PARENTS_AT_ONCE)) {
      const jobs = some.map((id) => ({ id, from: 0 }));
      for (const job of await settleSome(queue, jobs, CHILDREN_OF_EACH)) {
        let left: typeof job | undefined = job;
        while (left !== undefined) [left] = await settleSome(queue, [left], CHILDREN_OF_ONE);
      }
    }
  }

  /** Settles up to `most` children of each job. Returns the jobs that have more children. */
  async function settleSome(
    queue: string,
    jobs: readonly { readonly id: string; readonly from: number }[],
    most: number,
  ): Promise<{ id: string; from: number }[]> {
    const flows = await reach(queue);
    const seen = await flows.lookAtParents({ queue, most, longest: LONGEST_RESULT, jobs });
    const links = seen.flatMap(({ state, text, children }, index) => {
      const parent = endedOf({ queue, id: jobs[index]!.id }, state, text);
      if (parent === undefined) return [];
      return children.map((name) => ({ index, parent, name, ...jobOfName(name) }));
    });
    const missing = new Map<number, number>();
    const forgotten: { id: string; child: string }[] = [];
    const kept = { failed: new Map<number, string>(), unstored: new Map<number, string>() };
    for (const [childQueue, ofQueue] of groupBy(links, (link) => link.queue)) {
      const replies = await release(childQueue, ofQueue);
      for (const [at, { index, name, parent }] of ofQueue.entries()) {
        if (parent.outcome === "f") kept.failed.set(index, name);
        else if (replies[at] !== "missing") forgotten.push({ id: jobs[index]!.id, child: name });
        else {
          kept.unstored.set(index, name);
          missing.set(index, (missing.get(index) ?? 0) + 1);
        }
      }
    }
    for (const children of chunksOf(forgotten, CHILDREN_AT_ONCE))
      await flows.forgetChildren({ queue, children });
    for (const [of, keptMs] of [
      [kept.failed, RESUMABLE_MS],
      [kept.unstored, UNSTORED_MS],
    ] as const) {
      const children = [...of].map(([index, child]) => ({ id: jobs[index]!.id, child }));
      if (children.length > 0) await flows.forgetChildren({ queue, keptMs, children });
    }
    return seen.flatMap(({ children }, index) => {
      const { id, from } = jobs[index]!;
      if (children.length < most || !links.some((link) => link.index === index)) return [];
      // The children that were forgotten are no longer listed.
      const stay = kept.failed.has(index) ? children.length : (missing.get(index) ?? 0);
      return [{ id, from: from + stay }];
    });
  }

  /** Makes the children of replayed dead letters wait again, and so on down the tree. */
  async function resume(queue: string, ids: readonly string[]): Promise<void> {
    const flows = await reach(queue);
    for (const id of ids) {
      const parent: EndedParent = { name: nameOfJob({ queue, id }), outcome: "r", text: "" };
      const most = CHILDREN_OF_ONE;
      for (let from = 0, isMore = true; isMore; from += most) {
        const about = { queue, most, longest: 0, jobs: [{ id, from }] };
        const [seen] = await flows.lookAtParents(about);
        const children = seen!.children.map(jobOfName);
        if (children.length > 0) await flows.keepChildren({ queue, id });
        for (const [childQueue, ofQueue] of groupBy(children, (child) => child.queue)) {
          await release(
            childQueue,
            ofQueue.map((child) => ({ id: child.id, parent })),
          );
        }
        isMore = children.length === most;
      }
    }
  }

  /** Reads how jobs ended that are parents. Jobs that have not ended are left out. */
  async function endedParents(parents: readonly JobReference[]): Promise<Map<string, EndedParent>> {
    const ended = new Map<string, EndedParent>();
    for (const [queue, ofQueue] of groupBy(parents, (parent) => parent.queue)) {
      const flows = await reach(queue);
      for (const some of chunksOf(ofQueue, PARENTS_AT_ONCE)) {
        const jobs = some.map(({ id }) => ({ id, from: 0 }));
        const about = { queue, most: 1, longest: LONGEST_RESULT, jobs };
        for (const [index, { state, text }] of (await flows.lookAtParents(about)).entries()) {
          const parent = endedOf(some[index]!, state, text);
          if (parent !== undefined) ended.set(parent.name, parent);
        }
      }
    }
    return ended;
  }

  /** Checks the jobs of a queue that have waited for a while. Returns the number of jobs. */
  async function checkSome(queue: string): Promise<number> {
    const waiting = await (
      await reach(queue)
    ).lookAtWaiting({
      queue,
      againMs: CHECK_AGAIN_MS,
      most: CHECKED_AT_ONCE,
      mostParents: PARENTS_CHECKED,
      announcedMs: ANNOUNCED_MS,
    });
    const names = new Set(waiting.flatMap(({ parents }) => parents));
    const ended = await endedParents([...names].map(jobOfName));
    const children = waiting.flatMap(({ id, areAnnounced, parents }) =>
      parents.flatMap((name) => {
        const parent = ended.get(name);
        const isAnnounced = parent?.outcome === "m" && areAnnounced;
        return parent === undefined || isAnnounced ? [] : [{ id, parent }];
      }),
    );
    await release(queue, children);
    const settled = new Set(children.map(({ parent }) => parent.name));
    await settleAll([...settled].map(jobOfName));
    return waiting.length;
  }

  async function settleAll(jobs: readonly JobReference[]): Promise<void> {
    for (const [queue, ofQueue] of groupBy(jobs, (job) => job.queue)) {
      await settle(
        queue,
        ofQueue.map(({ id }) => id),
      );
    }
  }

  return {
    register,
    release,
    settle,
    /** {@link settle} for jobs of any queues. */
    settleAll,
    /** Notifies the children of jobs that were removed. */
    async settleRemoved(queue: string, ids: readonly string[]): Promise<void> {
      if (ids.length === 0) return;
      try {
        const flows = await reach(queue);
        if (!(await flows.isUsed({ queue }))) return;
        for (const some of chunksOf(ids, CHILDREN_AT_ONCE))
          await flows.forgetParents({ queue, ids: some });
        await settle(queue, ids);
      } catch {
        // The jobs are removed. Workers of the children's queues notice this when they check their waiting jobs.
      }
    },
    /** Makes the children of replayed dead letters wait for them again. */
    async settleReplayed(queue: string, ids: readonly string[]): Promise<void> {
      try {
        if (ids.length > 0 && (await (await reach(queue)).isUsed({ queue })))
          await resume(queue, ids);
      } catch {
        // The dead letters are replayed. Their children are resumed when they are done.
      }
    },
    /** Repeats for the waiting jobs of a queue what may have been lost. */
    async check(queue: string): Promise<void> {
      for (let round = 0; round < MOST_CHECKS; round += 1) {
        if ((await checkSome(queue)) < CHECKED_AT_ONCE) return;
      }
    },
    /** Reserves ids for new jobs. */
    async reserveIds(queue: string, count: number): Promise<string[]> {
      const last = await (await reach(queue)).reserveIds({ queue, count });
      return Array.from({ length: count }, (_, index) => String(last - count + 1 + index));
    },
    /**
     * Makes the final job of a group wait for more jobs.
     *
     * @throws {@link GroupClosedError} when the group is closed, or does not exist.
     */
    async extendGroup(final: JobReference, parents: readonly string[]): Promise<void> {
      const flows = await reach(final.queue);
      for (const some of chunksOf(parents, CHILDREN_AT_ONCE)) {
        const reply = await flows.extendGroup({ ...final, action: "add", parents: some });
        if (reply !== "done") throw new GroupClosedError({ final, isMissing: reply === "missing" });
      }
    },
    /** Makes the final job of a group no longer wait for jobs that were not stored. */
    async retract(final: JobReference, parents: readonly string[]): Promise<void> {
      const flows = await reach(final.queue);
      for (const some of chunksOf(parents, CHILDREN_AT_ONCE))
        await flows.extendGroup({ ...final, action: "retract", parents: some });
    },
    /** @throws {@link GroupClosedError} when the group does not exist. */
    async closeGroup(final: JobReference): Promise<void> {
      const flows = await reach(final.queue);
      const reply = await flows.extendGroup({ ...final, action: "close", parents: [] });
      if (reply !== "done") throw new GroupClosedError({ final, isMissing: true });
    },
    /** Reads the outcomes of a job's parents, in order. */
    async outcomes({ queue, id }: JobReference): Promise<ParentOutcome[]> {
      const stored = await (await reach(queue)).outcomes({ queue, id });
      return Object.entries(stored)
        .map(([name, text]) => readOutcome(name, text))
        .toSorted((one, other) => one.index - other.index)
        .map(({ outcome }) => outcome);
    },
    /** Reads the parents that a job still waits for. */
    async awaited({ queue, id }: JobReference, most: number): Promise<AwaitedParents> {
      const { count, first } = await (await reach(queue)).awaited({ queue, id, most });
      return { count, first: first.map(jobOfName) };
    },
    /** Reads the jobs directly before and after a job. */
    async linksOf({ queue, id }: JobReference): Promise<JobFlow> {
      const flows = await reach(queue);
      const about = { queue, id, most: LINKS_SHOWN };
      const [awaited, links] = await Promise.all([flows.awaited(about), flows.links(about)]);
      const { ended, children } = links;
      const outcomes = ended.first
        .map(([name, text]) => readOutcome(name, text))
        .toSorted((one, other) => one.index - other.index)
        .map(({ outcome: { state, ...parent } }) => ({
          queue: parent.queue,
          id: parent.id,
          state,
        }));
      return {
        awaited: { count: awaited.count, first: awaited.first.map(jobOfName) },
        ended: { count: ended.count, first: outcomes },
        children: { count: children.count, first: children.first.map(jobOfName) },
      };
    },
    /** True if a replay of its parent resumes a job that failed because of this parent. */
    async isResumable(parent: JobReference): Promise<boolean> {
      const about = { most: 1, longest: 0, jobs: [{ id: parent.id, from: 0 }] };
      const flows = await reach(parent.queue);
      const [seen] = await flows.lookAtParents({ queue: parent.queue, ...about });
      return seen!.state === "failed" || seen!.state === "pending";
    },
  };
}

const LETTERS: Readonly<Record<StoredState, OutcomeLetter | undefined>> = {
  pending: undefined,
  done: "d",
  "long result": "d",
  failed: "f",
  removed: "c",
  missing: "m",
};
const STATES: Readonly<Record<string, ParentState>> = {
  d: "done",
  f: "failed",
  c: "cancelled",
  m: "missing",
};

/** Returns the outcome of a job. Undefined if the job has not ended. */
function endedOf(job: JobReference, state: StoredState, text: string): EndedParent | undefined {
  const outcome = LETTERS[state];
  if (outcome === undefined) return undefined;
  return { name: nameOfJob(job), outcome, text: state === "long result" ? TOO_LONG : text };
}

/** Reads an outcome as `lua/lib/flows/release.lua` stores it. */
function readOutcome(name: string, stored: string) {
  const [, letter, index, text] = /^(\w) (\d+) (.*)$/s.exec(stored)!;
  const isDone = letter === "d";
  const isResultTooLong = isDone && text === TOO_LONG;
  const outcome: ParentOutcome = {
    ...jobOfName(name),
    state: STATES[letter!]!,
    result:
      isDone && text !== "" && !isResultTooLong ? (JSON.parse(text!) ?? undefined) : undefined,
    isResultTooLong,
    reason: letter === "f" ? text : undefined,
  };
  return { index: Number(index), outcome };
}

function neverStored(parent: JobReference): InvalidOptionError {
  const remedy = `queue "${parent.queue}" has never had a job with this id; give jobs from enqueue()`;
  return new InvalidOptionError({ where: "enqueue()", option: "after", value: parent.id, remedy });
}

function groupBy<Value>(
  values: readonly Value[],
  keyOf: (value: Value) => string,
): Map<string, Value[]> {
  const groups = new Map<string, Value[]>();
  for (const value of values) {
    const key = keyOf(value);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [value]);
    else group.push(value);
  }
  return groups;
}

function* chunksOf<Value>(values: readonly Value[], size: number): Generator<Value[]> {
  for (let at = 0; at < values.length; at += size) yield values.slice(at, at + size);
}
