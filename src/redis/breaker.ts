/** When a breaker opens, and how often it probes. */
export interface BreakerOptions {
  /** After so many failures in a row the server is asked no more. Defaults to 3. */
  readonly failures?: number | undefined;
  /** How often one probe is let through then, give or take a quarter. Defaults to 30,000 ms. */
  readonly probeMs?: number | undefined;
}

/**
 * Keeps a server from being asked that does not answer.
 *
 * closed: questions pass; so many failures in a row open it.
 * open: questions fail at once. A probe goes out from time to time, and as soon as a connection is ready again.
 * probing: questions fail at once; the probe's answer closes it, its failure opens it anew.
 *
 * After a probe alone it is on trial: the first failure opens it again.
 */
export interface Breaker {
  readonly isOpen: boolean;
  /** A question was answered in time. */
  succeed(): void;
  /** A question that was asked at `askedAtMs` of `performance.now()` was not: a time-out, or a lost connection. */
  fail(askedAtMs: number): void;
  /** A connection is ready again: a reason to probe at once. */
  ready(): void;
  /** Probes no more. */
  close(): void;
}

type State =
  | { readonly is: "closed"; readonly failures: number }
  | { readonly is: "open"; readonly timer: NodeJS.Timeout }
  | { readonly is: "probing" }
  | { readonly is: "ended" };

const FAILURES = 3;
const PROBE_MS = 30_000;
/** Replicas that lost Redis at one moment are not to come back at one moment. */
const JITTER = 0.25;

export function createBreaker(
  { failures: most = FAILURES, probeMs = PROBE_MS }: BreakerOptions,
  parts: {
    /** Asks the server for what costs it nothing; rejects in time. */
    readonly probe: () => Promise<unknown>;
    readonly onChange: (state: "up" | "down") => void;
  },
): Breaker {
  let state: State = { is: "closed", failures: 0 };
  /** What failed together counts once: questions that were under way at a failure tell no more of it. */
  let failedAtMs = -Infinity;
  /** Whether a question was answered since it closed: else a connection alone is no reason to probe again. */
  let isProven = true;

  function open(): void {
    const delayMs = probeMs * (1 - JITTER + 2 * JITTER * Math.random());
    const timer = setTimeout(() => void probe(), delayMs);
    timer.unref();
    state = { is: "open", timer };
  }

  async function probe(): Promise<void> {
    state = { is: "probing" };
    const isAnswered = await parts.probe().then(
      () => true,
      () => false,
    );
    if (state.is !== "probing") return;
    if (!isAnswered) return open();
    state = { is: "closed", failures: most - 1 };
    isProven = false;
    parts.onChange("up");
  }

  return {
    get isOpen() {
      return state.is === "open" || state.is === "probing";
    },
    succeed() {
      isProven = true;
      if (state.is === "closed" && state.failures > 0) state = { is: "closed", failures: 0 };
    },
    fail(askedAtMs) {
      if (state.is !== "closed" || askedAtMs < failedAtMs) return;
      failedAtMs = performance.now();
      const failures = state.failures + 1;
      if (failures < most) {
        state = { is: "closed", failures };
        return;
      }
      open();
      parts.onChange("down");
    },
    ready() {
      if (state.is !== "open" || !isProven) return;
      clearTimeout(state.timer);
      void probe();
    },
    close() {
      if (state.is === "open") clearTimeout(state.timer);
      state = { is: "ended" };
    },
  };
}
