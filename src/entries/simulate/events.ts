/** Things that happen at a time in the simulation, the earliest first. Those of one time happen in the order given. */
export interface Events {
  /** The time of the next event, in ms. Infinity if there is none. */
  readonly nextAtMs: number;
  add(atMs: number, run: (nowMs: number) => void): void;
  /** Runs the next event. */
  runNext(): void;
}

interface Event {
  readonly atMs: number;
  readonly order: number;
  readonly run: (nowMs: number) => void;
}

export function createEvents(): Events {
  /** A binary heap. */
  const events: Event[] = [];
  let order = 0;

  function sinkFirst(event: Event): void {
    let at = 0;
    for (;;) {
      const left = 2 * at + 1;
      if (left >= events.length) break;
      const right = left + 1;
      const below = right < events.length && isBefore(events[right]!, events[left]!) ? right : left;
      if (!isBefore(events[below]!, event)) break;
      events[at] = events[below]!;
      at = below;
    }
    events[at] = event;
  }

  return {
    get nextAtMs() {
      return events.length === 0 ? Infinity : events[0]!.atMs;
    },
    add(atMs, run) {
      const event = { atMs, order: (order += 1), run };
      let at = events.push(event) - 1;
      while (at > 0) {
        const above = (at - 1) >> 1;
        if (!isBefore(event, events[above]!)) break;
        events[at] = events[above]!;
        at = above;
      }
      events[at] = event;
    },
    runNext() {
      const first = events[0]!;
      const last = events.pop()!;
      if (events.length > 0) sinkFirst(last);
      first.run(first.atMs);
    },
  };
}

function isBefore(a: Event, b: Event): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}
