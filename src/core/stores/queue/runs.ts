/** A run of a schedule. */
export interface RunName {
  /** The schedule's name. */
  readonly name: string;
  readonly id: string;
}

/** A schedule as it is declared. */
export interface RunDeclaration {
  readonly name: string;
  /** Its fields as BullMQ stores them, and ours. */
  readonly fields: Readonly<Record<string, string | number>>;
  /** The next time of cron, in ms since 1970, computed from an earlier answer. */
  readonly cronMs?: number | undefined;
}

/**
 * The run that waits next, with the fields of its hash, and whether the schedule is new; or the present, from which the next
 * time of cron is to be computed.
 */
export type RunDeclared =
  | {
      readonly id: string;
      readonly fields: readonly string[];
      readonly isNew: boolean;
      readonly nowMs?: undefined;
    }
  | { readonly nowMs: number };

/** What is known of the times of a cron schedule, to compute the next one. */
export interface CronState {
  readonly nowMs: number;
  /** The first time that is not counted yet. */
  readonly atMs: number;
  /** Whether the run at hand is the one for that time. */
  readonly isInTime: boolean;
  readonly cron: string;
  readonly timeZone: string;
}

/** The next time of a cron schedule that is yet to come, and how many have passed before it, uncounted. */
export interface NextCron extends Omit<CronState, "nowMs"> {
  readonly nextMs: number;
  readonly passed: number;
}

/** What a worker is about to do with a run: wait for its slot, begin it, or leave it out since it is too late. */
export interface RunStep extends RunName {
  readonly step: "look" | "begin" | "miss";
  readonly next?: NextCron | undefined;
}

/** A run that is to be removed while it waits for its next attempt. */
export interface RunDrop extends RunName {
  readonly next?: NextCron | undefined;
}

export type RunAnswer =
  /** The worker goes on with it. */
  | { readonly says: "go"; readonly isOfSchedule: boolean }
  /** It is no longer there, or counted as missed: nothing is left to do with it. */
  | { readonly says: "gone" | "left out" }
  | ({ readonly says: "next time?" } & CronState);

export interface RunsEnded {
  /** Whether there was such a schedule. */
  readonly isEnded: boolean;
  /** The ids of the runs that were removed. */
  readonly removed: readonly string[];
}

/** The runs of recurring jobs: of each schedule one waits at most, and the next one is planned as it begins. */
export interface RunStore {
  declare(queue: string, declaration: RunDeclaration): Promise<RunDeclared>;
  begin(queue: string, step: RunStep): Promise<RunAnswer>;
  /** Removes a run that waits for its next attempt, and plans the next one. `"gone"` if it does not wait for one. */
  drop(queue: string, run: RunDrop): Promise<RunAnswer>;
  /** Takes note of what became of a run that had begun: as this schedule's for certain, or maybe. */
  settle(queue: string, run: RunName, hasBegun: boolean): Promise<void>;
  /** Ends a schedule, and removes its runs that wait, wherever they do. */
  end(queue: string, name: string): Promise<RunsEnded>;
}
