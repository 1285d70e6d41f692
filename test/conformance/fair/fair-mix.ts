import type { FairOptions } from "../../../src/core/policy/fair.ts";
import type { PolicyOptions } from "../../../src/core/policy/policy.ts";
import { diceOf, randomOf, type Mix, type MixCaller } from "../mixes/mix.ts";

/** A mix whose keys share one rate, and what each key is due. */
export interface FairMix extends Mix {
  readonly rate: number;
  /** The first name of each key, with its weight, its floor in units a second, and when its first call comes. */
  readonly tenants: readonly Tenant[];
}

interface Tenant {
  readonly name: string;
  readonly weight: number;
  readonly floor: number;
  readonly startMs: number;
  readonly mostCost: number;
  /** A light tenant makes one call after the other, with a pause between them: it never uses its share. */
  readonly isLight: boolean;
}

/** Tenants of different weights, floors and costs, with callers in several replicas that always wait. */
export function fairMixOf(seed: number): FairMix {
  const random = randomOf(seed * 104_729 + 7);
  const { whole, pick } = diceOf(random);
  const rate = pick([50, 100, 200, 400]);
  const replicas = whole(1, 4);
  const hasPaths = random() < 0.3;
  const hasWeights = random() < 0.5;
  const hasFloors = random() < 0.4;
  const tenants = Array.from({ length: whole(2, 6) }, (_, index): Tenant => {
    const startMs = index > 0 && random() < 0.3 ? whole(1, 4) * 1_000 : 0;
    const floor = hasFloors && random() < 0.4 ? Math.floor(rate * pick([0.1, 0.2])) : 0;
    const weight = hasWeights ? pick([1, 1, 2, 3]) : 1;
    const isLight = index > 1 && random() < 0.3;
    const mostCost = pick([1, 1, 2, 5]);
    return {
      name: `tenant ${index}`,
      weight,
      floor: isLight ? 0 : floor,
      startMs,
      mostCost,
      isLight,
    };
  });
  const callers = tenants.flatMap(({ name, startMs, mostCost, isLight }): MixCaller[] => {
    if (isLight) {
      const when = { startMs: startMs + whole(0, 500), thinkMs: whole(300, 900) };
      return [
        {
          replica: whole(0, replicas - 1),
          key: hasPaths ? [name, "part 0"] : name,
          cost: mostCost,
          priority: "normal",
          ...when,
        },
      ];
    }
    const own = Array.from({ length: whole(1, replicas) }, () => whole(0, replicas - 1));
    // Slots are booked up to 100 ms ahead: with this number of callers, some have no slot at any time.
    const count = Math.max(30, Math.ceil(rate * 0.25));
    return own.flatMap((replica) =>
      Array.from({ length: count }, (_, index): MixCaller => ({
        replica,
        key: hasPaths ? [name, `part ${index % 3}`] : name,
        cost: index % 2 === 0 ? mostCost : 1,
        priority: "normal",
        startMs: startMs + index,
        thinkMs: 0,
      })),
    );
  });
  const fair: FairOptions = {
    weights: Object.fromEntries(tenants.map(({ name, weight }) => [name, weight])),
    floors: Object.fromEntries(
      tenants.filter(({ floor }) => floor > 0).map(({ name, floor }) => [name, `${floor}/s`]),
    ),
  };
  const burst = Math.max(...tenants.map(({ mostCost }) => mostCost));
  const policy: PolicyOptions = { rate: `${rate}/s`, burst, fair };
  const name = `${seed}: ${rate}/s, ${replicas} replicas, ${tenants.length} tenants`;
  return { name, policy, callers, hasPriorities: false, rate, tenants };
}
