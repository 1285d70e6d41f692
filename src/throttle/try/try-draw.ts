/**
 * Implements `tryDraw`, which draws immediately or not at all. All tries of one tick share requests. Tries with the
 * same key and cost form a batch. If a reply names a newer policy, the tries are drawn again under this policy.
 */
import { isRefusal, StoreUnavailableError } from "../../core/errors.ts";
import { RANKS } from "../../core/input/options.ts";
import { ruleOf } from "../../core/limits/registry.ts";
import {
  NO_POSITION,
  type Drawn,
  type DrawRequest,
  type Granted,
  type SlotRequest,
  type KeyScope,
} from "../../core/store.ts";
import type { TryCall } from "../call-options.ts";
import type { BucketContext, PolicyUpdate } from "../known-policy.ts";
import { createLru } from "../lru.ts";
import { slotCountOf } from "../slot/held-slots.ts";
import type { LeaseKeeper } from "../slot/leases.ts";
import { DrawnSlot } from "../slot/slot.ts";
import { poolRequest, type UsesMember } from "../waiting/draw-request.ts";
import { type Group, haveSameLimits } from "../waiting/group.ts";
import {
  allowed,
  later,
  limitDecisionsOf,
  outcomeAtMember,
  refused,
  type TryDecision,
} from "./decision.ts";

export interface TryDraws {
  ask(options: TryCall): Promise<TryDecision>;
  /** Forgets the cached refusals of one key or of all keys. Called after a change, because these calls may pass now. */
  forget(key?: string): void;
}

/** The most requests in flight. */
const MOST_UNDER_WAY = 8;

interface TryDrawsOptions extends BucketContext {
  readonly startsFull: boolean;
  /** Resolves when a request may be retried after the store did not reply. Undefined if tries reject in this case. */
  readonly untilRetry: (() => Promise<void>) | undefined;
  readonly leases: LeaseKeeper;
  /** True if calls of this process may use a member of a pool. Defaults to all members. */
  readonly usesMember?: UsesMember | undefined;
  readonly refusals: Refusals;
  /** Called with the number of allowed calls, and in a pool with the member of each. */
  readonly onAllowed: (calls: number, members: readonly string[]) => void;
  /** Returns the group of a call under the known policy. */
  readonly groupOf: (options: TryCall) => Group;
  /** Applies a newer policy from a reply. */
  readonly learn: (update: PolicyUpdate) => void;
}

