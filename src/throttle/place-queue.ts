import type { PriorityQueue } from "p-queue";
import { PRIORITIES } from "../core/options.ts";
import { createLine, type Waiter } from "./line.ts";

type Run = NonNullable<ReturnType<PriorityQueue["dequeue"]>>;

interface Entry extends Waiter {
  readonly id: string;
  readonly run: Run;
}

/** Who waits in a p-queue whose priorities are ranks. Its own queue searches all who wait for one that leaves. */
export class PlaceQueue {
  readonly #line = createLine<Entry>();
  readonly #entries = new Map<string, Entry>();

  get size(): number {
    return this.#line.size;
  }

  /** p-queue gives each an id of its own. */
  enqueue(
    run: Run,
    { priority: rank = 0, id = "" }: { priority?: number; id?: string } = {},
  ): void {
    const links = { round: 0, previous: undefined, next: undefined };
    const entry: Entry = { priority: PRIORITIES[rank]!, id, run, ...links };
    this.#entries.set(id, entry);
    this.#line.push(entry);
  }

  dequeue(): Run | undefined {
    const entry = this.#line.shift();
    if (entry !== undefined) this.#entries.delete(entry.id);
    return entry?.run;
  }

  remove(id: string): void {
    const entry = this.#entries.get(id);
    if (entry === undefined) return;
    this.#entries.delete(id);
    this.#line.remove(entry);
  }

  /** p-queue does neither of itself. */
  filter(): Run[] {
    return [];
  }

  setPriority(): void {}
}
