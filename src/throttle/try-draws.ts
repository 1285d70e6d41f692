import { StoreUnavailableError } from "../core/errors.ts";
import {
  NO_PLACE,
  type Drawn,
  type DrawRequest,
  type Granted,
  type Wish,
} from "../core/draw-messages.ts";
import type { Basics } from "./basics.ts";
import type { TryDecision } from "./bucket.ts";
import { allowed, refused, standingsOf, type Outcome } from "./decisions.ts";
import type { TryOptions } from "./draw-options.ts";
import type { Group } from "./group.ts";
import type { PolicyNews } from "./known-terms.ts";
import type { LeaseKeeper } from "./lease-keeper.ts";
import type { Refusals } from "./refusals.ts";
import { DrawnSlot } from "./slot.ts";
import { Asker, Batch, byScript, MOST_TOGETHER } from "./try-batches.ts";

/** Asks at once or not at all, for all who ask in one tick together. */
export interface TryDraws {
  ask(options: TryOptions): Promise<TryDecision>;
  /** Something of the bucket, or of one key, has changed: what was refused may pass now. */
  forget(key?: string): void;
}

const NO_WISH: Wish = {
  name: "",
  key: undefined,
  keyLimits: [],
  costs: [],
  wanted: 0,
  rank: 0,
  place: NO_PLACE,
};

/** So many scripts wait for their answers before a full one has to wait as well. */
const MOST_UNDER_WAY = 8;

export interface TryDrawsOptions extends Basics {
  readonly startsFull: boolean;
  /** Those who ask wait while the store does not answer: resolves when it may be asked again. Undefined: they fail. */
  readonly untilRetry: (() => Promise<void>) | undefined;
  readonly leases: LeaseKeeper;
  readonly refusals: Refusals;
  /** The group that a call belongs to, by the policy that is known. */
  readonly groupOf: (options: TryOptions) => Group;
  /** Another policy is in force. */
  readonly learn: (news: PolicyNews) => void;
}

