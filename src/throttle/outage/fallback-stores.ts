import { DREW_ELSEWHERE_US } from "../../core/store.ts";
import { StoreUnavailableError } from "../../core/errors.ts";
import { isLeased, partOfLimit } from "../../core/limits/registry.ts";
import type { Limit } from "../../core/limits/rule.ts";
import {
  limitsOfCall,
  NO_POSITION,
  type Drawn,
  type DrawRequest,
  type Granted,
  type KnownTerms,
  type LimitedKey,
  type ScopesRequest,
  type Store,
  type SlotRequest,
} from "../../core/store.ts";

/** The part of a store that serves a bucket's calls while Redis does not answer. */
export interface FallbackStore extends Pick<
  Store,
  "draw" | "giveBack" | "settle" | "renew" | "release" | "steer"
> {
  readonly nowUs: () => number;
}

/** What this process knows about a bucket when an outage begins. */
export interface KnownAtOutage {
  /** The bucket's clock, calculated from Redis's replies. Undefined before the first reply. */
  readonly nowUs: (() => number) | undefined;
  /** The number of replicas, from Redis's replies. 0 before the first reply. */
  readonly replicas: number;
  /**
   * Returns the number of running calls of this process that hold a lease from Redis, for one key
   * or for all keys.
   */
  readonly runningOf: (key?: string) => number;
}

/** Returns the time of this process's own clock, in µs. */
function ownUs(): number {
  return Math.floor((performance.timeOrigin + performance.now()) * 1_000);
}

/** Creates a stand-in that lets every call pass immediately, without any limit. */
export function createOpenFallback({ nowUs = ownUs }: Pick<KnownAtOutage, "nowUs">): FallbackStore {
  const generation = nowUs();

  function pass(
    slotRequest: SlotRequest,
    atUs: number,
    most: number,
    { terms }: DrawRequest,
  ): Granted {
    const free = { resetUs: atUs, nextUs: atUs };
    const all = limitsOfCall(terms.limits, slotRequest.scopes);
    return {
      slotsUs: Array.from({ length: Math.min(slotRequest.wanted, most) }, () => atUs),
      run: undefined,
      notBeforeUs: 0,
      positions: slotRequest.scopes.map(() => NO_POSITION),
      bindsAt: 0,
      soonestUs: 0,
      statuses: all.map(({ capacity }) => ({ remaining: capacity, ...free })),
    };
  }

  return {
    nowUs,
    async draw(request) {
      const atUs = nowUs();
      let leases = request.leases;
      const granted = request.slotRequests.map((slotRequest) => {
        // Calls without leases pass as one run. Calls with leases are listed one by one, because
        // each lease needs its own number. The request has reserved `leases` numbers.
        if (!limitsOfCall(request.terms.limits, slotRequest.scopes).some(isLeased))
          return pass(slotRequest, atUs, Infinity, request);
        const passed = pass(slotRequest, atUs, leases, request);
        leases -= passed.slotsUs.length;
        return passed;
      });
      return {
        nowUs: atUs,
        generation,
        version: request.terms.version,
        newText: undefined,
        isOverride: false,
        alive: 1,
        closedUntilUs: 0,
        closedBy: 0,
        spareLeases: 0,
        granted,
        position: NO_POSITION,
        sentAtMs: performance.now(),
      };
    },
    giveBack: async () => undefined,
    settle: async () => undefined,
    renew: async () => [],
    release: async () => [],
    steer: async () => ({ generation: 0, isStale: false }),
  };
}

/**
 * Creates a stand-in that applies this process's share of each limit. It uses a local store that
 * continues the bucket's clock. The local store starts as if it had just granted a burst, because
 * this process does not know which calls Redis has just let pass.
 */
