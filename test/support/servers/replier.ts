import type { Socket } from "node:net";
import { setTimeout as pause } from "node:timers/promises";

/** How replies come: at once, late, or byte by byte, each in a turn of its own. */
export type ReplyMode = "pass" | "delay" | "slice";

/** How late a delayed reply is by default, in ms. */
export const REPLY_DELAY_MS = 200;

/** Writes replies to a client in their order, whatever the mode was when each came. */
export function createReplier(
  client: Socket,
): (reply: Buffer, mode: ReplyMode, delayMs?: number) => void {
  let last = Promise.resolve();
  let left = 0;

  async function write(reply: Buffer, mode: ReplyMode, dueMs: number): Promise<void> {
    if (mode === "delay") await pause(Math.max(0, dueMs - performance.now()));
    const step = mode === "slice" ? 1 : reply.length;
    for (let at = 0; at < reply.length; at += step) {
      client.write(reply.subarray(at, at + step));
      if (mode === "slice") await new Promise(setImmediate);
    }
    left -= 1;
  }

  return (reply, mode, delayMs = REPLY_DELAY_MS) => {
    if (mode === "pass" && left === 0) return void client.write(reply);
    const dueMs = performance.now() + delayMs;
    left += 1;
    last = last.then(() => write(reply, mode, dueMs));
  };
}
