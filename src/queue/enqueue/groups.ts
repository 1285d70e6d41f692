/** Groups of jobs, each with a final job that runs once all other jobs of the group have ended. */
import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";
import { assertArgumentCount } from "../../core/input/arguments.ts";
import { LONGEST_MS, readOptions, wholeNumber } from "../../core/input/options.ts";
import { GroupClosedError } from "../errors.ts";
import { JOB_REFERENCE, type JobReference } from "../job.ts";
import type { Flows } from "../manage/flows.ts";
import type { EnqueueOptions } from "../options.ts";
import type { EnqueueOptionsOf, LinkedEnqueuing } from "./enqueue.ts";
import type { QueuedJob } from "./job-handle.ts";
import { assertInGroup } from "./parents.ts";

/** The final job of a group. */
export interface FinalJob {
  /** The queue of the final job: a queue of this sluice. Defaults to the queue of the group's jobs. */
  readonly queue?: { readonly name: string } | undefined;
  readonly data: unknown;
  /** The options of the final job, as for `enqueue`. Without `dedupeId`, `keep`, and options of recurring jobs. */
  readonly options?: EnqueueOptions | undefined;
}

export interface GroupOptions<Input> {
  /** The final job. It is stored first, and waits until the group is closed and all its jobs have ended. */
  readonly then: FinalJob;
  /**
   * The options of the group's jobs, as for `enqueueMany`: for all jobs, or a function of each job's data. Without
   * `dedupeId`, `keep`, and options of recurring jobs.
   */
  readonly options?: EnqueueOptions | EnqueueOptionsOf<Input> | undefined;
  /** Keeps the group open, so that jobs can be added until `close()`. Defaults to false. */
  readonly open?: boolean | undefined;
  /**
   * How long the final job waits for jobs that `enqueueGroup` or `add` has announced and not stored, in ms, because the
   * producer has died or lost Redis. A job that a frozen producer stores later does not hold the final job back. At
   * least 10,000, and longer than `storeTimeoutMs`. Defaults to 60,000.
   */
  readonly producerTimeoutMs?: number | undefined;
}

/** A group of jobs. */
export interface JobGroup<Data, Result, Input, Final extends JobReference = JobReference> {
  /** The final job: as `enqueue` returns it, or the argument of `group()`. */
  readonly final: Final;
  /** The jobs that this call of `enqueueGroup` has stored. Empty for `group()`. */
  readonly jobs: readonly QueuedJob<Data, Result>[];
  /**
   * Adds jobs of this queue to the open group, as `enqueueMany` does.
   *
   * @throws {@link GroupClosedError} when the group is closed, or its final job is no longer stored. Rejects as
   * `enqueueMany` does, too.
   */
  add(
    items: readonly Input[],
    options?: EnqueueOptions | EnqueueOptionsOf<Input>,
  ): Promise<QueuedJob<Data, Result>[]>;
  /**
   * Closes the group: the final job is due once all jobs of the group have ended. Safe to call again.
   *
   * @throws {@link GroupClosedError} when there is no such group. Rejects as `enqueue` does, too.
   */
  close(): Promise<void>;
}

export interface Groups<Data, Result, Input> {
  /**
   * Stores jobs and a final job, which runs once all of them have ended. The final job runs exactly once for the group,
   * whichever process dies. Its handler gets the results with `context.parents()`. What happens after a failed job is
   * the final job's `onParentFailure`.
   *
   * If the call rejects, the group may be stored in part, and its final job does not run. With an `id` for the final job
   * and for each item, the call can be repeated.
   *
   * @throws {@link InvalidOptionError} when an option can never work. Rejects as `enqueueMany` does, too.
   */
  enqueueGroup(
    items: readonly Input[],
    options: GroupOptions<Input>,
  ): Promise<JobGroup<Data, Result, Input, QueuedJob<unknown>>>;
  /**
   * Returns the group with this final job, to add jobs of this queue or to close it, from any process. Several queues can
   * add jobs to one group. Makes no request.
   *
   * @throws {@link InvalidOptionError} when the argument names no job.
   */
  group(final: JobReference): JobGroup<Data, Result, Input>;
}

