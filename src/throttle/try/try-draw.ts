/**
 * `tryDraw`: draws immediately or not at all. Tries of one tick share requests, in one batch for each key and cost. If
 * another policy is in force, they are drawn again under it.
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
import { type Group, haveSameLimits } from "../waiting/group.ts";
import { allowed, refused, limitDecisionsOf, type TryDecision, later } from "./decision.ts";

export interface TryDraws {
  ask(options: TryCall): Promise<TryDecision>;
  /** Forgets refusals: the bucket or one key changed, so refused calls may pass now. */
  forget(key?: string): void;
}

/** The most requests in flight. */
const MOST_UNDER_WAY = 8;

interface TryDrawsOptions extends BucketContext {
  readonly startsFull: boolean;
  /** Resolves when the store may be asked again after it did not answer; undefined if tries fail then. */
  readonly untilRetry: (() => Promise<void>) | undefined;
  readonly leases: LeaseKeeper;
  readonly refusals: Refusals;
  /** Called with the number of allowed calls. */
  readonly onAllowed: (calls: number) => void;
  /** The group of a call under the known policy. */
  readonly groupOf: (options: TryCall) => Group;
  /** Applies another policy. */
  readonly learn: (update: PolicyUpdate) => void;
}

export function createTryDraws(parts: TryDrawsOptions): TryDraws {
  const { store, bucket, asker, known, leases, refusals, startsFull, untilRetry } = parts;
  const countSlots = parts.count;
  let gathered = new Map<string, Batch>();
  /** The number of keys of all gathered batches. */
  let keys = 0;
  let isDue = false;
  let asking = 0;
  /** For each draw in flight, the keys that changed after it was sent; undefined stands for all keys. */
  const underWay = new Set<Set<string | undefined>>();
  /** The bucket's clock when it last granted something; 0 if never. A refusal does not write to the bucket. */
  let drewUs = 0;

  function ask(options: TryCall): Promise<TryDecision> {
    const group = parts.groupOf(options);
    const { name } = group;
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

  /** While a request is in flight, new tries are gathered for the next one, until they fill it. */
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

  /** Resolves to false if another policy is in force, which changes groups and costs. */
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
    // A literal with all fields: an object that grows would stay among V8's old objects until all of those are
    // collected.
    return {
      bucket,
      asker,
      terms: known.terms,
      position: NO_POSITION,
      drewUs,
      slotRequests,
      ...common,
    };
  }

  /** Resolves all tries of a batch, keeps their leases, and caches a refusal. */
  function answer(batch: Batch, { granted, reply, lease, isOutdated }: BatchReply): void {
    if (granted.refusal !== undefined) return reject(batch, granted.refusal);
    const { group, size } = batch;
    const { nowUs, sentAtMs, generation } = reply;
    const outcome = { group, granted, nowUs };
    const decisions = limitDecisionsOf(outcome);
    const count = slotCountOf(granted);
    const refusal = count < size ? refused(decisions, outcome) : undefined;
    // A lease may become free at any time, so a refusal for want of one is not cached.
    const mayEnd = granted.notBeforeUs === Infinity || isOutdated;
    if (refusal !== undefined && !mayEnd) {
      refusals.keep(group, refusal, (granted.notBeforeUs - nowUs) / 1_000);
    }
    if (count > 0) parts.onAllowed(Math.min(count, size));
    if (refusal !== undefined) countSlots("refused", size - count);
    const sinceMs = performance.now();
    const start = { generation, nowMs: sinceMs };
    batch.forEach(({ key, resolve }, index) => {
      if (refusal !== undefined && index >= count) {
        resolve({ ...refusal });
        return;
      }
      const own = group.callTerms.hasLeases ? lease + index : 0;
      if (own > 0) leases.keep(own, group, sentAtMs);
      const held = { slotUs: granted.slotsUs[index] ?? nowUs, lease: own };
      const slot = new DrawnSlot({ group, key, sinceMs }, held, start);
      resolve(allowed(decisions, group.callTerms, { after: count - 1 - index, slot }));
    });
  }

  function reject(batch: Batch, error: unknown): void {
    if (isRefusal(error)) countSlots("refused", batch.size);
    batch.reject(error);
  }

  /** Assigns the batches to the groups of the known policy. Batches that this policy could never allow fail. */
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

/** What one batch gets from a reply. */
interface BatchReply {
  readonly granted: Granted;
  readonly reply: Drawn;
  /** The number of its first lease, if its calls hold leases. */
  readonly lease: number;
  /** True if its key changed after the draw was sent: a refusal is then valid, but must not be cached. */
  readonly isOutdated: boolean;
}

/**
 * One pending try. It is a class and a link of a chain, not a literal in an array. V8 allocates literals that often
 * survive a garbage collection among its old objects, and each of those keeps everything it refers to alive long after
 * its use. With literals, a process that tried many keys lost half of its throughput.
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

/** The tries of one key and cost, in the order of their arrival. */
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

/** Copied for each request, for the reason given at `PendingTry`. */
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

function slotRequestOf({ group: { name, scopes, callTerms }, size: wanted }: Batch): SlotRequest {
  const { costs, shadowCosts } = callTerms;
  return { ...NO_REQUEST, name, scopes, costs, shadowCosts, wanted };
}

/** The most keys of one request if all its limits are plain limits of keys: those take the script a few µs each. */
const MOST_TOGETHER = 128;
/** The most batches of any other request. */
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
  if (shared.length > 0 || limits.length === 0) return false;
  return limits.length === 1 || limits.every(({ kind }) => ruleOf(kind).plainStatus !== undefined);
}

/** Caches refusals, so that the same call is refused without a request to Redis. */
export interface Refusals {
  /** A valid refusal for calls of this group, with its times as of now. */
  find(group: Group): TryDecision | undefined;
  /** Caches a refusal for `forMs`; the refusal itself may name a later time. */
  keep(group: Group, decision: TryDecision, forMs: number): void;
  /** Forgets refusals: the bucket or one key changed, so refused calls may pass now. */
  forget(key?: string): void;
}

interface Refusal {
  readonly untilMs: number;
  readonly decision: TryDecision;
  readonly decidedAtMs: number;
  /** The keys with the limits that refused the call: another tier may allow it. */
  readonly scopes: readonly KeyScope[];
}

const MOST_REFUSALS = 10_000;
/** The longest time that a refusal is cached, because a change notification can be lost. */
const LONGEST_MEMORY_MS = 10_000;

export function createRefusals(): Refusals {
  const refusals = createLru<Refusal>(MOST_REFUSALS, ({ scopes }, name) => {
    for (const { key } of scopes) unlist(key, name);
  });
  /** Indexed by key: each settled call invalidates its key, which must not search all refusals. */
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
