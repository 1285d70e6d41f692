import type { Fed, FeedRequest, LaneJob, LaneStore } from "../../../src/core/queue-store.ts";
import { createFeeder, type Feeder } from "../../../src/queue/lanes/feeder.ts";

/** A feeder, and what its lanes were told and answer. */
export interface FeederSetup {
  readonly feeder: Feeder;
  /** What was told so far. */
  readonly told: FeedRequest[];
  readonly joined: (readonly LaneJob[])[];
  readonly warnings: string[];
  /** What the lanes answer from now on. */
  answer: (request: FeedRequest) => Partial<Fed> | Promise<Partial<Fed>>;
  joinFails: boolean;
  places: number;
  heldBack: number;
}

/** A feeder on lanes that answer as a test says: all that arrived was fed, and nothing is parked. */
export function setUpFeeder(): FeederSetup {
  const setup = {
    told: [] as FeedRequest[],
    joined: [] as (readonly LaneJob[])[],
    warnings: [] as string[],
    answer: (): Partial<Fed> => ({}),
    joinFails: false,
    places: 50,
    heldBack: 0,
  } as Omit<FeederSetup, "feeder"> as FeederSetup;
  const lanes = {
    async join(_queue: string, jobs: readonly LaneJob[]) {
      if (setup.joinFails) throw new Error("no reply");
      setup.joined.push(jobs);
    },
    async feed(request: FeedRequest): Promise<Fed> {
      setup.told.push(request);
      const arrivals = request.arrived.map(() => "fed" as const);
      const quiet = { parked: 0, nextMs: undefined, active: 0 };
      return { arrivals, ...quiet, ...(await setup.answer(request)) };
    },
  } as Partial<LaneStore> as LaneStore;
  const feeder = createFeeder({
    lanes,
    queue: "jobs",
    workerId: "w",
    logger: { warn: (_facts, message) => setup.warnings.push(message), error: () => {} },
    capacity: () => setup.places,
    deferred: () => setup.heldBack,
  });
  return Object.assign(setup, { feeder });
}

/** Has so many jobs wait for their slots; ends the wait of one. */
export function beginWaits(feeder: Feeder, count: number): () => Promise<unknown> {
  const ends: (() => void)[] = [];
  const waits = Array.from({ length: count }, () =>
    feeder.whileWaiting(new Promise<void>((resolve) => ends.push(resolve))),
  );
  return () => {
    ends.pop()!();
    return waits.pop()!;
  };
}