const GROUP_OPTIONS = z.strictObject({
  // No promise is confused by this: `then` is no function.
  // oxlint-disable-next-line unicorn/no-thenable
  then: z.strictObject(
    { queue: z.custom<object>().optional(), data: z.unknown(), options: z.unknown().optional() },
    { error: "give the final job: { data, queue, options }" },
  ),
  options: z.unknown().optional(),
  open: z.boolean({ error: "give true or false" }).optional(),
  producerTimeoutMs: wholeNumber(10_000, LONGEST_MS, "milliseconds").optional(),
});

type AnyEnqueuing = LinkedEnqueuing<unknown, unknown, unknown>;
const enqueuingOfQueues = new WeakMap<object, AnyEnqueuing>();

/** Registers the enqueuing of a queue, so that groups of other queues can store their final jobs there. */
export function keepEnqueuing<Data, Result, Input>(
  queue: object,
  linked: LinkedEnqueuing<Data, Result, Input>,
): void {
  enqueuingOfQueues.set(queue, linked as unknown as AnyEnqueuing);
}

export function createGroups<Data, Result, Input>({
  linked,
  flows,
}: {
  readonly linked: LinkedEnqueuing<Data, Result, Input>;
  readonly flows: Flows;
}): Groups<Data, Result, Input> {
  function groupOf<Final extends JobReference>(
    final: Final,
    jobs: readonly QueuedJob<Data, Result>[],
  ): JobGroup<Data, Result, Input, Final> {
    return assertArgumentCount({
      final,
      jobs,
      async add(items: readonly Input[], options?: EnqueueOptions | EnqueueOptionsOf<Input>) {
        const { queue, id } = final;
        const where = "add()";
        const link = async () => ({ final: { queue, id } });
        return linked.many(where, items, optionsInGroup(where, options), link);
      },
      close: () => flows.closeGroup({ queue: final.queue, id: final.id }),
    });
  }

  return {
    async enqueueGroup(items, given) {
      const where = "enqueueGroup()";
      const read = readOptions(where, GROUP_OPTIONS, given);
      const { queue } = read.then;
      const options = given.options;
      const target =
        queue === undefined ? (linked as unknown as AnyEnqueuing) : enqueuingOfQueues.get(queue);
      if (target === undefined) {
        const remedy = "give what queue() of this sluice returned";
        throw new InvalidOptionError({ where, option: "then.queue", value: queue, remedy });
      }
      if (!Array.isArray(items)) {
        const remedy = "give an array with the data of each job";
        throw new InvalidOptionError({ where, option: "items", value: items, remedy });
      }
      const ofFinal = `${where}, then`;
      const { options: ofThen } = read.then as FinalJob;
      assertInGroup(ofFinal, ofThen);
      // The final job has no parents yet, but may say what happens if one fails.
      const finalOptions = { after: [], ...ofThen } as EnqueueOptions;
      let final: QueuedJob<unknown> | undefined;
      const { producerTimeoutMs } = read;
      const openFinal = async () => ({ isOpen: true, producerTimeoutMs });
      const link = async () => {
        final ??= await target.one(ofFinal, read.then.data, finalOptions, openFinal);
        return { final: { queue: final.queue, id: final.id } };
      };
      const checked = optionsInGroup(where, options);
      const jobs = await linked.many(where, items, checked, link).catch((error: unknown) => {
        // An earlier call with the same ids has stored and closed the group.
        if (error instanceof GroupClosedError && final?.isNew === false) return [];
        throw error;
      });
      const stored = (await link()).final;
      if (read.open !== true) await flows.closeGroup(stored);
      return groupOf(final!, jobs);
    },
    group(final) {
      const read = JOB_REFERENCE.safeParse(final);
      if (read.success) return groupOf(read.data, []);
      const remedy = read.error.issues[0]!.message;
      throw new InvalidOptionError({ where: "group()", option: "final", value: final, remedy });
    },
  };
}

function optionsInGroup<Input>(
  where: string,
  options: EnqueueOptions | EnqueueOptionsOf<Input> | undefined,
): EnqueueOptions | EnqueueOptionsOf<Input> | undefined {
  if (typeof options !== "function") {
    assertInGroup(where, options);
    return options;
  }
  return (data, index) => {
    const own = options(data, index);
    assertInGroup(`${where}[${index}]`, own);
    return own;
  };
}
