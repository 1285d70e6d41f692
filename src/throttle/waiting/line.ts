import { firstOfText, headsOfText, MOST_LEVELS } from "../../core/key-path.ts";
import { PRIORITIES, RANKS, type Priority } from "../../core/input/options.ts";

/** A waiting caller, as a link of its line. */
export interface Waiter {
  readonly priority: Priority;
  /**
   * The priority of the caller whose position this caller took over. Undefined if the caller has
   * its own position. Only the line writes this field.
   */
  inheritedPriority?: Priority | undefined;
  /**
   * The encoded key of the caller's lane. A caller without a lane waits behind all earlier callers.
   */
  readonly lane?: string | undefined;
  /**
   * The weights of the heads of the caller's lane, the widest first and the lane itself last. A
   * weight is the number of turns per round. Each weight defaults to 1.
   */
  readonly laneWeights?: readonly number[] | undefined;
  /**
   * The round of turns in which this caller goes. Fractions order callers within a round. Only the
   * line writes this field, `turns` and `turnsWithin`.
   */
  round: number;
  /** The turns of the first name of the caller's lane. */
  turns?: Turns | undefined;
  /** The caller's turns at the levels below the first name, if there are lanes at those levels. */
  turnsWithin?: Turn[] | undefined;
  previous: Waiter | undefined;
  next: Waiter | undefined;
}

/**
 * The waiting callers of one process, ordered by priority and then by arrival. Callers may belong
 * to a lane, the key of their job, and lanes take turns. The heads of a lane are the prefixes of
 * its path: `acme` is a head of `["acme", "endpoint-7"]`.
 */
export interface Line<W extends Waiter> {
  readonly size: number;
  /** The caller that goes next. */
  readonly head: W | undefined;
  /** The caller that goes last. */
  readonly last: W | undefined;
  /** All callers in order, with their ranks. */
  fromFirst(): Iterable<{ readonly rank: number; readonly caller: W }>;
  /**
   * All callers in reverse order. During the iteration, a caller may be removed once it has been
   * reached.
   */
  fromLast(): Iterable<W>;
  /** Returns the number of callers of one rank. Rank 0 is the most urgent. */
  sizeOf(rank: number): number;
  firstOf(rank: number): W | undefined;
  lastOf(rank: number): W | undefined;
  push(waiter: W): void;
  /** Removes and returns the next caller, or the next caller of `rank`. */
  shift(rank?: number): W | undefined;
  /** Removes a caller from any position. */
  remove(waiter: W): void;
  /** Removes `waiter`, and moves `by`, which waits elsewhere in this line, to its position. */
  replace(waiter: W, by: W): void;
}

/**
 * The turns of one lane or head. `round` is the round of its last caller in the line. `lastRound`
 * is the round of its caller that went last. `waiting` is the number of waiting callers.
 */
interface Turns {
  round: number;
  lastRound: number;
  waiting: number;
  /**
   * The lanes below a head, while these lanes have callers. Undefined for a lane without such
   * lanes.
   */
  within: Lanes | undefined;
}

/** The turn of one caller within a head. */
interface Turn {
  round: number;
  readonly of: Turns;
}

/**
 * The lanes that take turns with each other: one for each first name, or those below one head. The
 * head's own lane is one of the lanes below it.
 */
interface Lanes {
  /** The round of the caller that went last. */
  round: number;
  readonly turns: Map<string, Turns>;
}

/**
 * The maximum number of idle lanes that are kept, in addition to twice the number of waiting
 * callers.
 */
const MOST_IDLE_LANES = 1_000;

const NO_TURNS: readonly Turn[] = [];

interface Queue extends Lanes {
  size: number;
  head: Waiter | undefined;
  tail: Waiter | undefined;
}

/**
 * Creates a line with a doubly linked list for each priority, so that push, shift and remove take
 * constant time. The first names of the callers' lanes take turns, and lanes with the same first
 * name share its turns. The first name of `["acme", "endpoint-7"]` is `acme`.
 */
export function createLine<W extends Waiter>(): Line<W> {
  return new PriorityLine();
}

