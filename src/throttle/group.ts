import { PRIORITIES } from "../core/options.ts";
import type { Conditions } from "./conditions.ts";
import { createHeldSlots, type HeldSlot, type HeldSlots } from "./held-slots.ts";
import { createLine, type Line, type Waiter } from "./line.ts";
import type { SlotKeeper, Start } from "./slot.ts";

/** One caller in the line of a group. */
export interface Caller extends Waiter {
  /** In the order in which callers came to the bucket. */
  readonly number: number;
  /** How far off its key's time may be, in ms; beyond that it does not wait. */
  readonly patienceMs: number;
  group: Group;
  go(slot: HeldSlot, start: Start): void;
  fail(error: unknown): void;
}

/**
 * Calls of one key and cost: a slot of one of them is as good for another.
 * A class, since there may be one for each call that is tried; nobody waits in those, so they need no line.
 */
export class Group {
  readonly conditions: Conditions;
  readonly keeper: SlotKeeper;
  readonly name: string;
  /** The key, if it has limits of its own. */
  readonly key: string | undefined;
  /** Whether callers came that may be sent away; to look for them among 100,000 others would take long. */
  hasImpatient = false;
  /** When a question for the key may be there again, on `performance.now()`. */
  notBeforeMs = 0;
  /** The callers up to this number are asked for before these: those who had come when the key held these calls back. */
  behind = 0;
  /** There was news of the key since it was asked about last: what the answer says of it is outdated. */
  hasNews = false;
  /** Where it stands among those that wait for slots. */
  stands: "free" | "aside" | "nowhere" = "nowhere";
  /** In which order groups got their places, where nothing else tells whose turn comes first. */
  stoodAt = 0;
  /** What held these calls back last, as a reply numbers it. */
  bindsAt = 0;
  #line: Line<Caller> | undefined;
  #held: HeldSlots | undefined;

  constructor(
    conditions: Conditions,
    { keeper, name, key }: Pick<Group, "keeper" | "name" | "key">,
  ) {
    this.conditions = conditions;
    this.keeper = keeper;
    this.name = name;
    this.key = key;
  }

  get line(): Line<Caller> {
    return (this.#line ??= createLine());
  }

  get held(): HeldSlots {
    return (this.#held ??= createHeldSlots());
  }

  /** Whether nobody waits in it, and no slot is held. */
  get isIdle(): boolean {
    return (this.#line?.size ?? 0) === 0 && (this.#held?.size ?? 0) === 0;
  }

  /** Lets go of what only those who wait need. */
  rest(): void {
    this.#line = undefined;
    this.#held = undefined;
  }
}

/** How many callers of each priority have no slot yet, the most urgent first. */
export function lacking({
  line,
  held,
}: Group): { readonly rank: number; readonly wanted: number }[] {
  const wishes: { rank: number; wanted: number }[] = [];
  let spare = held.size;
  for (let rank = 0; rank < PRIORITIES.length; rank++) {
    const waiting = line.sizeOf(rank);
    const wanted = waiting - Math.min(spare, waiting);
    spare -= waiting - wanted;
    if (wanted > 0) wishes.push({ rank, wanted });
  }
  return wishes;
}
