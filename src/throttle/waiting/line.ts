import { firstOfText, headsOfText, MOST_LEVELS } from "../../core/key-path.ts";
import { PRIORITIES, type Priority } from "../../core/input/options.ts";

/** A caller that waits, as a link of its line. */
export interface Waiter {
  readonly priority: Priority;
  /** The priority of the caller whose place it took; undefined: it waits with its own. Only the line writes it. */
  waitsAs?: Priority | undefined;
  /** The text of its lane's key, where lanes take turns; undefined: it waits behind all callers that came before. */
  readonly lane?: string | undefined;
  /** How often each head of its lane goes in a round of turns, the widest first; 1 unless given. */
  readonly laneWeights?: readonly number[] | undefined;
  /** In which round of turns it goes, or how far in it. Only the line writes this and the two below. */
  round: number;
  /** How the first name of its lane takes turns. */
  turns?: Turns | undefined;
  /** Its turns among those of the same first name, and of the same first two, where lanes lie below that. */
  turnsWithin?: Turn[] | undefined;
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

/** In which round the last caller of a lane or a head goes, in which one has gone last, and how many callers of it wait. */
interface Turns {
  round: number;
  wentIn: number;
  waiting: number;
  /** Those of a head, while callers of lanes below it wait. */
  within: Lanes | undefined;
}

/** The turn of one caller inside a head. */
interface Turn {
  round: number;
  readonly of: Turns;
}

/** What takes turns: first names, or what lies below one head; a lane of the head itself is one of these. */
interface Lanes {
  /** The round of the caller that went last. */
  round: number;
  readonly turns: Map<string, Turns>;
}

/** How many idle lanes are remembered, beside twice as many as callers wait. */
const MOST_IDLE_LANES = 1_000;

const NO_TURNS: readonly Turn[] = [];

interface Queue extends Lanes {
  size: number;
  head: Waiter | undefined;
  tail: Waiter | undefined;
}

/**
 * A doubly linked list for each priority, so that all three operations take the same time however long the line is. First
 * names take turns; a turn of a first name goes to one of its lanes, in turns of their own.
 */
export function createLine<W extends Waiter>(): Line<W> {
  const queues = new Map<Priority, Queue>(
    PRIORITIES.map((priority) => [
      priority,
      { size: 0, round: 0, turns: new Map<string, Turns>(), head: undefined, tail: undefined },
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

  function enter(queue: Queue, waiter: Waiter, before: Waiter | undefined): void {
    link(queue, waiter, before);
    queue.size += 1;
    size += 1;
  }

  function remove(waiter: Waiter): void {
    const queue = queueOf(waiter);
    if (waiter.turns !== undefined) passTurnsOn(queue, waiter);
    leave(queue, waiter);
  }

  function leave(queue: Queue, waiter: Waiter): void {
    unlink(queue, waiter);
    queue.size -= 1;
    size -= 1;
    endTurns(waiter);
    if (queue.size === 0) queue.turns.clear();
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
      while (before !== undefined && goesBefore(waiter, before)) before = before.previous;
      enter(queue, waiter, before);
      if (takesTurnsWithin(waiter)) takeTurnsWithin(queue, waiter);
    },
    shift(rank) {
      const head = rank === undefined ? first() : (inOrder[rank]!.head as W | undefined);
      if (head === undefined) return undefined;
      const queue = queueOf(head);
      noteTurn(queue, head);
      leave(queue, head);
      return head;
    },
    remove,
    replace(waiter, by) {
      remove(by);
      const queue = queueOf(waiter);
      by.round = waiter.round;
      by.waitsAs = waitsWith(waiter);
      if (by.lane !== undefined) by.turns = joinTurns(queue, firstOfText(by.lane), by.round);
      enter(queue, by, waiter);
      if (takesTurnsWithin(by)) standWithin(queue, by);
      leave(queue, waiter);
    },
  };
}

/** Puts a caller behind another one, or first. */
function link(queue: Queue, waiter: Waiter, before: Waiter | undefined): void {
  const after = before === undefined ? queue.head : before.next;
  waiter.previous = before;
  waiter.next = after;
  if (before === undefined) queue.head = waiter;
  else before.next = waiter;
  if (after === undefined) queue.tail = waiter;
  else after.previous = waiter;
}

function unlink(queue: Queue, waiter: Waiter): void {
  if (waiter.previous === undefined) queue.head = waiter.next;
  else waiter.previous.next = waiter.next;
  if (waiter.next === undefined) queue.tail = waiter.previous;
  else waiter.next.previous = waiter.previous;
  waiter.previous = undefined;
  waiter.next = undefined;
}

/** The priority with which a caller waits. */
export function waitsWith({ waitsAs, priority }: Waiter): Priority {
  return waitsAs ?? priority;
}

/**
 * A caller of a lane goes a turn after the lane's last one. A caller that has no lane goes with the last of all, but
 * waits no more rounds than there are callers: the last may be of a lane that rarely has a turn.
 */
function roundOf(queue: Queue, waiter: Waiter): number {
  const { round, tail, size } = queue;
  const { lane, laneWeights } = waiter;
  if (lane === undefined) return Math.min(tail?.round ?? round, round + size);
  waiter.turns = nextTurn(queue, firstOfText(lane), size, laneWeights?.[0]);
  return waiter.turns.round;
}

/** One more caller waits: it goes in the round of what is returned. */
function nextTurn(lanes: Lanes, name: string, waiting: number, weight = 1): Turns {
  const turns = joinTurns(lanes, name, -Infinity);
  turns.round = Math.max(lanes.round, turns.round + 1 / weight);
  if (lanes.turns.size > MOST_IDLE_LANES + 2 * waiting) forgetIdle(lanes);
  return turns;
}

/** One more caller waits, in a round that is known. */
function joinTurns({ turns: all }: Lanes, name: string, round: number): Turns {
  let turns = all.get(name);
  if (turns === undefined) {
    turns = { round, wentIn: -Infinity, waiting: 0, within: undefined };
    all.set(name, turns);
  }
  turns.waiting += 1;
  return turns;
}

function forgetIdle({ turns }: Lanes): void {
  for (const [name, { waiting }] of turns) if (waiting === 0) turns.delete(name);
}

/** In the same round, lanes of which fewer callers wait go first: those came to this process later. */
function goesBefore(waiter: Waiter, other: Waiter): boolean {
  if (waiter.round !== other.round) return waiter.round < other.round;
  if (waiter.turns === undefined || other.turns === undefined) return false;
  return waiter.turns.waiting < other.turns.waiting;
}

/** It is a caller's turn. */
function noteTurn(queue: Queue, { round, turns, turnsWithin }: Waiter): void {
  queue.round = round;
  if (turns === undefined) return;
  turns.wentIn = round;
  let above = turns;
  for (const turn of turnsWithin ?? NO_TURNS) {
    above.within!.round = turn.round;
    turn.of.wentIn = turn.round;
    above = turn.of;
  }
}

/** A caller waits no more. What was known within a head of which none waits is forgotten. */
function endTurns(waiter: Waiter): void {
  const { turns, turnsWithin } = waiter;
  if (turns === undefined) return;
  countOut(turns);
  for (const { of } of turnsWithin ?? NO_TURNS) countOut(of);
  waiter.turns = undefined;
  waiter.turnsWithin = undefined;
}

function countOut(turns: Turns): void {
  turns.waiting -= 1;
  if (turns.waiting === 0) turns.within = undefined;
}

/** Whether the lane of a caller is a path, or lanes below it have callers. */
function takesTurnsWithin({ lane, turns }: Waiter): boolean {
  return turns !== undefined && (turns.within !== undefined || firstOfText(lane!) !== lane);
}

/**
 * A caller that has the last turn of its first name gives it to another of that name if those are in the way of its own
 * turn within the name; and so on, level by level.
 */
function takeTurnsWithin(queue: Queue, waiter: Waiter): void {
  eachLevelWithin(queue, waiter, (lanes, { name, level, above }) => {
    const of = nextTurn(lanes, name, above.waiting, waiter.laneWeights?.[level]);
    const turn = { round: of.round, of };
    waiter.turnsWithin!.push(turn);
    let other = waiter.previous;
    while (other !== undefined) {
      if (turnsAt(other, level - 1) === above) {
        const its = other.turnsWithin![level - 1]!;
        const isFirst =
          turn.round < its.round || (turn.round === its.round && of.waiting < its.of.waiting);
        if (!isFirst) break;
        swap(queue, other, waiter, level);
        other = waiter;
      }
      other = other.previous;
    }
    return of;
  });
}

/** A caller that got its place from another goes in the round that is under way in each of its heads. */
function standWithin(queue: Queue, waiter: Waiter): void {
  eachLevelWithin(queue, waiter, (lanes, { name }) => {
    const of = joinTurns(lanes, name, lanes.round);
    waiter.turnsWithin!.push({ round: lanes.round, of });
    return of;
  });
}

interface LevelWithin {
  readonly name: string;
  readonly level: number;
  readonly above: Turns;
}

/** Visits the levels below the first name of a caller's lane, as long as lanes lie there. */
function eachLevelWithin(
  queue: Queue,
  waiter: Waiter,
  visit: (lanes: Lanes, at: LevelWithin) => Turns,
): void {
  const lane = waiter.lane!;
  const heads = headsOfText(lane);
  let above = waiter.turns!;
  waiter.turnsWithin = [];
  for (let level = 1; level < MOST_LEVELS; level++) {
    if (above.within === undefined && level >= heads.length) return;
    const lanes = (above.within ??= lanesWithin(queue, waiter, {
      name: heads[level - 1]!,
      level,
      above,
    }));
    above = visit(lanes, { name: heads[level] ?? lane, level, above });
  }
}

/** The first lane below a head has a caller: those of the head itself that wait already are of one lane beside it. */
function lanesWithin(queue: Queue, newcomer: Waiter, { name, level, above }: LevelWithin): Lanes {
  const lanes: Lanes = { round: 0, turns: new Map() };
  // Most often there are none, and the line is long.
  let others = above.waiting - 1;
  for (let each = queue.head; each !== undefined && others > 0; each = each.next) {
    if (each === newcomer || turnsAt(each, level - 1) !== above) continue;
    others -= 1;
    const of = nextTurn(lanes, name, above.waiting, each.laneWeights?.[level]);
    each.turnsWithin ??= [];
    each.turnsWithin.push({ round: of.round, of });
  }
  return lanes;
}

/** How the head of a caller's lane takes turns at a level; its lane, if it has no more names. */
function turnsAt({ turns, turnsWithin }: Waiter, level: number): Turns | undefined {
  return level === 0 ? turns : turnsWithin?.[level - 1]?.of;
}

/** A caller leaves without a turn: those of its lane that wait behind it go a turn earlier each, and so at each level. */
function passTurnsOn(queue: Queue, waiter: Waiter): void {
  const { laneWeights, turnsWithin } = waiter;
  for (let level = turnsWithin?.length ?? 0; level >= 0; level--) {
    const of = turnsAt(waiter, level)!;
    if (of.waiting === 1) {
      of.round = of.wentIn;
      continue;
    }
    for (let other = waiter.next; other !== undefined; other = other.next) {
      if (turnsAt(other, level) !== of) continue;
      swap(queue, waiter, other, level + 1);
      other = waiter;
    }
    const { round } = turnsWithin?.[level - 1] ?? waiter;
    of.round = round - 1 / (laneWeights?.[level] ?? 1);
  }
}

/** Two callers of one head change places, and the turns that they have at the levels above that. */
function swap(queue: Queue, first: Waiter, second: Waiter, levels: number): void {
  const { previous: before } = first;
  const beside = second.previous === first ? second : second.previous;
  unlink(queue, second);
  unlink(queue, first);
  link(queue, second, before);
  link(queue, first, beside);
  [first.round, second.round] = [second.round, first.round];
  for (let level = 1; level < levels; level++) {
    const [one, other] = [first.turnsWithin![level - 1]!, second.turnsWithin![level - 1]!];
    [one.round, other.round] = [other.round, one.round];
  }
}