/** A class, because V8 gives each object literal with a getter a hidden class of its own. */
class PriorityLine<W extends Waiter> implements Line<W> {
  size = 0;
  readonly #inOrder: readonly Queue[] = PRIORITIES.map(() => ({
    size: 0,
    round: 0,
    turns: new Map<string, Turns>(),
    head: undefined,
    tail: undefined,
  }));

  get head(): W | undefined {
    for (const { head } of this.#inOrder) if (head !== undefined) return head as W;
    return undefined;
  }

  get last(): W | undefined {
    return this.#inOrder.findLast(({ tail }) => tail !== undefined)?.tail as W | undefined;
  }

  *fromFirst(): Iterable<{ readonly rank: number; readonly caller: W }> {
    for (const [rank, { head }] of this.#inOrder.entries()) {
      for (let waiter = head; waiter !== undefined; waiter = waiter.next) {
        yield { rank, caller: waiter as W };
      }
    }
  }

  *fromLast(): Iterable<W> {
    for (const { tail } of this.#inOrder.toReversed()) {
      let waiter = tail;
      while (waiter !== undefined) {
        const { previous } = waiter;
        yield waiter as W;
        waiter = previous;
      }
    }
  }

  sizeOf(rank: number): number {
    return this.#inOrder[rank]!.size;
  }

  firstOf(rank: number): W | undefined {
    return this.#inOrder[rank]!.head as W | undefined;
  }

  lastOf(rank: number): W | undefined {
    return this.#inOrder[rank]!.tail as W | undefined;
  }

  push(waiter: W): void {
    const queue = this.#queueOf(waiter);
    waiter.round = roundOf(queue, waiter);
    let before = queue.tail;
    while (before !== undefined && goesBefore(waiter, before)) before = before.previous;
    this.#enter(queue, waiter, before);
    if (takesTurnsWithin(waiter)) takeTurnsWithin(queue, waiter);
  }

  shift(rank?: number): W | undefined {
    const head = rank === undefined ? this.head : this.firstOf(rank);
    if (head === undefined) return undefined;
    const queue = this.#queueOf(head);
    noteTurn(queue, head);
    this.#leave(queue, head);
    return head;
  }

  remove(waiter: W): void {
    const queue = this.#queueOf(waiter);
    if (waiter.turns !== undefined) passTurnsOn(queue, waiter);
    this.#leave(queue, waiter);
  }

  replace(waiter: W, by: W): void {
    this.remove(by);
    const queue = this.#queueOf(waiter);
    by.round = waiter.round;
    by.inheritedPriority = effectivePriority(waiter);
    if (by.lane !== undefined) by.turns = joinTurns(queue, firstOfText(by.lane), by.round);
    this.#enter(queue, by, waiter);
    if (takesTurnsWithin(by)) joinTurnsWithin(queue, by);
    this.#leave(queue, waiter);
  }

  #queueOf(waiter: Waiter): Queue {
    return this.#inOrder[RANKS[effectivePriority(waiter)]]!;
  }

  #enter(queue: Queue, waiter: Waiter, before: Waiter | undefined): void {
    link(queue, waiter, before);
    queue.size += 1;
    this.size += 1;
  }

  #leave(queue: Queue, waiter: Waiter): void {
    unlink(queue, waiter);
    queue.size -= 1;
    this.size -= 1;
    endTurns(waiter);
    if (queue.size === 0 && queue.turns.size > 0) queue.turns.clear();
  }
}

/** Inserts a caller behind another one, or at the front. */
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

/** Returns the priority of the caller's position, which may be inherited from another caller. */
export function effectivePriority({ inheritedPriority, priority }: Waiter): Priority {
  return inheritedPriority ?? priority;
}

/**
 * Returns the round of a new caller. A caller with a lane goes one turn after the last caller of
 * that lane. A caller without a lane goes in the same round as the last caller in the line. It
 * waits at most as many rounds as there are callers, because the last caller may be of a lane that
 * rarely has a turn.
 */
