import { HORIZON_US } from "../../../src/core/policy/limit-makers.ts";
import { DREW_ELSEWHERE_US } from "../../../src/core/store.ts";
import { scopesOf } from "../../../src/core/policy/per-key.ts";
import { isLeased } from "../../../src/core/limits/registry.ts";
import { turnsOfKey } from "../../../src/core/policy/fair.ts";
import { compilePolicy, type Policy, type PolicyOptions } from "../../../src/core/policy/policy.ts";
import { RANKS, type Priority } from "../../../src/core/input/options.ts";
import {
  limitsOfCall,
  NO_POSITION,
  slotOfRun,
  type Change,
  type DrawReply,
  type DrawRequest,
  type KeyScope,
  type KeyTurns,
  type Peeked,
  type WaitPosition,
  type ScopesRequest,
  type Settled,
  type Steered,
  type Store,
  type SlotRequest,
} from "../../../src/core/store.ts";

/** What a test's replica wants. */
export interface Wanted {
  readonly wanted: number;
  /** By unit; a number is calls. */
  readonly cost?: number | Readonly<Record<string, number>>;
  readonly key?: string;
  readonly priority?: Priority;
  readonly isTry?: boolean;
  /** The calls wait for a bounded time. */
  readonly isBounded?: boolean;
  /** The calls settle their cost, so budgets only reserve it. */
  readonly settles?: boolean;
  /** Its leases were drawn before. */
  readonly isUnderWay?: boolean;
  /** It has let calls pass that the bucket knows nothing of. */
  readonly drewElsewhere?: boolean;
  /** A bucket that was lost starts full. */
  readonly startsFull?: boolean;
  /** In a pool, the member that the calls use, as in `SlotRequest`. */
  readonly home?: number;
  /** The draw takes turns, if the policy says so. */
  readonly takesTurns?: boolean;
  /** Since when the first, the second and the last of the calls wait; unless given, since they were first asked for. */
  readonly sincesUs?: readonly [number, number, number];
}

/** Draws from a store as a pacer does: it keeps the last reply. */
export interface TestReplica {
  readonly last: DrawReply | undefined;
  /** The first slot request of the last draw. */
  readonly lastWanted: Wanted | undefined;
  readonly policy: Policy;
  draw(wanted: number, cost?: number): Promise<DrawReply>;
  drawAll(slotRequests: readonly Wanted[]): Promise<DrawReply>;
  giveBack(slotsUs: readonly number[], cost?: Wanted["cost"], key?: string): Promise<void>;
  settle(
    slotUs: number,
    deltas: Readonly<Record<string, number>>,
    key?: string,
    isUnused?: boolean,
    reserved?: Readonly<Record<string, number>>,
  ): Promise<Settled | undefined>;
  release(leases: readonly number[], ...keys: readonly (string | undefined)[]): Promise<unknown>;
  renew(leases: readonly number[], key?: string): Promise<readonly number[]>;
  steer(change: Change, key?: string): Promise<Steered>;
  peek(key?: string): Promise<Peeked>;
  /** The number of the next lease. */
  readonly lease: number;
  terms(): DrawRequest["terms"];
}

