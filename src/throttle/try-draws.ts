import { LRUCache } from "lru-cache";
import { formatLimit } from "../core/format-limit.ts";
import type { Limit } from "../core/limits/limit.ts";
import { ruleOf } from "../core/limits/registry.ts";
import {
  NO_PLACE,
  type Drawn,
  type DrawRequest,
  type Standing,
  type Store,
} from "../core/store.ts";
import type { Decision, LimitDecision } from "./decision.ts";
import type { TryOptions } from "./draw-options.ts";
import type { Group } from "./group.ts";
import type { Knowledge, PolicyNews } from "./known-terms.ts";

/** A decision, and the slot that it came with. */
interface Tried {
  readonly decision: Decision;
  readonly group: Group;
  readonly slot:
    | { readonly slotUs: number; readonly lease: number; readonly generation: number }
    | undefined;
}

/** Asks at once or not at all, for all who ask in one tick together. */
export interface TryDraws {
  ask(options: TryOptions): Promise<Tried>;
  /** Something has changed: what was refused may pass now. */
  forget(): void;
}

interface Batch {
  /** What one of them asked for; they all cost the same. */
  readonly options: TryOptions;
  readonly askers: { resolve: (tried: Tried) => void; reject: (reason: unknown) => void }[];
}

interface Refusal {
  readonly untilMs: number;
  readonly decision: Decision;
  readonly decidedAtMs: number;
}

const MOST_REFUSALS = 10_000;
/** However long a refusal holds, it is asked about again: news of a change may have been lost. */
const LONGEST_MEMORY_MS = 10_000;
/** When a lease comes free nobody can tell; a caller may well ask again so much later. */
const UNKNOWN_MS = 1_000;

