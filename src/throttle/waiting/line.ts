import { PRIORITIES, type Priority } from "../../core/input/options.ts";

/** A caller that waits, as a link of its line. */
export interface Waiter {
  readonly priority: Priority;
  /** The priority of the caller whose place it took; undefined: it waits with its own. Only the line writes it. */
  waitsAs?: Priority | undefined;
  /** Its lane, where lanes take turns; undefined: it waits behind all callers that came before. */
  readonly lane?: string | undefined;
  /** How often its lane goes in a round of turns; 1 unless given. */
  readonly laneWeight?: number | undefined;
  /** In which round of turns it goes, or how far in it; only the line writes it. */
  round: number;
  previous: Waiter | undefined;
  next: Waiter | undefined;
}

/** The callers that wait in one process: by priority, then first come, first served; those of lanes take turns. */
export interface Line<W extends Waiter> {
  readonly size: number;
  /** The caller that would go next. */
  readonly head: W | undefined;
  /** The caller that would go last. */
  readonly last: W | undefined;
  /** From the next to the last, with their ranks. */
  fromFirst(): Iterable<{ readonly rank: number; readonly caller: W }>;
  /** From the last to the next; each may be taken out once the iteration has come to it. */
  fromLast(): Iterable<W>;
  /** How many of one priority wait; 0 is the most urgent. */
  sizeOf(rank: number): number;
  firstOf(rank: number): W | undefined;
  lastOf(rank: number): W | undefined;
  push(waiter: W): void;
  /** Takes out the next caller, of one priority if that is given. */
  shift(rank?: number): W | undefined;
  /** Takes out a caller that still waits, wherever it is. */
  remove(waiter: W): void;
  /** Takes out the first one, and puts the second one, which waits elsewhere in this line, into its place. */
  replace(waiter: W, by: W): void;
}

/** In which round the last caller of a lane goes, in which one has gone last, and how many callers of it wait. */
interface Turns {
  round: number;
  wentIn: number;
  waiting: number;
}

/** How many idle lanes are remembered, beside twice as many as callers wait. */
const MOST_IDLE_LANES = 1_000;

interface Queue {
  size: number;
  /** The round of the caller that went last. */
  round: number;
  readonly lanes: Map<string, Turns>;
  head: Waiter | undefined;
  tail: Waiter | undefined;
}

/** A doubly linked list for each priority, so that all three operations take the same time however long the line is. */
export function createLine<W extends Waiter>(): Line<W> {
  const queues = new Map<Priority, Queue>(
    PRIORITIES.map((priority) => [
      priority,
      { size: 0, round: 0, lanes: new Map<string, Turns>(), head: undefined, tail: undefined },
    ]),
  );
  const inOrder = [...queues.values()];
  let size = 0;

  function queueOf(waiter: Waiter): Queue {
    return queues.get(waitsWith(waiter))!;
  }

  function first(): W | undefined {
    for (const { head } of inOrder) if (head !== undefined) return head as W;
    return undefined;
  }

  function link(
    queue: Queue,
    waiter: Waiter,
    { before, after }: { readonly before: Waiter | undefined; readonly after: Waiter | undefined },
  ): void {
    waiter.previous = before;
    waiter.next = after;
    if (before === undefined) queue.head = waiter;
    else before.next = waiter;
    if (after === undefined) queue.tail = waiter;
    else after.previous = waiter;
    queue.size += 1;
    size += 1;
  }

  function remove(waiter: Waiter): void {
    const turns = unlink(queueOf(waiter), waiter);
    // Callers that left without a turn have not used it up.
    if (turns?.waiting === 0) turns.round = turns.wentIn;
  }

  /** Returns how its lane takes turns. */
  function unlink(queue: Queue, waiter: Waiter): Turns | undefined {
    const turns = waiter.lane === undefined ? undefined : queue.lanes.get(waiter.lane);
    if (turns !== undefined) turns.waiting -= 1;
    if (waiter.previous === undefined) queue.head = waiter.next;
    else waiter.previous.next = waiter.next;
    if (waiter.next === undefined) queue.tail = waiter.previous;
    else waiter.next.previous = waiter.previous;
    waiter.previous = undefined;
    waiter.next = undefined;
    queue.size -= 1;
    if (queue.size === 0) queue.lanes.clear();
    size -= 1;
    return turns;
  }

  return {
    get size() {
      return size;
    },
    get head() {
      return first();
    },
    get last() {
      return inOrder.findLast(({ tail }) => tail !== undefined)?.tail as W | undefined;
    },
    *fromFirst() {
      for (const [rank, { head }] of inOrder.entries()) {
        for (let waiter = head; waiter !== undefined; waiter = waiter.next) {
          yield { rank, caller: waiter as W };
        }
      }
    },
    *fromLast() {
      for (const { tail } of inOrder.toReversed()) {
        let waiter = tail;
        while (waiter !== undefined) {
          const { previous } = waiter;
          yield waiter as W;
          waiter = previous;
        }
      }
    },
    sizeOf: (rank) => inOrder[rank]!.size,
    firstOf: (rank) => inOrder[rank]!.head as W | undefined,
    lastOf: (rank) => inOrder[rank]!.tail as W | undefined,
    push(waiter) {
      const queue = queueOf(waiter);
      waiter.round = roundOf(queue, waiter);
      let before = queue.tail;
      while (before !== undefined && goesBefore(queue, waiter, before)) before = before.previous;
      link(queue, waiter, { before, after: before === undefined ? queue.head : before.next });
    },
    shift(rank) {
      const head = rank === undefined ? first() : (inOrder[rank]!.head as W | undefined);
      if (head === undefined) return undefined;
      const queue = queueOf(head);
      queue.round = head.round;
      const turns = unlink(queue, head);
      if (turns !== undefined) turns.wentIn = head.round;
      return head;
    },
    remove,
    replace(waiter, by) {
      remove(by);
      const { round } = waiter;
      const queue = queueOf(waiter);
      by.round = round;
      by.waitsAs = waitsWith(waiter);
      if (by.lane !== undefined) {
        const turns = queue.lanes.get(by.lane) ?? { round, wentIn: -Infinity, waiting: 0 };
        turns.waiting += 1;
        queue.lanes.set(by.lane, turns);
      }
      link(queue, by, { before: waiter, after: waiter.next });
      unlink(queue, waiter);
    },
  };
}