export function createTryDraws(parts: TryDrawsOptions): TryDraws {
  const { store, bucket, asker, known, leases, refusals, startsFull, untilRetry } = parts;
  let gathered = new Map<string, Batch>();
  let isDue = false;
  let asking = 0;
  /** When the bucket was drawn from last, by its own clock; 0: never. A refusal leaves no trace there. */
  let drewUs = 0;

  function ask(options: TryOptions): Promise<TryDecision> {
    const group = parts.groupOf(options);
    const { name } = group;
    const refusal = refusals.find(group);
    if (refusal !== undefined) return Promise.resolve({ ...refusal, slot: undefined });
    return new Promise((resolve, reject) => {
      const own = new Asker(options.key, resolve, reject);
      const batch = gathered.get(name);
      if (batch === undefined) gathered.set(name, new Batch(group, options, own));
      else batch.add(own);
      sendSoon();
    });
  }

  /** While one request is under way, those who come are gathered for the next, until they fill it. */
  function sendSoon(): void {
    if (isDue || asking >= MOST_UNDER_WAY) return;
    if (asking > 0 && gathered.size < MOST_TOGETHER) return;
    isDue = true;
    queueMicrotask(sendAll);
  }

  function sendAll(): void {
    isDue = false;
    const batches = [...gathered.values()];
    gathered = new Map();
    for (const together of byScript(batches)) {
      asking += 1;
      void send(together);
    }
  }

  async function send(batches: readonly Batch[]): Promise<void> {
    try {
      await drawUntilAnswered(batches);
    } catch (error) {
      for (const batch of batches) batch.reject(error);
    } finally {
      asking -= 1;
      if (gathered.size > 0) sendSoon();
    }
  }

  async function drawUntilAnswered(batches: readonly Batch[]): Promise<void> {
    for (;;) {
      try {
        return await drawFor(batches);
      } catch (error) {
        if (untilRetry === undefined || !(error instanceof StoreUnavailableError)) throw error;
        await untilRetry();
      }
    }
  }

  async function drawFor(batches: readonly Batch[]): Promise<void> {
    const asked = grouped(batches);
    if (asked.length === 0) return;
    const groups = asked.map(({ group }) => group);
    const wanted = asked.reduce((sum, { size }) => sum + size, 0);
    const leased = groups.some(({ conditions }) => conditions.hasLeases) ? wanted : 0;
    let lease = leases.number(leased);
    const reply = await drawOnce(request(asked, lease, leased), groups);
    const { newText, version, isOverride, nowUs } = reply;
    if (newText !== undefined) {
      // It costs and binds differently under the policy that is in force.
      parts.learn({ text: newText, version, isOverride });
      return drawFor(asked);
    }
    known.confirm(version);
    if (reply.granted.some(isGranted)) drewUs = nowUs;
    for (const [index, batch] of asked.entries()) {
      const granted = reply.granted[index]!;
      if (granted.refusal !== undefined) {
        batch.reject(granted.refusal);
        continue;
      }
      settle(batch, granted, { reply, lease });
      if (batch.group.conditions.hasLeases) lease += granted.slotsUs.length;
    }
  }

  /** With the groups that they belong to; those alone fail that could never pass under the policy that is known by now. */
  function grouped(batches: readonly Batch[]): readonly Batch[] {
    const { text } = known.policy;
    if (batches.every(({ group }) => group.conditions.text === text)) return batches;
    return batches.filter((batch) => {
      try {
        batch.group = parts.groupOf(batch.options);
        return true;
      } catch (error) {
        batch.reject(error);
        return false;
      }
    });
  }

  async function drawOnce(question: DrawRequest, groups: readonly Group[]): Promise<Drawn> {
    try {
      return await store.draw(question);
    } catch (error) {
      leases.releaseLost(question.lease, question.leases, groups);
      throw error;
    }
  }

  function request(asked: readonly Batch[], lease: number, leased: number): DrawRequest {
    const wishes = asked.map(({ group: { name, key, conditions }, size: wanted }) => {
      const { keyLimits, costs } = conditions;
      return { ...NO_WISH, name, key, keyLimits, costs, wanted };
    });
    const common = { bucket, asker, terms: known.terms, place: NO_PLACE, drewUs };
    return { ...common, wishes, horizonUs: 0, lease, leases: leased, startsFull, isTry: true };
  }

  function settle(
    batch: Batch,
    granted: Granted,
    { reply, lease }: { readonly reply: Drawn; readonly lease: number },
  ): void {
    const { group, size } = batch;
    const { nowUs, sentAtMs, generation } = reply;
    const outcome: Outcome = { group, granted, nowUs };
    const standings = standingsOf(outcome);
    const count = granted.slotsUs.length + (granted.run?.count ?? 0);
    const refusal = count < size ? refused(standings, outcome) : undefined;
    // A lease may come free at any time: nobody can tell when that refusal ends.
    if (refusal !== undefined && granted.notBeforeUs !== Infinity) refusals.keep(group, refusal);
    const sinceMs = performance.now();
    batch.forEach(({ key, resolve }, index) => {
      if (refusal !== undefined && index >= count) {
        resolve({ ...refusal, slot: undefined });
        return;
      }
      const own = group.conditions.hasLeases ? lease + index : 0;
      if (own > 0) leases.keep(own, group, sentAtMs);
      const held = { slotUs: granted.slotsUs[index] ?? nowUs, lease: own };
      const slot = new DrawnSlot({ group, key, sinceMs }, held, generation);
      resolve(allowed(standings, group.conditions, { after: count - 1 - index, slot }));
    });
  }

  return { ask, forget: (key) => refusals.forget(key) };
}

function isGranted({ slotsUs, run }: Granted): boolean {
  return slotsUs.length > 0 || run !== undefined;
}
