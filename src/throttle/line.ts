import { PRIORITIES, type Priority } from "../core/priority.ts";

/** One who waits, as a link of the line it waits in. */
export interface Waiter {
  readonly priority: Priority;
  previous: Waiter | undefined;
  next: Waiter | undefined;
}

/** The callers that wait in one process: by priority, then first come, first served. */
export interface Line<W extends Waiter> {
  readonly size: number;
  /** Who would go next. */
  readonly head: W | undefined;
  /** How many of one priority wait; 0 is the most urgent. */
  sizeOf(rank: number): number;
  push(waiter: W): void;
  shift(): W | undefined;
  /** Takes out one that still waits, wherever it stands. */
  remove(waiter: W): void;
}

interface Queue {
  size: number;
  head: Waiter | undefined;
  tail: Waiter | undefined;
}

/** A doubly linked list for each priority, so that all three operations take the same time however long the line is. */
export function createLine<W extends Waiter>(): Line<W> {
  const queues = new Map<Priority, Queue>(
    PRIORITIES.map((priority) => [priority, { size: 0, head: undefined, tail: undefined }]),
  );
  const inOrder = [...queues.values()];
  let size = 0;

  function first(): W | undefined {
    for (const { head } of inOrder) if (head !== undefined) return head as W;
    return undefined;
  }

  function remove(waiter: W): void {
    const queue = queues.get(waiter.priority)!;
    if (waiter.previous === undefined) queue.head = waiter.next;
    else waiter.previous.next = waiter.next;
    if (waiter.next === undefined) queue.tail = waiter.previous;
    else waiter.next.previous = waiter.previous;
    waiter.previous = undefined;
    waiter.next = undefined;
    queue.size -= 1;
    size -= 1;
  }

  return {
    get size() {
      return size;
    },
    get head() {
      return first();
    },
    sizeOf: (rank) => inOrder[rank]!.size,
    push(waiter) {
      const queue = queues.get(waiter.priority)!;
      waiter.previous = queue.tail;
      if (queue.tail === undefined) queue.head = waiter;
      else queue.tail.next = waiter;
      queue.tail = waiter;
      queue.size += 1;
      size += 1;
    },
    shift() {
      const head = first();
      if (head !== undefined) remove(head);
      return head;
    },
    remove,
  };
}
