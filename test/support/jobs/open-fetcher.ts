import type {
  LaneJob,
  Taken,
  TakenJob,
  TakeRequest,
} from "../../../src/stores/redis/scripts/queue/lanes.ts";
import type { LaneStore } from "../../../src/stores/redis/queue/store.ts";
import type { KeyFloor } from "../../../src/core/policy/fair.ts";
import type { Fetched } from "../../../src/queue/bullmq/stored-worker.ts";
import { createFetcher, type Fetcher } from "../../../src/queue/lanes/fetcher.ts";

/** A fetcher, and what its lanes were asked and answer. */
export interface FetcherSetup {
  readonly fetcher: Fetcher;
  /** What was asked so far. */
  readonly asked: TakeRequest[];
  readonly joined: (readonly LaneJob[])[];
  readonly warnings: string[];
  /** What the lanes answer from now on. */
  answer: (request: TakeRequest) => Partial<Taken> | Promise<Partial<Taken>>;
  joinFails: boolean;
  places: number;
  heldBack: number;
  floors: readonly KeyFloor[];
}

/** A fetcher on lanes that answer as a test says: by default that there is no job, and none known to come. */
export function setUpFetcher(): FetcherSetup {
  const setup = {
    asked: [] as TakeRequest[],
    joined: [] as (readonly LaneJob[])[],
    warnings: [] as string[],
    answer: (): Partial<Taken> => ({}),
    joinFails: false,
    places: 50,
    heldBack: 0,
    floors: [],
  } as Omit<FetcherSetup, "fetcher"> as FetcherSetup;
  const lanes: Pick<LaneStore, "join" | "take"> = {
    async join({ jobs }) {
      if (setup.joinFails) throw new Error("no reply");
      setup.joined.push(jobs);
    },
    async take(request) {
      setup.asked.push(request);
      const orders = { isPaused: false, version: "" };
      const nothing = {
        jobs: [],
        parked: 0,
        active: 0,
        nextMs: undefined,
        isMoreDue: false,
        hasFlows: false,
      };
      return { ...nothing, orders, ...(await setup.answer(request)) };
    },
  };
  const fetcher = createFetcher({
    lanes,
    queue: "jobs",
    workerId: "w",
    logger: { warn: (_facts, message) => setup.warnings.push(message), error: () => {} },
    lockMs: 30_000,
    capacity: () => setup.places,
    applyOrders: () => {},
    least: 1,
    admits: () => Infinity,
    deferred: () => setup.heldBack,
    floors: () => setup.floors,
  });
  return Object.assign(setup, { fetcher });
}

/** The next job, asked for anew, since Redis has told that there may be one. */
export function lookAgain(fetcher: Fetcher): Promise<Fetched> {
  fetcher.look();
  return fetcher.next();
}

/** Jobs as lanes give them. */
export function takenJobs(...ids: readonly string[]): TakenJob[] {
  return ids.map((id) => ({
    id,
    arrival: "turn",
    orderedKey: undefined,
    token: `of ${id}`,
    fields: [],
  }));
}

/** Has so many jobs wait for their slots; ends the wait of one. */
export function beginWaits(fetcher: Fetcher, count: number): () => Promise<unknown> {
  const ends: (() => void)[] = [];
  const waits = Array.from({ length: count }, () =>
    fetcher.whileWaiting(undefined, new Promise<void>((resolve) => ends.push(resolve))),
  );
  return () => {
    ends.pop()!();
    return waits.pop()!;
  };
}

export function startMany(fetcher: Fetcher, count: number): void {
  for (let n = 0; n < count; n++) fetcher.start(undefined);
}
