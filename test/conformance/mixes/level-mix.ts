import type { PolicyOptions } from "../../../src/core/policy/policy.ts";
import { diceOf, isAllowed, randomOf, type Dice, type Mix, type MixCaller } from "./mix.ts";

type Keys = Pick<MixCaller, "key" | "keys">;

/** Limits of customers and of their endpoints, or of several keys side by side, with shared ones or none, all by one seed. */
export function levelMixOf(seed: number): Mix {
  const random = randomOf(seed * 6_361 + 7);
  for (;;) {
    const mix = anyMix(seed, random);
    if (isAllowed(mix.policy)) return mix;
  }
}

function anyMix(seed: number, random: () => number): Mix {
  const dice = diceOf(random);
  const { whole, pick, limitOf } = dice;
  const isNamed = pick([false, false, true]);
  const all = isNamed ? pairs(dice) : endpoints(dice);
  const wide = new Set(all.map(({ first }) => first)).size;
  // Either of the levels, or what all share, may be what binds; the amounts are those of one unit.
  const isTokens = random() < 0.4;
  const amounts = isTokens ? Array.from({ length: whole(1, 3) }, () => pick([10, 50, 200])) : [1];
  const mean = amounts.reduce((sum, amount) => sum + amount, 0) / amounts.length;
  const rate = pick([5, 10, 20]);
  const firstRate = Math.max(1, Math.round(((rate * all.length) / wide) * pick([0.5, 0.8, 1.5])));
  const sharedRate = Math.max(1, Math.round(firstRate * wide * pick([0.5, 0.8, 1.5])));
  const unit = isTokens ? "tokens" : "calls";
  const ofCalls = (perSecond: number) => limitOf(perSecond, "calls", 1);
  const ofAmounts = (perSecond: number) =>
    limitOf(Math.max(1, Math.round(perSecond * mean)), unit, Math.max(...amounts));
  const [of, ofOther] = pick([true, false]) ? [ofAmounts, ofCalls] : [ofCalls, ofAmounts];
  const first = { limits: [of(firstRate)] };
  const second = { limits: [ofOther(rate)] };
  const hasShared = random() < 0.6;
  const policy: PolicyOptions = {
    ...(hasShared && { limits: [ofCalls(sharedRate)] }),
    fair: false,
    perKey: isNamed ? { address: first, email: second } : [first, second],
  };

  const replicas = pick([1, 2, 3, 4]);
  const places = all.flatMap(({ keys }) =>
    // Work waits all the time, for each key.
    Array.from({ length: 5 + pick([0, 0, 1, 10]) }, () => keys),
  );
  const callers = places.map((keys): MixCaller => {
    const cost = isTokens ? { tokens: pick(amounts) } : 1;
    const replica = whole(0, replicas - 1);
    return { replica, ...keys, cost, priority: "normal", startMs: whole(0, 300), thinkMs: 0 };
  });
  const what = `${isNamed ? "names" : "levels"}${hasShared ? " beside shared limits" : ""}`;
  const name = `${seed}: ${what}, ${all.length} keys of ${wide}, ${replicas} replicas, ${callers.length} callers`;
  return { name, policy, callers, hasPriorities: false };
}

interface Place {
  readonly first: string;
  readonly keys: Keys;
}

function endpoints({ whole }: Dice): readonly Place[] {
  return Array.from({ length: whole(1, 4) }, (_, customer) => `customer ${customer}`).flatMap(
    (first) =>
      Array.from({ length: whole(1, 5) }, (_each, endpoint): Place => {
        return { first, keys: { key: [first, `endpoint ${endpoint}`] } };
      }),
  );
}

/** Each address meets some of the e-mails. */
function pairs({ whole, pick }: Dice): readonly Place[] {
  const emails = Array.from({ length: whole(1, 4) }, (_, email) => `email ${email}`);
  return Array.from({ length: whole(1, 4) }, (_, address) => `address ${address}`).flatMap(
    (first) =>
      [...new Set(Array.from({ length: whole(1, 3) }, () => pick(emails)))].map((email): Place => {
        return { first, keys: { keys: { address: first, email } } };
      }),
  );
}
