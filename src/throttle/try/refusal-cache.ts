import type { KeyScope } from "../../core/store.ts";
import { createLru } from "../lru.ts";
import { haveSameLimits, type Group } from "../waiting/group.ts";
import { later, type TryDecision } from "./decision.ts";

/** Refusals that still hold: Redis need not be asked again. */
export interface Refusals {
  /** The refusal that still holds for calls of this group, with its times as of now. */
  find(group: Group): TryDecision | undefined;
  /** Calls of this group were refused just now, and will be for `forMs`; the refusal may name a later time. */
  keep(group: Group, decision: TryDecision, forMs: number): void;
  /** The bucket, or one key, has changed: calls may pass now that were refused. */
  forget(key?: string): void;
}

interface Refusal {
  readonly untilMs: number;
  readonly decision: TryDecision;
  readonly decidedAtMs: number;
  /** The keys with the limits that refused it: another tier may let it pass. */
  readonly scopes: readonly KeyScope[];
}

const MOST_REFUSALS = 10_000;
/** How long a refusal is remembered at most: news of a change may get lost. */
const LONGEST_MEMORY_MS = 10_000;

export function createRefusals(): Refusals {
  const refusals = createLru<Refusal>(MOST_REFUSALS, ({ scopes }, name) => {
    for (const { key } of scopes) unlist(key, name);
  });
  /** By key, so that news of one key, which each settled call brings, do not search all refusals. */
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
