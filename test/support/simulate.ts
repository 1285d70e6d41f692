import { LOOK_IN_US } from "../../src/core/turns.ts";
import { slotsOf, type Asker } from "./asker.ts";
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
    const waitUs = reply.turnUs === 0 ? 1_000 : reply.turnUs - reply.nowUs;
    nextUs[first] = clock.nowUs() + Math.min(waitUs, LOOK_IN_US);
  }
}

/** Jain's index: 1 when all got the same, 1/n when one got all. */
export function jainIndex(counts: readonly number[]): number {
  const sum = counts.reduce((total, count) => total + count, 0);
  const squares = counts.reduce((total, count) => total + count * count, 0);
  return sum ** 2 / (counts.length * squares);
}