export function createTryDraws(parts: TryDrawsOptions): TryDraws {
  const { store, bucket, asker, known, leases, refusals, startsFull, untilRetry } = parts;
  const countSlots = parts.count;
  let gathered = new Map<string, Batch>();
  /** The number of keys in all gathered batches. */
  let keys = 0;
  let isDue = false;
  let asking = 0;
  /** One set for each draw in flight: the keys that changed after the draw was sent. Undefined stands for all keys. */
  const underWay = new Set<Set<string | undefined>>();
  /**
   * The time of the last reply that granted a slot, on the bucket's clock. 0 before the first. Refusals do not count,
   * because they write nothing to the bucket.
   */
  let drewUs = 0;

  function ask(options: TryCall): Promise<TryDecision> {
    const group = parts.groupOf(options);
    const name = group.pool === undefined ? group.name : group.id;
    const refusal = refusals.find(group);
    if (refusal !== undefined) {
      countSlots("refused", 1);
      return Promise.resolve(refusal);
    }
    return new Promise((resolve, reject) => {
      const own = new PendingTry(options.key, resolve, reject);
      const batch = gathered.get(name);
      if (batch === undefined) {
        gathered.set(name, new Batch(group, options, own));
        keys += group.scopes.length;
      } else batch.add(own);
      sendSoon();
    });
  }

  /**
   * Sends the gathered tries soon. While a request is in flight, waits until the gathered tries fill the next request.
   */
  function sendSoon(): void {
    if (isDue || asking >= MOST_UNDER_WAY) return;
    if (asking > 0 && Math.max(keys, gathered.size) < MOST_TOGETHER) return;
    isDue = true;
    queueMicrotask(sendAll);
  }

  function sendAll(): void {
    isDue = false;
    const batches = [...gathered.values()];
    gathered = new Map();
    keys = 0;
    for (const together of byScript(batches)) {
      asking += 1;
      void send(together);
    }
  }

  async function send(batches: readonly Batch[]): Promise<void> {
    try {
      await drawUntilAnswered(batches);
    } catch (error) {
      for (const batch of batches) reject(batch, error);
    } finally {
      asking -= 1;
      if (gathered.size > 0) sendSoon();
    }
  }

  async function drawUntilAnswered(batches: readonly Batch[]): Promise<void> {
    for (let left = regroup(batches); left.length > 0; left = regroup(left)) {
      try {
        if (await drawFor(left)) return;
      } catch (error) {
        if (untilRetry === undefined || !(error instanceof StoreUnavailableError)) throw error;
        await untilRetry();
      }
    }
  }

  /**
   * Draws for the batches. Resolves to false if the reply names a newer policy, because groups and costs must then be
   * computed again.
   */
  async function drawFor(asked: readonly Batch[]): Promise<boolean> {
    const groups = asked.map(({ group }) => group);
    const wanted = asked.reduce((sum, { size }) => sum + size, 0);
    const leased = groups.some(({ callTerms }) => callTerms.hasLeases) ? wanted : 0;
    let lease = leases.number(leased);
    const changedKeys = new Set<string | undefined>();
    underWay.add(changedKeys);
    const reply = await drawOnce(requestOf(asked, lease, leased), groups).finally(() =>
      underWay.delete(changedKeys),
    );
    const { newText, version, isOverride, nowUs } = reply;
    if (newText !== undefined) {
      parts.learn({ text: newText, version, isOverride });
      return false;
    }
    known.confirm(version);
    if (reply.granted.some(isGranted)) drewUs = nowUs;
    for (const [index, batch] of asked.entries()) {
      const granted = reply.granted[index]!;
      const isOutdated =
        changedKeys.has(undefined) ||
        batch.group.scopes.some((scope) => changedKeys.has(scope.key));
      answer(batch, { granted, reply, lease, isOutdated });
      if (batch.group.callTerms.hasLeases) lease += granted.slotsUs.length;
    }
    return true;
  }

  async function drawOnce(request: DrawRequest, groups: readonly Group[]): Promise<Drawn> {
    try {
      return await store.draw(request);
    } catch (error) {
      leases.releaseLost(request.lease, request.leases, groups);
      throw error;
    }
  }

  function requestOf(asked: readonly Batch[], lease: number, leased: number): DrawRequest {
    const slotRequests = asked.map(slotRequestOf);
    const common = { horizonUs: 0, lease, leases: leased, startsFull, isTry: true };
    const { pool } = known.policy;
    // Creates the object with all fields at once. V8 would keep an object that grows in memory until a full garbage
    // collection.
    return {
      bucket,
      asker,
      terms: known.terms,
      position: NO_POSITION,
      drewUs,
      slotRequests,
      pool: pool && poolRequest(pool, parts.usesMember),
      ...common,
    };
  }

  /** Resolves all tries of a batch, starts to renew their leases, and caches a refusal. */
  function answer(batch: Batch, { granted, reply, lease, isOutdated }: BatchReply): void {
    if (granted.refusal !== undefined) return reject(batch, granted.refusal);
    const { group, size } = batch;
    const { nowUs, sentAtMs, generation } = reply;
    const outcome = outcomeAtMember({ group, granted, nowUs });
    const decisions = limitDecisionsOf(outcome);
    const count = slotCountOf(granted);
    const refusal = count < size ? refused(decisions, outcome) : undefined;
    // A lease may become free at any time, so a refusal without a free lease is not cached.
    const mayEnd = granted.notBeforeUs === Infinity || isOutdated;
    // Any member of a pool may have room earlier than this process knows.
    if (refusal !== undefined && !mayEnd && group.pool === undefined) {
      refusals.keep(group, refusal, (granted.notBeforeUs - nowUs) / 1_000);
    }
    if (count > 0) {
      const members = (granted.members ?? []).slice(0, size);
      const nameOf = (member: number): string => group.pool!.pool.members[member - 1]!.name;
      parts.onAllowed(Math.min(count, size), members.map(nameOf));
    }
    if (refusal !== undefined) countSlots("refused", size - count);
    const sinceMs = performance.now();
    const start = { generation, nowMs: sinceMs };
    batch.forEach(({ key, resolve }, index) => {
      if (refusal !== undefined && index >= count) {
        resolve({ ...refusal });
        return;
      }
      const of = group.of({ member: granted.members?.[index] ?? 0 });
      const own = of.callTerms.hasLeases ? lease + index : 0;
      if (own > 0) leases.keep(own, of, sentAtMs);
      const held = { slotUs: granted.slotsUs[index] ?? nowUs, lease: own };
      const slot = new DrawnSlot({ group: of, key, sinceMs }, held, start);
      // Calls of one reply may use different members of a pool.
      const after = group.pool === undefined ? count - 1 - index : 0;
      resolve(allowed(decisions, of.callTerms, { after, slot }));
    });
  }

  function reject(batch: Batch, error: unknown): void {
    if (isRefusal(error)) countSlots("refused", batch.size);
    batch.reject(error);
  }

  /** Assigns the batches to the groups of the known policy. Rejects batches that this policy can never allow. */
  function regroup(batches: readonly Batch[]): readonly Batch[] {
    const { text } = known.policy;
    if (batches.every(({ group }) => group.callTerms.text === text)) return batches;
    return batches.filter((batch) => {
      try {
        batch.group = parts.groupOf(batch.options);
        return true;
      } catch (error) {
        reject(batch, error);
        return false;
      }
    });
  }

  return {
    ask,
    forget(key) {
      refusals.forget(key);
      for (const changedKeys of underWay) changedKeys.add(key);
    },
  };
}

