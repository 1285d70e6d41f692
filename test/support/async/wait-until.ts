import { setTimeout as pause } from "node:timers/promises";

const POLL_MS = 10;
const PATIENCE_MS = 60_000;

/** Waits for a condition of the outside world; gives up after a minute and says for what it waited. */
export async function waitUntil(
  condition: () => boolean | Promise<boolean>,
  what: string,
): Promise<void> {
  const deadlineMs = performance.now() + PATIENCE_MS;
  while (!(await condition())) {
    if (performance.now() > deadlineMs) throw new Error(`waited a minute in vain until ${what}`);
    await pause(POLL_MS);
  }
}
