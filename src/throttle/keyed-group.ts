import type { Limit } from "../core/limits/limit.ts";
import type { Caller, Group, Terms } from "./group.ts";
import { createHeldSlots, type HeldSlots } from "./held-slots.ts";
import { createLine, type Line } from "./line.ts";
import type { SlotKeeper } from "./slot.ts";

/** A class, since there may be one for each call that is tried; nobody waits in those, so they need no line. */
export class KeyedGroup implements Group {
  readonly shared: readonly Limit[];
  readonly keyLimits: readonly Limit[];
  readonly costs: readonly number[];
  readonly text: string;
  readonly limits: readonly Limit[];
  readonly hasLeases: boolean;
  readonly stepMs: number;
  readonly mostLateMs: number;
  readonly keeper: SlotKeeper;
  readonly name: string;
  readonly key: string | undefined;
  hasImpatient = false;
  notBeforeMs = 0;
  bindsAt = 0;
  #line: Line<Caller> | undefined;
  #held: HeldSlots | undefined;

  constructor(terms: Terms, { keeper, name, key }: Pick<Group, "keeper" | "name" | "key">) {
    this.shared = terms.shared;
    this.keyLimits = terms.keyLimits;
    this.costs = terms.costs;
    this.text = terms.text;
    this.limits = terms.limits;
    this.hasLeases = terms.hasLeases;
    this.stepMs = terms.stepMs;
    this.mostLateMs = terms.mostLateMs;
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

  get isIdle(): boolean {
    return (this.#line?.size ?? 0) === 0 && (this.#held?.size ?? 0) === 0;
  }

  rest(): void {
    this.#line = undefined;
    this.#held = undefined;
  }
}