function roundOf(queue: Queue, waiter: Waiter): number {
  const { round, tail, size } = queue;
  const { lane, laneWeights } = waiter;
  if (lane === undefined) return Math.min(tail?.round ?? round, round + size);
  waiter.turns = nextTurn(queue, firstOfText(lane), size, laneWeights?.[0]);
  return waiter.turns.round;
}

/** Adds a caller to a lane, in the lane's next round. */
function nextTurn(lanes: Lanes, name: string, waiting: number, weight = 1): Turns {
  const turns = joinTurns(lanes, name, -Infinity);
  turns.round = Math.max(lanes.round, turns.round + 1 / weight);
  if (lanes.turns.size > MOST_IDLE_LANES + 2 * waiting) forgetIdle(lanes);
  return turns;
}

/** Adds a caller to a lane, in a known round. */
function joinTurns({ turns: all }: Lanes, name: string, round: number): Turns {
  let turns = all.get(name);
  if (turns === undefined) {
    turns = { round, lastRound: -Infinity, waiting: 0, within: undefined };
    all.set(name, turns);
  }
  turns.waiting += 1;
  return turns;
}

function forgetIdle({ turns }: Lanes): void {
  for (const [name, { waiting }] of turns) if (waiting === 0) turns.delete(name);
}

/**
 * Returns true if a caller goes before another. Within a round, lanes with fewer waiting callers go
 * first, because they arrived at this process later.
 */
function goesBefore(waiter: Waiter, other: Waiter): boolean {
  if (waiter.round !== other.round) return waiter.round < other.round;
  if (waiter.turns === undefined || other.turns === undefined) return false;
  return waiter.turns.waiting < other.turns.waiting;
}

/** Records that this caller has its turn now. */
function noteTurn(queue: Queue, { round, turns, turnsWithin }: Waiter): void {
  queue.round = round;
  if (turns === undefined) return;
  turns.lastRound = round;
  let above = turns;
  for (const turn of turnsWithin ?? NO_TURNS) {
    above.within!.round = turn.round;
    turn.of.lastRound = turn.round;
    above = turn.of;
  }
}

/**
 * Removes a caller from its lanes. The turns within a head are forgotten together with the head's
 * last caller.
 */
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

/** Returns true if the caller's lane is a path, or if lanes below it have callers. */
function takesTurnsWithin({ lane, turns }: Waiter): boolean {
  return turns !== undefined && (turns.within !== undefined || firstOfText(lane!) !== lane);
}

/**
 * Places a caller among the callers of its first name. At first, the caller has the last turn of
 * that name. If its own turn within the name is earlier, it swaps positions with other callers of
 * that name. This repeats at each level.
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

/** Adds a caller that took over a position to the current round of each of its heads. */
function joinTurnsWithin(queue: Queue, waiter: Waiter): void {
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

/** Visits the levels below the first name of a caller's lane, while there are lanes. */
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

/**
 * Creates the lanes below a head. Callers of the head itself that already wait together form one of these
 * lanes.
 */
function lanesWithin(queue: Queue, newcomer: Waiter, { name, level, above }: LevelWithin): Lanes {
  const lanes: Lanes = { round: 0, turns: new Map() };
  // Stops as soon as all such callers are found. Usually there are none, and the line may be long.
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

/**
 * Returns the turns of the caller's head at a level. If the lane has no more names, returns the
 * turns of the lane itself.
 */
function turnsAt({ turns, turnsWithin }: Waiter, level: number): Turns | undefined {
  return level === 0 ? turns : turnsWithin?.[level - 1]?.of;
}

/**
 * Closes the gap after a caller is removed before its turn. At each level, the later callers of its
 * lane each move up one turn.
 */
function passTurnsOn(queue: Queue, waiter: Waiter): void {
  const { laneWeights, turnsWithin } = waiter;
  for (let level = turnsWithin?.length ?? 0; level >= 0; level--) {
    const of = turnsAt(waiter, level)!;
    if (of.waiting === 1) {
      of.round = of.lastRound;
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

/** Swaps two callers of the same head, and their turns at the levels above. */
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