function isGranted({ slotsUs, run }: Granted): boolean {
  return slotsUs.length > 0 || run !== undefined;
}

/** The part of a reply that belongs to one batch. */
interface BatchReply {
  readonly granted: Granted;
  readonly reply: Drawn;
  /** The number of the batch's first lease, if the batch's calls hold leases. */
  readonly lease: number;
  /** True if the batch's key changed after the draw was sent. A refusal is still valid then, but must not be cached. */
  readonly isOutdated: boolean;
}

/**
 * One pending try. It is a class instance in a linked list instead of an object literal in an array. If literals often
 * survive a garbage collection, V8 allocates them as old objects. Old objects are collected late, and until then keep
 * everything that they refer to in memory. With literals, a process that tried many keys lost half of its throughput.
 */
class PendingTry {
  readonly key: string | undefined;
  readonly resolve: (decision: TryDecision) => void;
  readonly reject: (reason: unknown) => void;
  next: PendingTry | undefined;

  constructor(
    key: string | undefined,
    resolve: PendingTry["resolve"],
    reject: PendingTry["reject"],
  ) {
    this.key = key;
    this.resolve = resolve;
    this.reject = reject;
  }
}

/** The pending tries with one key and cost, in the order of their arrival. */
class Batch {
  readonly options: TryCall;
  group: Group;
  size = 1;
  readonly #first: PendingTry;
  #last: PendingTry;

  constructor(group: Group, options: TryCall, first: PendingTry) {
    this.group = group;
    this.options = options;
    this.#first = first;
    this.#last = first;
  }

  add(pending: PendingTry): void {
    this.#last.next = pending;
    this.#last = pending;
    this.size += 1;
  }

  forEach(use: (pending: PendingTry, index: number) => void): void {
    let index = 0;
    for (
      let pending: PendingTry | undefined = this.#first;
      pending !== undefined;
      pending = pending.next
    ) {
      use(pending, index);
      index += 1;
    }
  }

  reject(reason: unknown): void {
    this.forEach((pending) => pending.reject(reason));
  }
}

/** The template of all requests. It is copied for each request, for the reason given at `PendingTry`. */
const NO_REQUEST: SlotRequest = {
  name: "",
  scopes: [],
  costs: [],
  shadowCosts: undefined,
  wanted: 0,
  rank: RANKS.normal,
  isBounded: false,
  sinceUs: 0,
  nextSinceUs: 0,
  lastSinceUs: 0,
};

