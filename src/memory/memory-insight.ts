import {
  CHANGES_KEPT,
  HISTORY_KEPT_MS,
  HISTORY_STEP_MS,
  type BucketTold,
  type Change,
  type InsightStore,
  type Override,
  type ReplicaFacts,
} from "../core/stores/insight/store.ts";

interface KnownBucket {
  readonly told: Map<string, BucketTold & { readonly replica: string; readonly atMs: number }>;
  readonly history: Map<number, number>;
  declared: string | undefined;
  override: Override | undefined;
  pausedBy: string | undefined;
}

/** What is known of a fleet of one process, in its memory. */
export function createMemoryInsight(nowMs: () => number = Date.now): InsightStore {
  const buckets = new Map<string, KnownBucket>();
  const replicas = new Map<string, ReplicaFacts>();
  const changes: Change[] = [];
  let lastId = 0;

  function known(name: string): KnownBucket {
    const found = buckets.get(name);
    if (found !== undefined) return found;
    const made: KnownBucket = {
      told: new Map(),
      history: new Map(),
      declared: undefined,
      override: undefined,
      pausedBy: undefined,
    };
    buckets.set(name, made);
    return made;
  }

  function count({ history }: KnownBucket, started: number, now: number): void {
    if (started === 0) return;
    const step = Math.floor(now / HISTORY_STEP_MS);
    history.set(step, (history.get(step) ?? 0) + started);
    for (const old of history.keys()) {
      if (old * HISTORY_STEP_MS >= now - HISTORY_KEPT_MS) break;
      history.delete(old);
    }
  }

  return {
    async report({ replica, about, isLast, buckets: reports }) {
      const now = nowMs();
      if (isLast) replicas.delete(replica);
      else replicas.set(replica, { ...about, replica, seenAtMs: now });
      for (const { bucket, state, started, declared } of reports) {
        const found = known(bucket);
        if (isLast) found.told.delete(replica);
        else found.told.set(replica, { ...state, replica, atMs: now });
        found.declared = declared ?? found.declared;
        count(found, started, now);
      }
      const overrides = [...buckets.values()].flatMap(({ override }) => override ?? []);
      return overrides.filter(({ untilMs = Infinity }) => untilMs <= now);
    },
    async bucketNames({ after, limit }) {
      const later = [...buckets.keys()].toSorted().filter((name) => name > after);
      return { names: later.slice(0, limit), errors: [] };
    },
    async bucket(name) {
      const { told, declared, override, pausedBy } = buckets.get(name) ?? {};
      return {
        nowMs: nowMs(),
        told: [...(told?.values() ?? [])],
        declared,
        override,
        pause: changes.find(({ id }) => id === pausedBy),
      };
    },
    async replicas() {
      return [...replicas.values()];
    },
    async history(bucket, { fromMs, untilMs }) {
      const points = [...(buckets.get(bucket)?.history ?? [])].map(([step, started]) => ({
        atMs: step * HISTORY_STEP_MS,
        started,
      }));
      return points.filter(({ atMs }) => atMs + HISTORY_STEP_MS > fromMs && atMs <= untilMs);
    },
    async noteChange(change) {
      lastId += 1;
      const atMs = nowMs();
      const id = `${atMs}-${lastId}`;
      changes.push({ ...change, id, atMs, undoneBy: undefined, failed: undefined });
      if (changes.length > CHANGES_KEPT) changes.shift();
      const { bucket, key, by, reason, forMs, before, after } = change;
      const found = known(bucket);
      if (key !== undefined) return id;
      if (before.pausedForMs !== after.pausedForMs) {
        found.pausedBy = after.pausedForMs > 0 ? id : undefined;
        return id;
      }
      const untilMs = forMs === undefined ? undefined : atMs + forMs;
      const begun = { bucket, id, text: after.text, by, reason, atMs, untilMs };
      found.override = after.isOverride ? begun : undefined;
      return id;
    },
    async amendChange(id, fate) {
      const at = changes.findIndex((change) => change.id === id);
      if (at >= 0) changes[at] = { ...changes[at]!, ...fate };
    },
    async changes({ bucket, before, limit }) {
      const newest = changes.toReversed();
      const from = before === undefined ? 0 : newest.findIndex(({ id }) => id === before) + 1;
      return newest
        .slice(from)
        .filter((change) => bucket === undefined || change.bucket === bucket)
        .slice(0, limit);
    },
    async endOverride({ bucket, id }) {
      const found = buckets.get(bucket);
      if (found?.override?.id === id) found.override = undefined;
    },
  };
}