export function createTestReplica(
  store: Store,
  given: {
    bucket: string;
    name: string;
    policy: Policy;
    /** When the policy was declared, if the replica knows that already. */
    version?: number;
    /** The limited keys of a key. By default, those of the policy. */
    scopesOf?: (key: string | undefined) => readonly KeyScope[];
  },
): TestReplica {
  const { bucket, name, policy } = given;
  const { limits, shares, text, shadows, pool } = policy;
  const members = pool?.members ?? [];
  let version = given.version ?? 0;
  let generation = 0;
  let last: DrawReply | undefined;
  let lastWanted: Wanted | undefined;
  let lease = 1;
  const positions = new Map<string, WaitPosition>();
  const waitsSinceUs = new Map<string, number>();

  const inShadow = shadows.length === 0 ? undefined : shadows;
  const terms = (): DrawRequest["terms"] => ({ limits, shares, text, version, shadows: inShadow });
  const scopesFor = given.scopesOf ?? ((key) => scopesOf(policy, key));
  const about = (key: string | undefined): ScopesRequest => ({
    bucket,
    terms: terms(),
    scopes: scopesFor(key),
  });

  /** Calls that are asked for again have waited since they were asked for first, or since others of them were served. */
  function noteWaits(slotRequests: readonly SlotRequest[], { nowUs, granted }: DrawReply): void {
    for (const [index, { name, wanted }] of slotRequests.entries()) {
      const count = slotsOf({ granted } as DrawReply, index).length;
      if (count === wanted) waitsSinceUs.delete(name);
      else if (count > 0 || !waitsSinceUs.has(name)) waitsSinceUs.set(name, nowUs);
    }
  }

  function slotRequestOf({
    wanted,
    cost = 1,
    key,
    priority = "normal",
    isUnderWay = false,
    isBounded = false,
    settles = false,
    sincesUs,
    home = 0,
  }: Wanted): SlotRequest {
    const scopes = scopesFor(key).map((scope): KeyScope => {
      return { ...scope, position: positions.get(scope.key) ?? NO_POSITION };
    });
    const byUnit: Readonly<Record<string, number>> =
      typeof cost === "number" ? { calls: cost } : cost;
    const ofMembers = members.flatMap((member) => member.limits);
    const costs = [...limitsOfCall(limits, scopes), ...ofMembers].map((limit) => {
      const { unit } = limit;
      return isLeased(limit) ? Number(!isUnderWay) : (byUnit[unit] ?? (unit === "calls" ? 1 : 0));
    });
    const shadowCosts = inShadow?.map(({ unit }) => byUnit[unit] ?? (unit === "calls" ? 1 : 0));
    const slotRequestName = `${settles ? "settles " : ""}${key ?? ""} ${[...costs, ...(shadowCosts ?? [])].join(" ")}`;
    const rank = RANKS[priority];
    const askedUs = waitsSinceUs.get(slotRequestName) ?? 0;
    const [sinceUs, nextSinceUs, lastSinceUs] = sincesUs ?? [askedUs, askedUs, askedUs];
    return {
      name: slotRequestName,
      scopes,
      costs,
      shadowCosts,
      wanted,
      rank,
      isBounded,
      reserves: settles,
      sinceUs,
      nextSinceUs,
      lastSinceUs,
      ...(pool && { home: Math.max(-members.length, Math.min(members.length, home)) }),
    };
  }

  /** A slot request of calls that use one member: the member is one more scope. */
  function atMember(slotRequest: SlotRequest, number: number): SlotRequest {
    if (number === 0) return slotRequest;
    const { name, scopes, costs } = slotRequest;
    const own = limitsOfCall(limits, scopes).length;
    const after = members.slice(0, number - 1).flatMap((member) => member.limits).length;
    const { scope } = members[number - 1]!;
    const ofMember = costs.slice(own + after, own + after + scope.limits.length);
    const all = [...costs.slice(0, own), ...ofMember];
    return { ...slotRequest, name: `${name} @${number}`, scopes: [...scopes, scope], costs: all };
  }

  function turnsOf({ key }: Wanted): KeyTurns {
    const names = key ?? "\u0001";
    const isPending = key !== undefined && positions.size % 2 === 1;
    const turns = turnsOfKey(policy.fair!, { key: names, costs: limits.map(() => 1) });
    return { ...turns, isPending };
  }

  async function drawAll(given: readonly Wanted[]): Promise<DrawReply> {
    const isTry = given.some((each) => each.isTry === true);
    const mayTakeTurns = policy.fair !== undefined && (limits.length > 0 || pool !== undefined);
    const isFair = given[0]!.takesTurns === true && mayTakeTurns;
    const drewElsewhere = given.some((each) => each.drewElsewhere === true);
    const withoutPositions = (slotRequest: SlotRequest): SlotRequest => ({
      ...slotRequest,
      scopes: slotRequest.scopes.map((scope) => ({ ...scope, position: NO_POSITION })),
    });
    const slotRequests = given
      .map((each) => ({ ...slotRequestOf(each), ...(isFair && { turns: turnsOf(each) }) }))
      .map((slotRequest) => (isTry ? withoutPositions(slotRequest) : slotRequest));
    const { sentAtMs: _sentAtMs, ...reply } = await store.draw({
      bucket,
      asker: name,
      terms: terms(),
      slotRequests,
      horizonUs: isTry ? 0 : HORIZON_US,
      drewUs: drewElsewhere ? DREW_ELSEWHERE_US : (last?.nowUs ?? 0),
      startsFull: given.some((each) => each.startsFull === true),
      position: isTry ? NO_POSITION : (last?.position ?? NO_POSITION),
      lease,
      leases: 1_000,
      isTry,
      ...(pool && {
        pool: {
          stickyUs: pool.stickyUs ?? 0,
          members: members.map(({ scope, tier, isDrained }) => ({
            ...scope,
            tier,
            isUsable: !isDrained,
          })),
        },
      }),
    });
    if (reply.newText === undefined) {
      version = reply.version;
      generation = reply.generation;
    }
    for (const [index, { slotsUs }] of reply.granted.entries()) {
      const ofMembers = members.flatMap((member) => member.limits);
      const all = [...limitsOfCall(limits, slotRequests[index]!.scopes), ...ofMembers];
      if (all.some(isLeased)) lease += slotsUs.length;
    }
    if (isTry) return reply;
    last = reply;
    [lastWanted] = given;
    noteWaits(slotRequests, reply);
    for (const [index, granted] of reply.granted.entries()) {
      slotRequests[index]!.scopes.forEach(({ key }, at) =>
        positions.set(key, granted.positions[at]!),
      );
    }
    return reply;
  }

  return {
    get last() {
      return last;
    },
    get lastWanted() {
      return lastWanted;
    },
    get lease() {
      return lease;
    },
    policy,
    terms,
    draw: (wanted, cost = 1) => drawAll([{ wanted, cost }]),
    drawAll,
    async giveBack(slotsUs, cost = 1, key) {
      const slotRequest = slotRequestOf({ wanted: 1, cost, ...(key === undefined ? {} : { key }) });
      const position = last?.position ?? NO_POSITION;
      const [granted] = last?.granted ?? [];
      const numberOf = (slotUs: number): number =>
        granted?.members?.[granted.slotsUs.indexOf(slotUs)] ?? 0;
      for (const number of pool === undefined ? [0] : new Set(slotsUs.map(numberOf))) {
        await store.giveBack({
          bucket,
          asker: name,
          terms: terms(),
          generation,
          position,
          slotRequest: atMember(slotRequest, number),
          slotsUs: slotsUs.filter((slotUs) => pool === undefined || numberOf(slotUs) === number),
        });
      }
    },
    settle: (slotUs, byUnit, key, isUnused, estimate) => {
      const all = limitsOfCall(limits, scopesFor(key));
      const deltas = all.map(({ unit }) => byUnit[unit] ?? 0);
      const amounts = all.map(({ unit, budget }) => (budget && estimate?.[unit]) ?? 0);
      const reserved = estimate && { asker: name, amounts };
      const shadowDeltas = inShadow?.map(({ unit }) => byUnit[unit] ?? 0);
      return store.settle({ ...about(key), deltas, shadowDeltas, slotUs, isUnused, reserved });
    },
    release(leases, ...keys) {
      const scopes = (keys.length === 0 ? [undefined] : keys).flatMap(scopesFor);
      return store.release({ bucket, terms: terms(), scopes, asker: name, leases });
    },
    renew: (leases, key) => store.renew({ ...about(key), asker: name, leases }),
    steer(change, key) {
      const member = members.find((each) => each.name === key);
      const scope = member === undefined ? scopesFor(key).at(-1) : member.scope;
      return store.steer({ bucket, terms: terms(), scope, change });
    },
    peek: (key) => store.peek(about(key)),
  };
}

/** All slots of a reply to one slot request, in µs on the bucket's clock. */
export function slotsOf({ granted }: DrawReply, index = 0): number[] {
  const each = granted[index];
  if (each === undefined) return [];
  const { slotsUs, run } = each;
  const count = run?.count ?? 0;
  return [...slotsUs, ...Array.from({ length: count }, (_, each) => slotOfRun(run!, each))];
}

/** A policy of a test's, in which calls of normal priority may fill the whole horizon. */
export function policyOf(options: PolicyOptions): Policy {
  return compilePolicy("test", { shares: { normal: 1 }, ...options });
}