function slotRequestOf({ group, size: wanted }: Batch): SlotRequest {
  const { name, scopes, callTerms, pool } = group;
  const { costs, shadowCosts } = callTerms;
  return { ...NO_REQUEST, name, scopes, costs, shadowCosts, wanted, home: pool?.home };
}

/**
 * The most keys in one request if all its limits are plain per-key limits. The script needs only a few µs for each such
 * limit.
 */
const MOST_TOGETHER = 128;
/** The most batches in any other request. */
const MOST_OF_OTHERS = 32;

function byScript(batches: readonly Batch[]): readonly (readonly Batch[])[] {
  const areLight = batches.every(isLight);
  const scripts: Batch[][] = [];
  let room = 0;
  for (const batch of batches) {
    const keys = areLight ? batch.group.scopes.length : 1;
    if (room < keys) {
      room = areLight ? MOST_TOGETHER : MOST_OF_OTHERS;
      scripts.push([]);
    }
    room -= keys;
    scripts.at(-1)!.push(batch);
  }
  return scripts;
}

function isLight({ group }: Batch): boolean {
  const { limits, shared } = group.callTerms;
  if (shared.length > 0 || limits.length === 0 || group.pool !== undefined) return false;
  return limits.length === 1 || limits.every(({ kind }) => ruleOf(kind).plainStatus !== undefined);
}

/** Caches refusals, so that the same call can be refused again without a request to Redis. */
export interface Refusals {
  /** Returns a valid cached refusal for calls of this group, with times relative to now. Undefined if there is none. */
  find(group: Group): TryDecision | undefined;
  /** Caches a refusal for `forMs`. The retry time in the refusal may be later. */
  keep(group: Group, decision: TryDecision, forMs: number): void;
  /** Forgets the cached refusals of one key or of all keys. Called after a change, because these calls may pass now. */
  forget(key?: string): void;
}

interface Refusal {
  readonly untilMs: number;
  readonly decision: TryDecision;
  readonly decidedAtMs: number;
  /**
   * The keys and limits of the refused call. If a key gets other limits, for example in another tier, this refusal is
   * invalid.
   */
  readonly scopes: readonly KeyScope[];
}

const MOST_REFUSALS = 10_000;
/** The longest time that a refusal is cached. It is short, because a change notification can be lost. */
const LONGEST_MEMORY_MS = 10_000;

export function createRefusals(): Refusals {
  const refusals = createLru<Refusal>(MOST_REFUSALS, ({ scopes }, name) => {
    for (const { key } of scopes) unlist(key, name);
  });
  /**
   * The names of refusals by key. Each settled call invalidates the refusals of its key, and must not search all
   * refusals for that.
   */
  const namesOfKeys = new Map<string, Set<string>>();

  function list(key: string, name: string): void {
    const names = namesOfKeys.get(key);
    if (names === undefined) namesOfKeys.set(key, new Set([name]));
    else names.add(name);
  }

  function unlist(key: string, name: string): void {
    const names = namesOfKeys.get(key);
    names?.delete(name);
    if (names?.size === 0) namesOfKeys.delete(key);
  }

  return {
    find({ name, scopes }) {
      const refusal = refusals.get(name);
      if (refusal === undefined || !haveSameLimits(refusal.scopes, scopes)) return undefined;
      const nowMs = performance.now();
      if (nowMs >= refusal.untilMs) return undefined;
      return later(refusal.decision, Math.floor(nowMs - refusal.decidedAtMs));
    },
    keep({ name, scopes }, decision, forMs) {
      const nowMs = performance.now();
      const untilMs = nowMs + Math.min(forMs, LONGEST_MEMORY_MS);
      refusals.set(name, { untilMs, decision, decidedAtMs: nowMs, scopes });
      for (const { key } of scopes) list(key, name);
    },
    forget(key) {
      if (key === undefined) return refusals.clear();
      for (const name of namesOfKeys.get(key) ?? []) refusals.delete(name);
    },
  };
}
