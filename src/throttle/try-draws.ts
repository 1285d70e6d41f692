import { StoreUnavailableError } from "../core/errors.ts";
import { NO_PLACE, type Drawn, type DrawRequest, type Granted } from "../core/store.ts";
import type { Basics } from "./basics.ts";
import type { TryDecision } from "./bucket.ts";
import type { TryOptions } from "./draw-options.ts";
import type { Group } from "./group.ts";
import type { PolicyNews } from "./known-terms.ts";
import type { LeaseKeeper } from "./lease-keeper.ts";
import type { Refusals } from "./refusals.ts";
import { answerBatch } from "./try-answers.ts";
import { Asker, Batch, byScript, MOST_TOGETHER, wishOf } from "./try-batches.ts";

/** Asks at once or not at all, for all who ask in one tick together. */
export interface TryDraws {
  ask(options: TryOptions): Promise<TryDecision>;
  /** Something of the bucket, or of one key, has changed: what was refused may pass now. */
  forget(key?: string): void;
}

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
  /** Of each draw that is under way, the keys of which something has changed since; undefined stands for all. */
  const underWay = new Set<Set<string | undefined>>();
  /** When the bucket was drawn from last, by its own clock; 0: never. A refusal leaves no trace there. */
  let drewUs = 0;

  function ask(options: TryOptions): Promise<TryDecision> {
    const group = parts.groupOf(options);
    const { name } = group;
    const refusal = refusals.find(group);
    if (refusal !== undefined) return Promise.resolve(refusal);
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
    for (let left = grouped(batches); left.length > 0; left = grouped(left)) {
      try {
        if (await drawFor(left)) return;
      } catch (error) {
        if (untilRetry === undefined || !(error instanceof StoreUnavailableError)) throw error;
        await untilRetry();
      }
    }
  }

  /** Resolves to false if another policy is in force, under which it costs and binds differently. */
  async function drawFor(asked: readonly Batch[]): Promise<boolean> {
    const groups = asked.map(({ group }) => group);
    const wanted = asked.reduce((sum, { size }) => sum + size, 0);
    const leased = groups.some(({ conditions }) => conditions.hasLeases) ? wanted : 0;
    let lease = leases.number(leased);
    const news = new Set<string | undefined>();
    underWay.add(news);
    const reply = await drawOnce(request(asked, lease, leased), groups).finally(() =>
      underWay.delete(news),
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
      const isOutdated = news.has(undefined) || news.has(batch.group.key);
      answerBatch(batch, { granted, reply, lease }, { leases, refusals, isOutdated });
      if (batch.group.conditions.hasLeases) lease += granted.slotsUs.length;
    }
    return true;
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
    const wishes = asked.map(wishOf);
    const common = { bucket, asker, terms: known.terms, place: NO_PLACE, drewUs };
    return { ...common, wishes, horizonUs: 0, lease, leases: leased, startsFull, isTry: true };
  }

  return {
    ask,
    forget(key) {
      refusals.forget(key);
      for (const news of underWay) news.add(key);
    },
  };
}

function isGranted({ slotsUs, run }: Granted): boolean {
  return slotsUs.length > 0 || run !== undefined;
}
