import { vi } from "vitest";

/** Takes so many ms of fake time, as a slow store or call would; 0 takes none. Never sleeps: it throws on real timers. */
export async function simulateLatency(ms: number): Promise<void> {
  if (!vi.isFakeTimers()) {
    throw new Error("simulateLatency() would sleep on real timers; call vi.useFakeTimers() first");
  }
  if (ms > 0) await new Promise((resolve) => setTimeout(resolve, ms));
}
