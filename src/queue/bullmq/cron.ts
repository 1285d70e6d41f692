import { defaultRepeatStrategy } from "bullmq";

/** Where the times of a cron expression are local ones, unless it is said otherwise. */
export const UTC = "UTC";

/** Whether BullMQ can read an expression, and there is a time that it means. */
export function isCron(cron: string, timeZone: string | undefined): boolean {
  // It would be read as each minute, but BullMQ takes no schedule for it.
  if (cron === "") return false;
  try {
    return nextTime(cron, timeZone) !== undefined;
  } catch {
    return false;
  }
}

function nextTime(pattern: string, tz: string = UTC): unknown {
  return defaultRepeatStrategy(Date.now(), { pattern, tz });
}
