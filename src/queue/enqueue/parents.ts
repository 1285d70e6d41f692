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
  /** How long this final job waits for jobs that were announced and not stored. */
  readonly producerTimeoutMs?: number | undefined;
  /** The final job of the group that the job belongs to. */
  readonly final?: JobReference | undefined;
}

/** What is stored with a new job. */
interface Linked {
  readonly id: string | undefined;
  readonly flow?: AddedFlow | undefined;
  /** The jobs that wait for the job: the final job of its group, and jobs of the same call. */
  readonly children?: readonly string[] | undefined;
  /** True if the job waits for its parents, or for the end of its group. */
  readonly mustWait: boolean;
}

export interface Links {
  readonly jobs: readonly Linked[];
  /** Releases those jobs whose parents have ended in the meantime. Must be called once the jobs are stored. */
  readonly settle: () => Promise<void>;
  /** Takes the jobs out of their groups again. Must be called if none of the jobs was stored. */
  readonly retract: () => Promise<void>;
}

/** The new jobs of a group. */
interface GroupMembers {
  readonly final: JobReference;
  readonly names: string[];
  /** The jobs whose ids this call has reserved. An earlier call cannot have stored these. */
  readonly reserved: string[];
}

const OUTCOMES = { registered: "", missing: "m", cancelled: "c" } as const;

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

  const finals = new Map<string, GroupMembers>();
  for (const [index, { final, options }] of entries.entries()) {
    if (final === undefined) continue;
    const name = nameOfJob(final);
    const group = finals.get(name) ?? { final, names: [], reserved: [] };
    group.names.push(nameOf(index));
    if (options.id === undefined) group.reserved.push(nameOf(index));
    finals.set(name, group);
  }
  const parentsOf = entries.map(({ options: { after = [] } }, index) => {
    const parents = new Map(after.map((parent) => [nameOfJob(parent), parent]));
    if (ids[index] !== undefined && parents.has(nameOf(index))) throw isOwnParent(ids[index]);
    return parents;
  });
  const together = indexesOfIds(queue, entries);
  const links = parentsOf.flatMap((parents, index) =>
    [...parents].map(([name, parent]) => ({ name, parent, child: nameOf(index) })),
  );
  const pairs = links.filter(({ name }) => !together.has(name));
  const states = await flows.register(pairs);
  for (const { final, names } of finals.values()) await flows.extendGroup(final, names);
  const childrenOf = entries.map(({ final }) => (final === undefined ? [] : [nameOfJob(final)]));
  for (const { name, child } of links) {
    const index = together.get(name);
    if (index !== undefined) childrenOf[index]!.push(child);
  }

  const jobs = entries.map(({ options, isOpen, producerTimeoutMs }, index): Linked => {
    const id = ids[index];
    const children = childrenOf[index]!.length === 0 ? undefined : childrenOf[index];
    if (options.after === undefined && isOpen !== true) return { id, children, mustWait: false };
    const parents = [...parentsOf[index]!.keys()].map(
      (name) => [name, OUTCOMES[states.get(name) ?? "registered"]] as const,
    );
    const { key, at, delayMs = 0, onParentFailure: onFailure = "fail" } = options;
    const hold = at === undefined ? `in ${delayMs}` : `at ${Number(at)}`;
    const weights = key === undefined ? undefined : weightsOf(key);
    const flow = { parents, onFailure, open: isOpen, producerTimeoutMs, hold, weights };
    const mustWait = isOpen === true || parents.some(([, outcome]) => outcome === "");
    return { id, flow, children, mustWait };
  });

  return {
    jobs,
    async settle() {
      const parents = new Map(
        pairs
          .filter(({ parent }) => states.get(nameOfJob(parent)) === "registered")
          .map(({ parent }) => [nameOfJob(parent), parent]),
      );
      await flows.settleAll([...parents.values()]);
      // A job with an id of its own may have been stored before, and may have ended. A job with parents may be
      // cancelled, because one of them was.
      const mayHaveEnded = entries.flatMap(({ options: { id, after } }, index) =>
        (id !== undefined || after !== undefined) && childrenOf[index]!.length > 0
          ? [ids[index]!]
          : [],
      );
      await flows.settle(queue, mayHaveEnded);
    },
    async retract() {
      for (const { final, reserved } of finals.values()) await flows.retract(final, reserved);
    },
  };
}