/** The priority with which a caller waits. */
export function waitsWith({ waitsAs, priority }: Waiter): Priority {
  return waitsAs ?? priority;
}

/**
 * A caller of a lane goes a turn after the lane's last one. A caller that has no lane goes with the last of all, but
 * waits no more rounds than there are callers: the last may be of a lane that rarely has a turn.
 */
function roundOf({ round, lanes, tail, size }: Queue, { lane, laneWeight = 1 }: Waiter): number {
  if (lane === undefined) return Math.min(tail?.round ?? round, round + size);
  const turns = lanes.get(lane) ?? { round: -Infinity, wentIn: -Infinity, waiting: 0 };
  turns.round = Math.max(round, turns.round + 1 / laneWeight);
  turns.waiting += 1;
  lanes.set(lane, turns);
  if (lanes.size > MOST_IDLE_LANES + 2 * size) forgetIdle(lanes);
  return turns.round;
}

/** In the same round, lanes of which fewer callers wait go first: those came to this process later. */
function goesBefore({ lanes }: Queue, waiter: Waiter, other: Waiter): boolean {
  if (waiter.round !== other.round) return waiter.round < other.round;
  if (waiter.lane === undefined || other.lane === undefined) return false;
  return lanes.get(waiter.lane)!.waiting < lanes.get(other.lane)!.waiting;
}

function forgetIdle(lanes: Map<string, Turns>): void {
  for (const [lane, { waiting }] of lanes) if (waiting === 0) lanes.delete(lane);
}

/** Calls that come together are in line this far apart … */
const APART_MS = 1;
/** … but none is put off by more than this. */
const MOST_APART_MS = 200;

/**
 * Returns what gives each call of a process its place in the line of all replicas: when it came. Of calls that come
 * together, each is a little behind the one before; else a replica that brings hundreds at once would be served as a
 * block, and those that bring theirs a moment later would wait for all of them.
 */
export function createArrivals(): (rank: number, nowMs: number) => number {
  const lastMs: number[] = [];
  return (rank, nowMs) => {
    const behindMs = (lastMs[rank] ?? -Infinity) + APART_MS;
    const atMs = Math.min(Math.max(nowMs, behindMs), nowMs + MOST_APART_MS);
    // A call that came earlier, and for which a policy was looked up meanwhile, does not put the next one back.
    lastMs[rank] = Math.max(lastMs[rank] ?? -Infinity, atMs);
    return atMs;
  };
}
