import { reasonOf } from "../../core/describe.ts";
import { LeaseLostError } from "../../core/errors.ts";
import { isLeased } from "../../core/limits/registry.ts";
import type { LeasesRequest, LimitedKey } from "../../core/store.ts";
import type { CallTerms } from "../costs.ts";
import type { BucketContext } from "../known-policy.ts";

/**
 * The leases of calls that run here, or are about to: numbered before the draw, renewed while a call runs, and given
 * back when it ends. A call is warned before its lease ends, if that cannot be renewed.
 */
export interface LeaseKeeper {
  /** Whose leases they are, as the store knows the process. */
  readonly asker: string;
  /** The number of the first of `count` leases to ask for; no number comes twice. */
  number(count: number): number;
  /** Keeps a lease that was drawn at `atMs` of `performance.now()`: it is renewed until it is given back. */
  keep(lease: number, group: LeaseHolder, atMs: number): void;
  /** Renews a lease that another process has drawn, and keeps it as `keep` does. Resolves to false if it was lost. */
  takeOver(lease: number, group: LeaseHolder): Promise<boolean>;
  /** Gives a lease back. Does no harm a second time, or for a lease that is not kept. */
  release(lease: number, group: LeaseHolder): void;
  /** Gives back the leases of slots that are not used. */
  releaseAll(slots: readonly { readonly lease: number }[], group: LeaseHolder): void;
  /** A reply says how many leases are left beside all that wait for one, and how many replicas draw. */
  learnSpare(spare: number, alive: number): void;
  /** A free lease was offered, and is another's: those that wait for one of these calls are woken again. */
  passOn(group: LeaseHolder): void;
  /** Gives back all leases that a lost reply may have granted, to any of the groups that were asked for. */
  releaseLost(first: number, count: number, groups: readonly LeaseHolder[]): void;
  /** Aborted before the lease ends, if it cannot be renewed. */
  signalOf(lease: number): AbortSignal;
  /** Calls back then, or at once where the lease has ended: cheaper than a signal. */
  onEnding(lease: number, listener: OnEnding): void;
  /** Resolves when all leases that were given back so far have been sent. */
  settled(): Promise<void>;
  /** Renews and gives back no more: the leases of calls that still run end by themselves, after a warning. */
  close(): void;
}

type OnEnding = (reason: LeaseLostError) => void;

interface Kept {
  readonly group: LeaseHolder;
  readonly lastsMs: number;
  endsAtMs: number;
  readonly ending: Ending;
}

/** The warning that a lease ends. Its signal is made on first use: one for each call cost as much as all else about its lease. */
class Ending {
  #reason: LeaseLostError | undefined;
  #controller: AbortController | undefined;
  #listeners: OnEnding[] | undefined;

  get isWarned(): boolean {
    return this.#reason !== undefined;
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.#reason !== undefined) this.#controller.abort(this.#reason);
    return this.#controller.signal;
  }

