import type { Job } from "../../../queue/job.ts";
import type { DrawnSlot } from "../../../throttle/slot/slot.ts";

/** A job with its slot, for a client that runs it. */
export interface Offer {
  readonly job: Job<unknown>;
  /** The token of the job's lock. */
  readonly token: string;
  /** The number of this attempt: 1 for the first. */
  readonly attempt: number;
  readonly slot: DrawnSlot;
  /** How long the attempt may take, in ms. Undefined without a limit. */
  readonly limitMs: number | undefined;
}

/** The requests of clients that wait for the jobs of one queue. */
export interface Takers {
  /** How many more jobs these clients wait for. */
  readonly demand: number;
  /** Gives a job to the client that has waited longest. Returns false if no client waits. */
  offer(offer: Offer): boolean;
  /**
   * Waits for jobs. Resolves with up to `max` jobs once the first is there, or with none after `waitMs`, or when the
   * signal is aborted.
   */
  take(request: {
    readonly max: number;
    readonly waitMs: number;
    readonly signal: AbortSignal;
  }): Promise<readonly Offer[]>;
}

/** How long the first job of a request waits for others, so that one response has several jobs. */
const GATHER_MS = 5;
/** How long a request that does not wait looks for jobs: long enough for a round trip to Redis. */
const LOOK_MS = 100;

interface Taker {
  readonly room: () => number;
  add(offer: Offer): void;
}

export function createTakers(onDemand: () => void): Takers {
  const waiting = new Set<Taker>();

  return {
    get demand() {
      let sum = 0;
      for (const { room } of waiting) sum += room();
      return sum;
    },
    offer(offer) {
      const [first] = waiting;
      first?.add(offer);
      return first !== undefined;
    },
    take({ max, waitMs, signal }) {
      return new Promise((resolve) => {
        const offers: Offer[] = [];
        let gathering: NodeJS.Timeout | undefined;
        const taker: Taker = {
          room: () => max - offers.length,
          add(offer) {
            offers.push(offer);
            if (offers.length >= max) end();
            else gathering ??= setTimeout(end, GATHER_MS);
          },
        };
        function end(): void {
          if (!waiting.delete(taker)) return;
          clearTimeout(timer);
          clearTimeout(gathering);
          signal.removeEventListener("abort", end);
          resolve(offers);
          onDemand();
        }
        const timer = setTimeout(end, Math.max(waitMs, LOOK_MS));
        waiting.add(taker);
        signal.addEventListener("abort", end, { once: true });
        if (signal.aborted) end();
        else onDemand();
      });
    },
  };
}
