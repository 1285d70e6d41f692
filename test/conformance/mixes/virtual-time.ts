/**
 * Time that only moves when nothing else is left to do: timers, `performance.now()` and `Date.now()`. A second of it
 * takes as long as its work, so thousands of mixes fit into a minute.
 */
export interface VirtualTime {
  /** In ms, on `performance.now()`. */
  now(): number;
  sleep(ms: number): Promise<void>;
  /** Runs what is due until then, each time after all promises have settled. */
  runUntil(ms: number): Promise<void>;
  /** Gives the real time back. */
  end(): void;
}

interface Timer {
  readonly atMs: number;
  readonly order: number;
  readonly ring: () => void;
}

const START_MS = 1_000_000;
/** When the clock of the buckets starts. */
const ORIGIN_MS = 1_800_000_000_000;

export function beginVirtualTime(isBusy: () => boolean = () => false): VirtualTime {
  const { setTimeout: realSetTimeout, clearTimeout: realClearTimeout, setImmediate } = globalThis;
  const realNow = performance.now.bind(performance);
  const realDateNow = Date.now;
  const origin = Object.getOwnPropertyDescriptor(performance, "timeOrigin");
  let timers: Timer[] = [];
  let nowMs = START_MS;
  let order = 0;

  function add(ms: number, ring: () => void): Timer {
    const timer = { atMs: nowMs + Math.max(0, ms), order: (order += 1), ring };
    let at = timers.length;
    while (at > 0 && timers[at - 1]!.atMs > timer.atMs) at -= 1;
    timers.splice(at, 0, timer);
    return timer;
  }

  function remove(timer: Timer): void {
    timers = timers.filter((each) => each !== timer);
  }

  const handleOf = (timer: Timer) => ({
    timer,
    ref() {
      return this;
    },
    unref() {
      return this;
    },
  });

  const settled = async (): Promise<void> => {
    do await new Promise<void>((resolve) => void setImmediate(resolve));
    while (isBusy());
  };

  Object.assign(globalThis, {
    setTimeout: (ring: (...given: unknown[]) => void, ms = 0, ...given: unknown[]) =>
      handleOf(add(Math.max(1, Math.floor(ms)), () => ring(...given))),
    clearTimeout: (handle?: { readonly timer?: Timer }) => {
      if (handle?.timer !== undefined) remove(handle.timer);
    },
  });
  Object.defineProperty(performance, "now", { value: () => nowMs, configurable: true });
  const originMs = ORIGIN_MS - START_MS;
  Object.defineProperty(performance, "timeOrigin", { value: originMs, configurable: true });
  Date.now = () => originMs + Math.floor(nowMs);

  return {
    now: () => nowMs,
    sleep: (ms) => new Promise((resolve) => void add(ms, resolve)),
    async runUntil(ms) {
      for (;;) {
        await settled();
        const first = timers[0];
        if (first === undefined || first.atMs > ms) break;
        nowMs = Math.max(nowMs, first.atMs);
        timers.shift();
        first.ring();
      }
      nowMs = ms;
    },
    end() {
      Object.assign(globalThis, { setTimeout: realSetTimeout, clearTimeout: realClearTimeout });
      Object.defineProperty(performance, "now", { value: realNow, configurable: true });
      if (origin === undefined) Reflect.deleteProperty(performance, "timeOrigin");
      else Object.defineProperty(performance, "timeOrigin", origin);
      Date.now = realDateNow;
    },
  };
}