  on(listener: OnEnding): void {
    if (this.#reason === undefined) (this.#listeners ??= []).push(listener);
    else listener(this.#reason);
  }

  warn(reason: LeaseLostError): void {
    if (this.#reason !== undefined) return;
    this.#reason = reason;
    this.#controller?.abort(reason);
    for (const listener of this.#listeners ?? []) listener(reason);
  }
}

/** Renewed after a third of its time, a lease survives two failures. */
const RENEW_AT = 1 / 3;
/** The part of a lease's time after which its call is warned: no other call takes its place before the whole. */
const WARN_AT = 0.9;

/** While leases are plenty, those of calls that end within this time go back together. */
const GATHER_MS = 25;
/** The part of the spare leases that all replicas together may hold back meanwhile. */
const HELD_BACK_PART = 1 / 4;

export function createLeaseKeeper(context: BucketContext): LeaseKeeper {
  const { store, bucket, logger } = context;
  const kept = new Map<number, Kept>();
  /** Leases to give back at the end of this tick, or a little later. */
  let ended: LeasesByHolder | undefined;
  /** How many of them may be held back to go with others. */
  let mostHeldBack = 0;
  let gathering: NodeJS.Timeout | undefined;
  const returning = new Set<Promise<void>>();
  /** The duration of the shortest lease so far. */
  let shortestMs = Infinity;
  let nextLease = 1;
  let timer: NodeJS.Timeout | undefined;
  /** Whether the leases that have ended go back at the end of this tick. */
  let isGivingBack = false;
  let isClosed = false;

  function setTimer(): void {
    if (timer !== undefined || kept.size === 0) return;
    timer = setTimeout(tend, Math.min(shortestMs / 6, firstWarningAtMs() - performance.now()));
    // A running call keeps the process alive, not its lease.
    timer.unref();
  }

  function stop(): void {
    clearTimeout(timer);
    timer = undefined;
  }

  function stopIfNone(): void {
    if (kept.size === 0) stop();
  }

  /** Renews what is due, and warns calls whose leases are about to end. */
  function tend(): void {
    timer = undefined;
    const nowMs = performance.now();
    const due = new LeasesByHolder();
    for (const [lease, { group, endsAtMs, lastsMs, ending }] of kept) {
      const startedMs = endsAtMs - lastsMs;
      if (nowMs >= startedMs + lastsMs * WARN_AT) {
        ending.warn(new LeaseLostError(bucket));
        if (isClosed) kept.delete(lease);
      } else if (!isClosed && nowMs >= startedMs + lastsMs * RENEW_AT) due.add(lease, group);
    }
    for (const [group, leases] of due.inParts()) void renew(group, leases);
    setTimer();
  }

  /** When the first call is due for a warning; Infinity if all have had theirs. */
  function firstWarningAtMs(): number {
    let firstMs = Infinity;
    for (const { endsAtMs, lastsMs, ending } of kept.values()) {
      if (!ending.isWarned) firstMs = Math.min(firstMs, endsAtMs - lastsMs * (1 - WARN_AT));
    }
    return firstMs;
  }

  async function renew(group: LeaseHolder, leases: readonly number[]): Promise<void> {
    const sentAtMs = performance.now();
    try {
      const lost = new Set(await store.renew(leasesRequest(context, group, leases)));
      for (const lease of leases) {
        const own = kept.get(lease);
        if (own === undefined) continue;
        if (lost.has(lease)) own.ending.warn(new LeaseLostError(bucket));
        else own.endsAtMs = sentAtMs + own.lastsMs;
      }
    } catch (error) {
      const reason = reasonOf(error);
      logger.warn({ bucket, reason }, "Could not renew leases; retrying until they end.");
    }
  }

  function release(lease: number, group: LeaseHolder): void {
    kept.delete(lease);
    if (isClosed) return stopIfNone();
    ended ??= new LeasesByHolder();
    ended.add(lease, group);
    if (ended.count > mostHeldBack || !group.callTerms.areLeasesShared) giveBackSoon();
    else gathering ??= setTimeout(giveBackEnded, GATHER_MS);
  }

  function giveBackSoon(): void {
    if (isGivingBack) return;
    isGivingBack = true;
    queueMicrotask(giveBackEnded);
  }

  function giveBackEnded(): void {
    isGivingBack = false;
    clearTimeout(gathering);
    gathering = undefined;
    const requests = ended?.together() ?? [];
    ended = undefined;
    for (const [group, leases] of requests) {
      const giving = store
        .release(leasesRequest(context, group, leases))
        .catch((error: unknown) => {
          const reason = reasonOf(error);
          logger.warn(
            { bucket, reason },
            "Could not give leases back; they will end by themselves.",
          );
        })
        .finally(() => returning.delete(giving));
      returning.add(giving);
    }
  }

  function keep(lease: number, group: LeaseHolder, atMs: number): void {
    const leased = group.callTerms.limits.filter(isLeased);
    const lastsMs = Math.min(...leased.map(({ periodUs }) => periodUs)) / 1_000;
    if (lastsMs < shortestMs) {
      shortestMs = lastsMs;
      stop();
    }
    kept.set(lease, { group, lastsMs, endsAtMs: atMs + lastsMs, ending: new Ending() });
    setTimer();
  }

  return {
    asker: context.asker,
    number(count) {
      nextLease += count;
      return nextLease - count;
    },
    keep,
    async takeOver(lease, group) {
      const sentAtMs = performance.now();
      const lost = await store.renew(leasesRequest(context, group, [lease]));
      if (lost.length > 0) return false;
      // Under another policy there may be nothing to hold.
      if (group.callTerms.hasLeases) keep(lease, group, sentAtMs);
      return true;
    },
    release,
    releaseAll(slots, group) {
      for (const { lease } of slots) if (lease > 0) release(lease, group);
    },
    learnSpare(spare, alive) {
      mostHeldBack = Math.floor((spare * HELD_BACK_PART) / alive);
      if ((ended?.count ?? 0) > mostHeldBack) giveBackSoon();
    },
    passOn(group) {
      if (isClosed) return;
      ended ??= new LeasesByHolder();
      ended.addNone(group);
      giveBackSoon();
    },
    releaseLost(first, count, groups) {
      for (const group of groups) {
        if (!group.callTerms.hasLeases) continue;
        for (let each = 0; each < count; each++) release(first + each, group);
      }
    },
    signalOf(lease) {
      return kept.get(lease)?.ending.signal ?? AbortSignal.abort(new LeaseLostError(bucket));
    },
    onEnding(lease, listener) {
      const own = kept.get(lease);
      if (own === undefined) listener(new LeaseLostError(bucket));
      else own.ending.on(listener);
    },
    async settled() {
      giveBackEnded();
      await Promise.all(returning);
    },
    close() {
      isClosed = true;
      stopIfNone();
    },
  };
}

/** Calls of one key and cost: their leases are renewed together. */
export interface LeaseHolder {
  /** What of the calls' key has limits of its own. */
  readonly scopes: readonly LimitedKey[];
  readonly callTerms: CallTerms;
}

/** Where leases are. */
interface LeasePlaces {
  readonly scopes: readonly LimitedKey[];
  readonly callTerms: Pick<CallTerms, "shared">;
}

type JointPlaces = LeasePlaces & { readonly scopes: LimitedKey[] };

/** The endpoints of a tenant share its scope. */
function addScopes({ scopes }: JointPlaces, more: LeasePlaces): void {
  for (const scope of more.scopes) {
    const { key, limits } = scope;
    if (!scopes.some((known) => known.key === key && known.limits === limits)) scopes.push(scope);
  }
}

/** With so many, a request to give leases back takes no more of them: each is looked for at each key. */
const MOST_JOINT = 50;
/** How many leases one request names: Lua can unpack a few thousand numbers at once. */
const MOST_AT_ONCE = 500;

/** Leases, by the calls that hold them. */
class LeasesByHolder {
  readonly #leases = new Map<LeaseHolder, number[]>();
  #count = 0;

  /** How many leases there are. */
  get count(): number {
    return this.#count;
  }

  add(lease: number, holder: LeaseHolder): void {
    this.#count += 1;
    const leases = this.#leases.get(holder);
    if (leases === undefined) this.#leases.set(holder, [lease]);
    else leases.push(lease);
  }

  addNone(holder: LeaseHolder): void {
    if (!this.#leases.has(holder)) this.#leases.set(holder, []);
  }

  /** For requests that give them back: those of several keys together, where a lease that a key never had changes nothing. */
  *together(): Iterable<readonly [LeasePlaces, readonly number[]]> {
    let joint: { readonly places: JointPlaces; readonly leases: number[] } | undefined;
    for (const [holder, leases] of this.inParts()) {
      const { shared } = holder.callTerms;
      // Without one, it passes an offer on, and is to get none for itself.
      if (leases.length === 0) yield [holder, leases];
      else if (joint?.places.callTerms.shared === shared && joint.leases.length < MOST_JOINT) {
        addScopes(joint.places, holder);
        joint.leases.push(...leases);
      } else {
        if (joint !== undefined) yield [joint.places, joint.leases];
        joint = {
          places: { callTerms: { shared }, scopes: [...holder.scopes] },
          leases: [...leases],
        };
      }
    }
    if (joint !== undefined) yield [joint.places, joint.leases];
  }

  /** In parts that one request may name. */
  *inParts(): Iterable<readonly [LeaseHolder, readonly number[]]> {
    for (const [holder, leases] of this.#leases) {
      if (leases.length === 0) yield [holder, leases];
      for (let start = 0; start < leases.length; start += MOST_AT_ONCE) {
        yield [holder, leases.slice(start, start + MOST_AT_ONCE)];
      }
    }
  }
}

/** Names the limits that the leases were drawn under, since another policy may be in force by now. */
function leasesRequest(
  { bucket, asker, known }: BucketContext,
  { scopes, callTerms: { shared } }: LeasePlaces,
  leases: readonly number[],
): LeasesRequest {
  const terms = { ...known.terms, limits: shared };
  return { bucket, asker, terms, scopes, leases };
}
