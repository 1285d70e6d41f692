/** Links new jobs with their parents, and with the final jobs of their groups. */
import { InvalidOptionError } from "../../core/errors.ts";
import type { AddedFlow } from "../../stores/redis/scripts/queue/flows.ts";
import type { JobReference } from "../job.ts";
import type { WeightsOf } from "../lanes/lane-options.ts";
import { nameOfJob, type Flows } from "../manage/flows.ts";
import type { JobOptionsRead } from "../options.ts";

/** A new job that may have parents, or belong to a group. */
export interface JobToLink {
  readonly options: JobOptionsRead;
  /** True for the final job of a group to which jobs may be added. */
  readonly isOpen?: boolean | undefined;
  /** The final job of the group that the job belongs to. */
  readonly final?: JobReference | undefined;
}

/** What is stored with a new job. */
interface Linked {
  readonly id: string | undefined;
  readonly flow?: AddedFlow | undefined;
  readonly child?: string | undefined;
  /** True if the job waits for its parents, or for the end of its group. */
  readonly mustWait: boolean;
}

export interface Links {
  readonly jobs: readonly Linked[];
  /** Releases those jobs whose parents have ended in the meantime. Must be called once the jobs are stored. */
  readonly settle: () => Promise<void>;
}

/** True if a job has parents, or belongs to a group. */
export function isLinked({ options, isOpen, final }: JobToLink): boolean {
  return options.after !== undefined || isOpen === true || final !== undefined;
}

/**
 * Prepares jobs before they are stored. Their parents list them first, so that no end of a parent is missed. A job that
 * is listed and never stored does no harm.
 *
 * @throws {@link InvalidOptionError} when a parent has never been stored.
 * @throws {@link GroupClosedError} when the group of a job is closed.
 */
export async function linkJobs(
  { queue, flows, weightsOf }: { queue: string; flows: Flows; weightsOf: WeightsOf },
  entries: readonly JobToLink[],
): Promise<Links> {
  const withoutId = entries.filter((each) => isLinked(each) && each.options.id === undefined);
  const reserved = await flows.reserveIds(queue, withoutId.length);
  const ids = entries.map(
    (each) => each.options.id ?? (isLinked(each) ? reserved.shift() : undefined),
  );
  const nameOf = (index: number): string => nameOfJob({ queue, id: ids[index]! });

  const finals = new Map<string, { readonly final: JobReference; readonly names: string[] }>();
  for (const [index, { final }] of entries.entries()) {
    if (final === undefined) continue;
    const name = nameOfJob(final);
    const group = finals.get(name) ?? { final, names: [] };
    group.names.push(nameOf(index));
    finals.set(name, group);
  }
  for (const { final, names } of finals.values()) await flows.extendGroup(final, names);

  const parentsOf = entries.map(({ options: { after = [] } }, index) => {
    const parents = new Map(after.map((parent) => [nameOfJob(parent), parent]));
    if (ids[index] !== undefined && parents.has(nameOf(index))) throw isOwnParent(ids[index]);
    return parents;
  });
  const pairs = parentsOf.flatMap((parents, index) =>
    [...parents.values()].map((parent) => ({ parent, child: nameOf(index) })),
  );
  const states = await flows.register(pairs);

  const jobs = entries.map(({ options, isOpen, final }, index): Linked => {
    const child = final && nameOfJob(final);
    if (options.after === undefined && isOpen !== true)
      return { id: ids[index], child, mustWait: false };
    const parents = [...parentsOf[index]!.keys()].map(
      (name) => [name, states.get(name) === "missing" ? "m" : ""] as const,
    );
    const { key, at, delayMs = 0, onParentFailure: onFailure = "fail" } = options;
    const hold = at === undefined ? `in ${delayMs}` : `at ${Number(at)}`;
    const weights = key === undefined ? undefined : weightsOf(key);
    const flow = { parents, onFailure, open: isOpen, hold, weights };
    const mustWait = isOpen === true || parents.some(([, outcome]) => outcome === "");
    return { id: ids[index], flow, child, mustWait };
  });

  return {
    jobs,
    async settle() {
      const cancelled = pairs.filter(({ parent }) => states.get(nameOfJob(parent)) === "cancelled");
      await flows.release(
        queue,
        cancelled.map(({ parent, child }) => ({
          id: child.slice(queue.length + 1),
          parent: { name: nameOfJob(parent), outcome: "c", text: "" },
        })),
      );
      const parents = new Map(
        pairs
          .filter(({ parent }) => states.get(nameOfJob(parent)) === "registered")
          .map(({ parent }) => [nameOfJob(parent), parent]),
      );
      await flows.settleAll([...parents.values()]);
      // A job of a group with an id of its own may have been stored before, and may have ended.
      const known = entries.flatMap(({ options, final }, index) =>
        final !== undefined && options.id !== undefined ? [ids[index]!] : [],
      );
      await flows.settle(queue, known);
    },
  };
}

function isOwnParent(id: string): InvalidOptionError {
  const remedy = "a job cannot wait for itself; leave it out";
  return new InvalidOptionError({ where: "enqueue()", option: "after", value: id, remedy });
}
