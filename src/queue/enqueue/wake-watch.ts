/**
 * A job that is enqueued wakes one idle worker. If that one stands still, as a paused machine does, or its connection is
 * dead, nobody takes the job until another asks by itself. So who has enqueued a job looks a moment later whether it was
 * taken, and has another worker woken if not. One look is under way at a time, for whatever was enqueued meanwhile: it
 * costs up to four commands a second, and one every four seconds while jobs wait for their turn anyway.
 */
import type { Heard } from "../../core/stores/queue/store.ts";

export interface WakeWatch {
  /** Looks after a job that is due in so many ms. */
  watch(id: string, dueInMs?: number): void;
  close(): void;
}

const FIRST_LOOK_MS = 250;
/** By then each worker has asked by itself. */
const LAST_LOOK_MS = 4_000;
/** A worker that has asked meanwhile knows when a later job is due. */
const MOST_DUE_MS = 5_000;
const MOST_TIMERS = 100;

export function createWakeWatch(look: (id: string) => Promise<Heard>): WakeWatch {
  /** The job at hand, and the one that was enqueued last meanwhile. */
  let watched: string | undefined;
  let latest: string | undefined;
  let lookMs = FIRST_LOOK_MS;
  const timers = new Set<NodeJS.Timeout>();

  function later(ms: number, act: () => void): void {
    const timer = setTimeout(() => {
      timers.delete(timer);
      act();
    }, ms).unref();
    timers.add(timer);
  }

  function begin(id: string): void {
    watched = id;
    later(lookMs, () => void lookAt(id));
  }

  async function lookAt(id: string): Promise<void> {
    // While Redis is away, nobody takes it either; workers ask when they have it again.
    const heard = await look(id).catch((): Heard => "taken");
    lookMs = heard === "taken" ? FIRST_LOOK_MS : Math.min(2 * lookMs, LAST_LOOK_MS);
    const isOver = heard !== "woken" || lookMs === LAST_LOOK_MS;
    const next = isOver ? latest : id;
    if (isOver) latest = undefined;
    watched = undefined;
    if (next !== undefined) begin(next);
  }

  function watchNow(id: string): void {
    if (watched === undefined) begin(id);
    else latest = id;
  }

  return {
    watch(id, dueInMs = 0) {
      if (dueInMs <= 0) watchNow(id);
      else if (dueInMs <= MOST_DUE_MS && timers.size < MOST_TIMERS) {
        later(dueInMs, () => watchNow(id));
      }
    },
    close() {
      for (const timer of timers) clearTimeout(timer);
      timers.clear();
      watched = "";
    },
  };
}
