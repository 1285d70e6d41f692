/** Limits the calls of one process. `limit` is how many it allows at once now. */
export interface ProcessLimiter {
  readonly limit: number;
  run(call: () => Promise<unknown>): Promise<unknown>;
}

/**
 * Gradient2 of Netflix's concurrency-limits 0.5, with its default options: each process adapts its own limit to the
 * latency of its own calls.
 */
export function createGradient2({ initial = 20, least = 1, most = 200 } = {}): ProcessLimiter {
  const [smoothing, tolerance, queue, longWindow] = [0.2, 1.5, 4, 600];
  let limit = initial;
  let running = 0;
  let longMs = 0;
  let samples = 0;
  const waiting: (() => void)[] = [];

  function learn(latencyMs: number, inFlight: number): void {
    samples += 1;
    const weight = samples <= 10 ? 1 / samples : 2 / (longWindow + 1);
    longMs += (latencyMs - longMs) * weight;
    if (longMs / latencyMs > 2) longMs *= 0.95;
    if (inFlight < limit / 2) return;
    const gradient = Math.max(0.5, Math.min(1, (tolerance * longMs) / latencyMs));
    const next = limit * (1 - smoothing) + (limit * gradient + queue) * smoothing;
    limit = Math.max(least, Math.min(most, next));
  }

  return {
    get limit() {
      return Math.floor(limit);
    },
    async run(call) {
      while (running >= Math.floor(limit)) {
        await new Promise<void>((resolve) => waiting.push(resolve));
      }
      running += 1;
      const inFlight = running;
      const startMs = performance.now();
      try {
        return await call();
      } finally {
        learn(performance.now() - startMs, inFlight);
        running -= 1;
        for (let free = Math.floor(limit) - running; free > 0; free--) waiting.shift()?.();
      }
    },
  };
}