export function createTryDraws(parts: {
  readonly store: Store;
  readonly bucket: string;
  readonly asker: string;
  readonly known: Knowledge;
  readonly takeLeases: (count: number) => number;
  readonly keepLease: (lease: number, key: string | undefined, atMs: number) => void;
  /** The group that a call belongs to, by the policy that is known. */
  readonly groupOf: (options: TryOptions) => Group;
  /** Another policy is in force. */
  readonly learn: (news: PolicyNews) => void;
}): TryDraws {
  const { store, bucket, asker, known } = parts;
  const refusals = new LRUCache<string, Refusal>({ max: MOST_REFUSALS });
  const gathering = new Map<string, Batch>();
  const asking = new Set<string>();

  function ask(options: TryOptions): Promise<Tried> {
    const group = parts.groupOf(options);
    const refusal = refusals.get(group.name);
    if (refusal !== undefined) {
      const decision = stillRefused(refusal);
      if (decision !== undefined) return Promise.resolve({ decision, group, slot: undefined });
      refusals.delete(group.name);
    }
    return new Promise((resolve, reject) => {
      const batch = gathering.get(group.name) ?? { options, askers: [] };
      batch.askers.push({ resolve, reject });
      if (batch.askers.length > 1) return;
      gathering.set(group.name, batch);
      // While one is under way, those who come are gathered for the next.
      if (!asking.has(group.name)) queueMicrotask(() => void send(group.name));
    });
  }

  async function send(name: string): Promise<void> {
    const batch = gathering.get(name);
    if (batch === undefined) return;
    gathering.delete(name);
    asking.add(name);
    try {
      await settle(batch, await drawFor(batch.options, batch.askers.length));
    } catch (error) {
      for (const { reject } of batch.askers) reject(error);
    } finally {
      asking.delete(name);
    }
    if (gathering.has(name)) void send(name);
  }

  async function drawFor(
    options: TryOptions,
    wanted: number,
  ): Promise<{ reply: Drawn; group: Group; lease: number }> {
    for (;;) {
      const group = parts.groupOf(options);
      const lease = parts.takeLeases(wanted);
      const reply = await store.draw(request(group, wanted, lease));
      if (reply.newText === undefined) {
        known.confirm(reply.version);
        return { reply, group, lease };
      }
      // It costs and binds differently under the policy that is in force.
      const { newText: text, version, isOverride } = reply;
      parts.learn({ text, version, isOverride });
    }
  }

  function request(
    { name, key, keyLimits, costs }: Group,
    wanted: number,
    lease: number,
  ): DrawRequest {
    const wish = { name, key, keyLimits, costs, wanted, rank: 0, place: NO_PLACE };
    const common = { bucket, asker, terms: known.terms, place: NO_PLACE, drewUs: 0 };
    return { ...common, wishes: [wish], horizonUs: 0, lease, isTry: true };
  }

  async function settle(
    { askers }: Batch,
    { reply, group, lease }: { reply: Drawn; group: Group; lease: number },
  ): Promise<void> {
    const { slotsUs, run, notBeforeUs } = reply.granted[0]!;
    const count = slotsUs.length + (run?.count ?? 0);
    const limits = [...known.terms.limits, ...group.keyLimits];
    const hasLeases = limits.some(({ kind }) => !ruleOf(kind).isRate);
    for (const [index, { resolve }] of askers.slice(0, count).entries()) {
      const own = hasLeases ? lease + index : 0;
      if (own > 0) parts.keepLease(own, group.key, reply.sentAtMs);
      const slot = {
        slotUs: slotsUs[index] ?? reply.nowUs,
        lease: own,
        generation: reply.generation,
      };
      // Each sees what those behind it have not drawn yet.
      const decision = decisionOf(reply, group, limits, { after: count - 1 - index });
      resolve({ decision, group, slot });
    }
    if (count === askers.length) return;
    const decision = decisionOf(reply, group, limits, { notBeforeUs });
    // A lease may come free at any time: nobody can tell when that refusal ends.
    const canWait = notBeforeUs !== Infinity && decision.retryAfterMs > 0;
    const nowMs = performance.now();
    if (canWait) {
      refusals.set(group.name, {
        untilMs: nowMs + Math.min(decision.retryAfterMs, LONGEST_MEMORY_MS),
        decision,
        decidedAtMs: nowMs,
      });
    }
    for (const { resolve } of askers.slice(count)) resolve({ decision, group, slot: undefined });
  }

  function decisionOf(
    { nowUs, standings, granted }: Drawn,
    { costs }: Group,
    limits: readonly Limit[],
    outcome: { readonly after: number } | { readonly notBeforeUs: number },
  ): Decision {
    const after = "after" in outcome ? outcome.after : 0;
    const each = limits.map((limit, index) =>
      limitDecision(limit, standings[index]!, {
        nowUs,
        added: after * costs[index]!,
        scope: index < known.terms.limits.length ? "bucket" : "key",
      }),
    );
    const remaining = Math.min(...each.map((limit) => limit.remaining));
    const resetAfterMs = Math.max(0, ...each.map((limit) => limit.resetAfterMs));
    if ("after" in outcome) {
      const common = { remaining, resetAfterMs, limits: each };
      return { allowed: true, retryAfterMs: 0, limitedBy: undefined, ...common };
    }
    const { bindsAt } = granted[0]!;
    const waitMs = Math.ceil(Math.max(0, outcome.notBeforeUs - nowUs) / 1_000);
    const untilMs = outcome.notBeforeUs === Infinity ? UNKNOWN_MS : waitMs;
    const retryAfterMs = Math.max(1, untilMs, ...each.map((limit) => limit.retryAfterMs));
    const binding = limits[bindsAt - 1];
    const limitedBy =
      binding === undefined
        ? bindsAt === -1
          ? "a cooldown or pause"
          : "the line"
        : formatLimit(binding);
    return { allowed: false, remaining, resetAfterMs, retryAfterMs, limitedBy, limits: each };
  }

  return { ask, forget: () => refusals.clear() };
}

function limitDecision(
  limit: Limit,
  { remaining, resetUs, nextUs }: Standing,
  { nowUs, added, scope }: { nowUs: number; added: number; scope: "bucket" | "key" },
): LimitDecision {
  const { unit, capacity, count, periodUs, kind } = limit;
  const { isRate } = ruleOf(kind);
  const untilMs = (us: number): number =>
    us === Infinity ? UNKNOWN_MS : Math.max(0, Math.ceil((us - nowUs) / 1_000));
  return {
    name: formatLimit(limit),
    unit,
    scope,
    capacity,
    windowMs: isRate ? Math.ceil((capacity * periodUs) / count / 1_000) : undefined,
    remaining: Math.min(capacity, remaining + added),
    resetAfterMs: untilMs(resetUs),
    retryAfterMs: untilMs(nextUs),
  };
}

/** The same refusal, some time later; undefined if it may pass by now. */
function stillRefused({ untilMs, decision, decidedAtMs }: Refusal): Decision | undefined {
  const nowMs = performance.now();
  if (nowMs >= untilMs) return undefined;
  const passedMs = Math.floor(nowMs - decidedAtMs);
  const less = (ms: number): number => Math.max(0, ms - passedMs);
  return {
    ...decision,
    retryAfterMs: Math.max(1, less(decision.retryAfterMs)),
    resetAfterMs: less(decision.resetAfterMs),
    limits: decision.limits.map((limit) => ({
      ...limit,
      resetAfterMs: less(limit.resetAfterMs),
      retryAfterMs: less(limit.retryAfterMs),
    })),
  };
}
