import { LONGEST_ASK_GAP_US } from "../../../src/core/draw/turns.ts";
import { slotsOf, type Asker, type Wanted } from "./asker.ts";
import type { PinnedStore } from "./store-kinds.ts";

/** What each asker got: its slots, in µs. */
export type Grants = readonly (readonly number[])[];

/**
 * Lets askers with an endless backlog draw for a while of simulated time: each
 * comes back when its turn comes, and asks for as many slots as it lacks.
 */
export async function simulate(
  { clock }: PinnedStore,
  askers: readonly Asker[],
  { forMs, backlog }: { forMs: number; backlog: number },
): Promise<Grants> {
  const endUs = clock.nowUs() + forMs * 1_000;
  const grants: number[][] = askers.map(() => []);
  const nextUs = askers.map(() => clock.nowUs());
  for (;;) {
    const first = nextUs.indexOf(Math.min(...nextUs));
    if (nextUs[first]! > endUs) return grants;
    clock.set(Math.max(clock.nowUs(), nextUs[first]!));
    const held = grants[first]!.filter((slotUs) => slotUs > clock.nowUs()).length;
    const reply = await askers[first]!.draw(Math.max(1, backlog - held));
    grants[first]!.push(...slotsOf(reply));
    const waitUs = reply.place.turnUs === 0 ? 1_000 : reply.place.turnUs - reply.nowUs;
    nextUs[first] = clock.nowUs() + Math.min(waitUs, LONGEST_ASK_GAP_US);
  }
}

/** Calls that wait in one process without end: `wanted` of each kind at a time. */
export interface Party {
  readonly asker: Asker;
  readonly wishes: readonly Wanted[];
}

/** A slot that was granted to wish number `wish` of party number `by`. */
export interface Grant {
  readonly slotUs: number;
  readonly by: number;
  readonly wish: number;
}

/** As `simulate`, for askers whose calls have keys, costs and priorities; each question comes later than it is due. */
export async function simulateParties(
  { clock }: PinnedStore,
  parties: readonly Party[],
  forMs: number,
  lateUs: () => number = () => 0,
): Promise<readonly Grant[]> {
  const endUs = clock.nowUs() + forMs * 1_000;
  const grants: Grant[] = [];
  const nextUs = parties.map(() => clock.nowUs());
  for (;;) {
    const by = nextUs.indexOf(Math.min(...nextUs));
    if (nextUs[by]! > endUs) return grants;
    clock.set(Math.max(clock.nowUs(), nextUs[by]!));
    const { asker, wishes } = parties[by]!;
    const reply = await asker.drawAll(wishes);
    for (const wish of wishes.keys()) {
      for (const slotUs of slotsOf(reply, wish)) grants.push({ slotUs, by, wish });
    }
    const named = [reply.place.turnUs, ...reply.granted.map(({ notBeforeUs }) => notBeforeUs)];
    const due = named.filter((us) => us > 0);
    const dueUs = due.length === 0 ? reply.nowUs + 1_000 : Math.min(...due);
    const nextDueUs = Math.max(
      clock.nowUs() + 1,
      Math.min(dueUs - reply.nowUs + clock.nowUs(), clock.nowUs() + LONGEST_ASK_GAP_US),
    );
    nextUs[by] = nextDueUs + lateUs();
  }
}

/** Jain's index: 1 when all got the same, 1/n when one got all. */
export function jainIndex(counts: readonly number[]): number {
  const sum = counts.reduce((total, count) => total + count, 0);
  const squares = counts.reduce((total, count) => total + count * count, 0);
  return sum ** 2 / (counts.length * squares);
}
