import { LRUCache } from "lru-cache";
import { NO_PLACE, type Drawn, type DrawRequest } from "../core/store.ts";
import type { Basics } from "./basics.ts";
import type { TryDecision } from "./bucket.ts";
import type { Decision } from "./decision.ts";
import { allowed, later, refused, standingsOf, type Outcome } from "./decisions.ts";
import type { TryOptions } from "./draw-options.ts";
import type { Group } from "./group.ts";
import type { PolicyNews } from "./known-terms.ts";
import type { LeaseKeeper } from "./lease-keeper.ts";
import { DrawnSlot } from "./slot.ts";

/** Asks at once or not at all, for all who ask in one tick together. */
export interface TryDraws {
  ask(options: TryOptions): Promise<TryDecision>;
  /** Something of the bucket, or of one key, has changed: what was refused may pass now. */
  forget(key?: string): void;
}

/** Those who ask for the same. */
interface Batch {
  readonly options: TryOptions;
  readonly askers: Asker[];
}

interface Asked extends Batch {
  readonly group: Group;
}

interface Asker {
  readonly key: string | undefined;
  readonly resolve: (decision: TryDecision) => void;
  readonly reject: (reason: unknown) => void;
}

interface Refusal {
  readonly untilMs: number;
  readonly decision: Decision;
  readonly decidedAtMs: number;
  readonly key: string | undefined;
}

const MOST_REFUSALS = 10_000;
/** However long a refusal holds, it is asked about again: news of a change may have been lost. */
const LONGEST_MEMORY_MS = 10_000;
/** One script serves so many. */
const MOST_BATCHES = 32;

export interface TryDrawsOptions extends Basics {
  readonly leases: LeaseKeeper;
  /** The group that a call belongs to, by the policy that is known. */
  readonly groupOf: (options: TryOptions) => Group;
  /** Another policy is in force. */
  readonly learn: (news: PolicyNews) => void;
}

export function createTryDraws(parts: TryDrawsOptions): TryDraws {
  const { store, bucket, asker, known, leases } = parts;
  const refusals = new LRUCache<string, Refusal>({ max: MOST_REFUSALS });
  let gathered = new Map<string, Batch>();
  let isDue = false;
  let asking = 0;

  function ask(options: TryOptions): Promise<TryDecision> {
    const { name } = parts.groupOf(options);
    const refusal = refusals.get(name);
    const nowMs = performance.now();
    if (refusal !== undefined && nowMs < refusal.untilMs) {
      const decision = later(refusal.decision, Math.floor(nowMs - refusal.decidedAtMs));
      return Promise.resolve({ ...decision, slot: undefined });
    }
    return new Promise((resolve, reject) => {
      const batch = gathered.get(name) ?? { options, askers: [] };
      if (batch.askers.length === 0) gathered.set(name, batch);
      batch.askers.push({ key: options.key, resolve, reject });
      sendSoon();
    });
  }

  /** While one request is under way, those who come are gathered for the next. */
  function sendSoon(): void {
    if (isDue || asking > 0) return;
    isDue = true;
    queueMicrotask(sendAll);
  }

  function sendAll(): void {
    isDue = false;
    const batches = [...gathered.values()];
    gathered = new Map();
    for (let start = 0; start < batches.length; start += MOST_BATCHES) {
      asking += 1;
      void send(batches.slice(start, start + MOST_BATCHES));
    }
  }

  async function send(batches: readonly Batch[]): Promise<void> {
    try {
      await drawFor(batches);
    } catch (error) {
      for (const { askers } of batches) for (const { reject } of askers) reject(error);
    } finally {
      asking -= 1;
      if (gathered.size > 0) sendSoon();
    }
  }

  async function drawFor(batches: readonly Batch[]): Promise<void> {
    const asked = grouped(batches);
    if (asked.length === 0) return;
    const groups = asked.map(({ group }) => group);
    const wanted = asked.reduce((sum, { askers }) => sum + askers.length, 0);
    const leased = groups.some(({ hasLeases }) => hasLeases) ? wanted : 0;
    let lease = leases.number(leased);
    const reply = await drawOnce(request(asked, lease), groups, leased);
    const { newText, version, isOverride, nowUs } = reply;
    if (newText !== undefined) {
      // It costs and binds differently under the policy that is in force.
      parts.learn({ text: newText, version, isOverride });
      return drawFor(asked);
    }
    known.confirm(version);
    for (const [index, { group, askers }] of asked.entries()) {
      const granted = reply.granted[index]!;
      settle(askers, { group, granted, nowUs }, { reply, lease });
      if (group.hasLeases) lease += granted.slotsUs.length;
    }
  }

  /** With the groups that they belong to; those alone fail that could never pass under the policy that is known by now. */
  function grouped(batches: readonly Batch[]): Asked[] {
    return batches.flatMap(({ options, askers }) => {
      try {
        return [{ options, askers, group: parts.groupOf(options) }];
      } catch (error) {
        for (const { reject } of askers) reject(error);
        return [];
      }
    });
  }

  async function drawOnce(
    wish: Omit<DrawRequest, "leases">,
    groups: readonly Group[],
    leased: number,
  ): Promise<Drawn> {
    try {
      return await store.draw({ ...wish, leases: leased });
    } catch (error) {
      leases.releaseLost(wish.lease, leased, groups);
      throw error;
    }
  }

  function request(asked: readonly Asked[], lease: number): Omit<DrawRequest, "leases"> {
    const wishes = asked.map(({ group: { name, key, keyLimits, costs }, askers }) => {
      const wanted = askers.length;
      return { name, key, keyLimits, costs, wanted, rank: 0, place: NO_PLACE };
    });
    const common = { bucket, asker, terms: known.terms, place: NO_PLACE, drewUs: 0 };
    return { ...common, wishes, horizonUs: 0, lease, isTry: true };
  }

  function settle(
    askers: readonly Asker[],
    outcome: Outcome,
    { reply, lease }: { reply: Drawn; lease: number },
  ): void {
    const { group, granted } = outcome;
    const standings = standingsOf(outcome);
    const count = granted.slotsUs.length + (granted.run?.count ?? 0);
    const sinceMs = performance.now();
    for (const [index, { key, resolve }] of askers.entries()) {
      if (index === count) break;
      const own = group.hasLeases ? lease + index : 0;
      if (own > 0) leases.keep(own, group, reply.sentAtMs);
      const held = { slotUs: granted.slotsUs[index] ?? reply.nowUs, lease: own };
      const slot = new DrawnSlot({ group, key, sinceMs }, held, reply.generation);
      resolve(allowed(standings, group, { after: count - 1 - index, slot }));
    }
    if (count === askers.length) return;
    const decision = refused(standings, outcome);
    // A lease may come free at any time: nobody can tell when that refusal ends.
    if (granted.notBeforeUs !== Infinity) {
      const untilMs = sinceMs + Math.min(decision.retryAfterMs, LONGEST_MEMORY_MS);
      const facts = { untilMs, decision, decidedAtMs: sinceMs, key: group.key };
      refusals.set(group.name, facts);
    }
    for (const { resolve } of askers.slice(count)) resolve({ ...decision, slot: undefined });
  }

  function forget(key?: string): void {
    if (key === undefined) return refusals.clear();
    for (const [name, refusal] of refusals) if (refusal.key === key) refusals.delete(name);
  }

  return { ask, forget };
}