/** Returns the index of each job that has an id of its own, by its name. */
function indexesOfIds(queue: string, entries: readonly JobToLink[]): Map<string, number> {
  const indexes = new Map<string, number>();
  for (const [index, { options }] of entries.entries()) {
    if (options.id === undefined) continue;
    const name = nameOfJob({ queue, id: options.id });
    if (!indexes.has(name)) indexes.set(name, index);
  }
  return indexes;
}

/**
 * Returns the indexes of the jobs of one call, parents before their children and otherwise in the given order. Without
 * this order, a call that fails between two round trips could leave children whose parents are never stored.
 *
 * @throws {@link InvalidOptionError} when jobs wait for each other, or a parent may not be stored.
 */
export function parentsFirst(queue: string, entries: readonly JobToLink[]): readonly number[] {
  const given = [...entries.keys()];
  if (!entries.some(({ options }) => options.after !== undefined && options.after.length > 0))
    return given;
  const together = indexesOfIds(queue, entries);
  const refuse = (index: number, value: string, remedy: string): InvalidOptionError =>
    new InvalidOptionError({ where: `enqueueMany()[${index}]`, option: "after", value, remedy });
  const parentsOf = entries.map(({ options: { after = [] } }, index) =>
    after.flatMap((parent) => {
      const at = together.get(nameOfJob(parent));
      if (at === undefined || at === index) return [];
      const { dedupeId, keep } = entries[at]!.options;
      if (dedupeId === undefined && keep === undefined) return [at];
      const remedy =
        "this parent has a dedupeId or keep, so it may not be stored; enqueue it in an earlier call";
      throw refuse(index, parent.id, remedy);
    }),
  );
  const order = new Set<number>();
  /** The jobs from a child to the parent that is placed next. */
  const open = new Set<number>();
  const stack: number[] = [];
  for (const start of given) {
    stack.push(start);
    for (let index = stack.at(-1); index !== undefined; index = stack.at(-1)) {
      const missing = open.has(index)
        ? []
        : parentsOf[index]!.filter((parent) => !order.has(parent));
      open.add(index);
      const waited = missing.find((parent) => open.has(parent));
      if (waited !== undefined) {
        const path = [...open];
        const ids = path.slice(path.indexOf(waited)).map((each) => entries[each]!.options.id!);
        throw refuse(index, entries[waited]!.options.id!, circleRemedy(ids));
      }
      if (missing.length > 0) {
        stack.push(...missing.toReversed());
        continue;
      }
      order.add(index);
      open.delete(index);
      stack.pop();
    }
  }
  return [...order];
}

function circleRemedy(ids: readonly string[]): string {
  const shown = ids.slice(0, 5).map((id) => JSON.stringify(id));
  const more = ids.length > shown.length ? ", …" : "";
  return `jobs ${shown.join(", ")}${more} of this call wait for each other; remove one of these parents`;
}

/** Options with which a job may not be stored, or may be stored later or several times. */
const NOT_IN_GROUPS = ["dedupeId", "keep"] as const;

/** @throws {@link InvalidOptionError} when no job of a group may have one of the options. */
export function assertInGroup(
  where: string,
  options: Partial<Record<"every" | "cron" | "dedupeId" | "keep", unknown>> | undefined,
): void {
  const recurring = (["every", "cron"] as const).find((name) => options?.[name] !== undefined);
  if (recurring !== undefined) {
    const remedy = "leave it out; a group has no recurring jobs";
    throw new InvalidOptionError({ where, option: recurring, value: options![recurring], remedy });
  }
  for (const option of NOT_IN_GROUPS) {
    const value = options?.[option];
    if (value === undefined) continue;
    const remedy =
      "leave it out; in a group, each job must be stored. Give an id to store it only once";
    throw new InvalidOptionError({ where, option, value, remedy });
  }
}

function isOwnParent(id: string): InvalidOptionError {
  const remedy = "a job cannot wait for itself; leave it out";
  return new InvalidOptionError({ where: "enqueue()", option: "after", value: id, remedy });
}
