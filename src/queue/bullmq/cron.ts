import { loadBullmq } from "./load-bullmq.cjs";

/** The default time zone of a cron expression. */
export const UTC = "UTC";

/** Whether BullMQ can read an expression, and it has a next time. */
export function isCron(cron: string, timeZone: string | undefined): boolean {
  // The parser reads it as each minute, but BullMQ stores no schedule for it.
  if (cron === "") return false;
  try {
    return nextTime(cron, timeZone) !== undefined;
  } catch {
    return false;
  }
}

function nextTime(pattern: string, tz: string = UTC): unknown {
  return loadBullmq().defaultRepeatStrategy(Date.now(), { pattern, tz });
}