export function createLocalFallback(parts: {
  readonly bucket: string;
  readonly share: number;
  readonly known: KnownAtOutage & { readonly nowUs: () => number };
  readonly openStore: (nowUs: () => number) => Store;
}): FallbackStore {
  const { bucket, share, known } = parts;
  const { nowUs } = known;
  /** The factor by which each limit is reduced to this process's share. */
  const factor = share / known.replicas;
  const store = parts.openStore(nowUs);
  const scaled = new WeakMap<Limit, { readonly limit: Limit | undefined }>();
  let hasDrawn = false;
  let hasPositions = false;

  /** Returns the limit times the factor. Undefined if the result is too small for any call. */
  function scale(limit: Limit): Limit | undefined {
    const found = scaled.get(limit) ?? { limit: partOfLimit(limit, factor) };
    scaled.set(limit, found);
    return found.limit;
  }

  /**
   * Returns the reduced limits. A limit whose share is too small for any call stays unreduced,
   * because `isPossible` rejects the calls that it would limit.
   */
  function limitsOf(limits: readonly Limit[], key?: string): readonly Limit[] {
    return limits.map((limit) => {
      const own = scale(limit) ?? limit;
      if (!isLeased(own)) return own;
      return { ...own, count: Math.max(0, own.count - known.runningOf(key)) };
    });
  }

  function termsOf({ limits, shares, text }: KnownTerms): KnownTerms {
    return { limits: limitsOf(limits), shares, text, version: 0 };
  }

  function isPossible(slotRequest: SlotRequest, terms: KnownTerms): boolean {
    return limitsOfCall(terms.limits, slotRequest.scopes).every((limit, index) => {
      const cost = slotRequest.costs[index]!;
      return cost === 0 || cost <= (scale(limit)?.capacity ?? 0);
    });
  }

  function requestOf(request: DrawRequest, slotRequests: readonly SlotRequest[]): DrawRequest {
    // Until the first draw that is not a try, callers have queue positions from Redis. They are
    // omitted, because the stand-in does not know them.
    const areUnknown = !hasPositions && !request.isTry;
    const position = areUnknown ? NO_POSITION : request.position;
    const own = slotRequests.map((slotRequest) => {
      const scopes = slotRequest.scopes.map((scope) =>
        areUnknown ? { ...scaledScope(scope), position: NO_POSITION } : scaledScope(scope),
      );
      return { ...slotRequest, scopes };
    });
    const drewUs = hasDrawn ? request.drewUs : DREW_ELSEWHERE_US;
    const terms = termsOf(request.terms);
    return { ...request, terms, slotRequests: own, position, drewUs, startsFull: false };
  }

  function scaledScope<Scope extends LimitedKey>(scope: Scope): Scope {
    return { ...scope, limits: limitsOf(scope.limits, scope.key) };
  }

  function scoped<Request extends ScopesRequest>(request: Request): Request {
    const { terms, scopes } = request;
    return { ...request, terms: termsOf(terms), scopes: scopes.map(scaledScope) };
  }

  return {
    nowUs,
    async draw(request): Promise<Drawn> {
      const possible = request.slotRequests.filter((slotRequest) =>
        isPossible(slotRequest, request.terms),
      );
      const refused: Granted = { ...NOTHING, refusal: tooLarge(bucket) };
      if (possible.length === 0) throw refused.refusal;
      const reply = await store.draw(requestOf(request, possible));
      hasDrawn = true;
      hasPositions ||= !request.isTry;
      const grantedTo = new Map(reply.granted.map((granted, index) => [possible[index], granted]));
      const granted = request.slotRequests.map((slotRequest) => {
        const found = grantedTo.get(slotRequest);
        const positions = slotRequest.scopes.map(() => NO_POSITION);
        return found === undefined ? { ...refused, positions } : { ...found, soonestUs: 0 };
      });
      // The caller must not store the stand-in's reduced policy or its pauses, because Redis may be
      // reachable before the pauses end.
      const own = { newText: undefined, closedUntilUs: 0, closedBy: 0, alive: known.replicas };
      return { ...reply, ...own, version: request.terms.version, granted };
    },
    giveBack: (request) =>
      store.giveBack({
        ...request,
        terms: termsOf(request.terms),
        slotRequest: {
          ...request.slotRequest,
          scopes: request.slotRequest.scopes.map(scaledScope),
        },
      }),
    settle: (request) => store.settle(scoped(request)),
    renew: (request) => store.renew(scoped(request)),
    release: (request) => store.release(scoped(request)),
    steer: (request) => {
      const { terms, scope } = request;
      return store.steer({
        ...request,
        terms: termsOf(terms),
        scope: scope && scaledScope(scope),
      });
    },
  };
}

const NOTHING: Granted = {
  slotsUs: [],
  run: undefined,
  notBeforeUs: 0,
  positions: [],
  bindsAt: 0,
  soonestUs: 0,
  statuses: [],
};

function tooLarge(bucket: string): StoreUnavailableError {
  return new StoreUnavailableError(
    `Redis does not answer, so the call was not started: it costs more than this process's share of bucket "${bucket}". ` +
      `Check that Redis runs and that this process can reach it.`,
  );
}
