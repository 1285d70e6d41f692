import {
  CHANGES_KEPT,
  HISTORY_KEPT_MS,
  HISTORY_STEP_MS,
  UNCONFIRMED_MS,
  type BucketReport,
  type BucketTold,
  type Change,
  type Point,
  type InsightStore,
  type Override,
  type QueueFacts,
  type ReplicaFacts,
  type WorkerTold,
} from "../../core/stores/insight/store.ts";
import { namesTenant, type Steering } from "../../core/stores/insight/steering.ts";
import { settingOf } from "../../core/stores/insight/rules.ts";
import { createMemoryRules } from "./memory-rules.ts";

interface KnownBucket {
  readonly told: Map<string, BucketTold & { readonly replica: string; readonly atMs: number }>;
  readonly history: Map<number, Omit<Point, "atMs">>;
  declared: string | undefined;
  refusals: number;
  /** By the ids of their changes, the oldest first. */
  readonly overrides: Map<string, Override>;
  paused: { readonly generation: number; readonly id: string | undefined } | undefined;
}

const NO_POINT = { started: 0, refused: 0, waiting: [] as readonly number[] };

/** What is known of a fleet of one process, in its memory. */
export function createMemoryInsight(nowMs: () => number = Date.now): InsightStore {
  const buckets = new Map<string, KnownBucket>();
  const replicas = new Map<string, ReplicaFacts>();
  const queues = new Map<string, QueueFacts>();
  const workersOf = new Map<string, readonly WorkerTold[]>();
  const changes: Change[] = [];
  const steerings: Steering[] = [];
  const noted = { byHand: 0, byRules: 0 };
  const { ruled, ...rules } = createMemoryRules();
  const asks = new Map<string, { readonly asked: string; readonly untilMs: number }>();
  let slotSecret: string | undefined;
  let lastId = 0;

  function known(name: string): KnownBucket {
    const found = buckets.get(name);
    if (found !== undefined) return found;
    const made: KnownBucket = {
      told: new Map(),
      history: new Map(),
      declared: undefined,
      refusals: 0,
      overrides: new Map(),
      paused: undefined,
    };
    buckets.set(name, made);
    return made;
  }

  function count(
    { history }: KnownBucket,
    { started, refused, waited }: Pick<BucketReport, "started" | "refused" | "waited">,
    now: number,
  ): void {
    const step = Math.floor(now / HISTORY_STEP_MS);
    const add = (to: number, more: Omit<Point, "atMs">): void => {
      const before = history.get(to) ?? NO_POINT;
      const longer = before.waiting.length > 0 ? before.waiting : more.waiting;
      history.set(to, {
        started: before.started + more.started,
        refused: before.refused + more.refused,
        waiting: longer.map((_, rank) => (before.waiting[rank] ?? 0) + (more.waiting[rank] ?? 0)),
      });
    };
    if (waited !== undefined) {
      let leftMs = waited.forMs;
      for (let back = 0, partMs = now % HISTORY_STEP_MS; back < 4; back++) {
        const ms = Math.min(leftMs, partMs);
        const waiting = waited.callers.map((count) => (count * ms) / HISTORY_STEP_MS);
        if (ms > 0) add(step - back, { ...NO_POINT, waiting });
        leftMs -= ms;
        partMs = HISTORY_STEP_MS;
      }
    }
    if (started + refused === 0) return;
    add(step, { started, refused, waiting: [] });
    for (const old of history.keys()) {
      if (old * HISTORY_STEP_MS >= now - HISTORY_KEPT_MS) break;
      history.delete(old);
    }
  }

  return {
    ...rules,
    async noteRequest({ queue, name, asked }, keptMs) {
      const now = nowMs();
      // The oldest stand first: all are kept for as long.
      for (const [known, { untilMs }] of asks) {
        if (untilMs > now) break;
        asks.delete(known);
      }
      const of = `${queue}:${name}`;
      const first = asks.get(of);
      if (first !== undefined && first.asked !== asked) return "other";
      asks.delete(of);
      asks.set(of, { asked, untilMs: now + keptMs });
      return first === undefined ? "first" : "same";
    },
    async forgetRequest({ queue, name, asked }) {
      const of = `${queue}:${name}`;
      if (asks.get(of)?.asked === asked) asks.delete(of);
    },
    slotSecret: async (own) => (slotSecret ??= own),
    async declaredOf(names) {
      return names.map((name) => buckets.get(name)?.declared);
    },
    async report({ replica, about, isLast, buckets: reports, queues: opened, workers }) {
      const now = nowMs();
      const isNew = !isLast && !replicas.has(replica);
      if (isLast) replicas.delete(replica);
      else replicas.set(replica, { ...about, replica, seenAtMs: now });
      for (const { bucket, state, started, refused, declared, waited } of reports) {
        const found = known(bucket);
        if (isLast) found.told.delete(replica);
        else found.told.set(replica, { ...state, replica, atMs: now });
        found.declared = declared ?? found.declared;
        found.refusals += refused;
        count(found, { started, refused, waited }, now);
      }
      for (const queue of opened) queues.set(queue.name, queue);
      if (workers !== undefined) workersOf.set(replica, workers);
      if (isLast) {
        workersOf.delete(replica);
        return { isNew, over: [] };
      }
      const overrides = [...buckets.values()].flatMap((found) => [...found.overrides.values()]);
      return { isNew, over: overrides.filter(({ untilMs = Infinity }) => untilMs <= now) };
    },
    async bucketNames({ after, limit }) {
      const ofRules = [...ruled.keys()].filter((name) => settingOf(name) === undefined);
      const later = [...new Set([...buckets.keys(), ...ofRules])]
        .toSorted()
        .filter((name) => name > after);
      return { names: later.slice(0, limit), errors: [] };
    },
    async queues({ after, limit }) {
      const names = [...queues.keys()].toSorted().filter((name) => name > after);
      return { queues: names.slice(0, limit).map((name) => queues.get(name)!), errors: [] };
    },
    async queue(name) {
      return queues.get(name);
    },
    async liveWorkers() {
      return [...workersOf.values()].flat().map(({ worker }) => worker);
    },
    async workers() {
      return [...workersOf].flatMap(([replica, told]) =>
        told.map((worker) => ({ ...worker, replica })),
      );
    },
    async bucket(name) {
      const { told, overrides, paused, refusals = 0 } = buckets.get(name) ?? {};
      return {
        nowMs: nowMs(),
        refusals,
        told: [...(told?.values() ?? [])],
        rules: ruled.get(name),
        overrides: [...(overrides?.values() ?? [])],
        pause: changes.find(({ id }) => id === paused?.id),
        hasCalls: buckets.has(name),
      };
    },
    async declared(bucket) {
      return buckets.get(bucket)?.declared;
    },
    async replicas() {
      return [...replicas.values()];
    },
    async history(bucket, { fromMs, untilMs }) {
      const points = [...(buckets.get(bucket)?.history ?? [])].map(([step, counts]) => ({
        atMs: step * HISTORY_STEP_MS,
        ...counts,
      }));
      return points.filter(({ atMs }) => atMs + HISTORY_STEP_MS > fromMs && atMs <= untilMs);
    },
    async noteChange(change) {
      lastId += 1;
      const atMs = nowMs();
      const id = `${atMs}-${lastId}`;
      changes.push({ ...change, id, atMs, undoneBy: undefined, failed: undefined });
      // What rules change does not push out what was changed by hand.
      const isRuled = change.action === "rules";
      if ((noted[isRuled ? "byRules" : "byHand"] += 1) > CHANGES_KEPT) {
        const oldest = changes.findIndex(({ action }) => (action === "rules") === isRuled);
        changes.splice(oldest, 1);
      }
      const { bucket, subject, by, reason, forMs, after } = change;
      const { overrides } = known(bucket);
      if (subject === "pause" || after.source !== "override") return id;
      const untilMs = forMs === undefined ? undefined : atMs + forMs;
      const { text } = after;
      overrides.set(id, { bucket, id, text, by, reason, atMs, untilMs, generation: undefined });
      return id;
    },
    async confirmChange({ id, change: { bucket, subject, after }, generation }) {
      const found = known(bucket);
      if (subject === "pause") {
        if ((found.paused?.generation ?? 0) > generation) return;
        found.paused = { generation, id: after.pausedForMs > 0 ? id : undefined };
        return;
      }
      const { overrides } = found;
      const own = overrides.get(id);
      const others = [...overrides.values()].filter((each) => each !== own);
      const isOver = others.some((each) => (each.generation ?? 0) > generation);
      const madeMs = Number(id.split("-", 1)[0]);
      for (const { id: other, atMs, generation: its } of others) {
        const isBefore = its === undefined ? atMs < madeMs - UNCONFIRMED_MS : its <= generation;
        if (isBefore) overrides.delete(other);
      }
      if (own === undefined) return;
      if (isOver) overrides.delete(id);
      else overrides.set(id, { ...own, generation });
    },
    async amendChange({ id }, fate) {
      const at = changes.findIndex((change) => change.id === id);
      if (at >= 0) changes[at] = { ...changes[at]!, ...fate };
    },
    async changes({ bucket, ...page }) {
      return newestOf(changes, page, (each) => bucket === undefined || each.bucket === bucket);
    },
    async noteSteering(change) {
      lastId += 1;
      const atMs = nowMs();
      const id = `${atMs}-${lastId}`;
      const none = { jobs: undefined, undoneBy: undefined, failed: undefined };
      steerings.push({ ...change, ...none, id, atMs });
      if (steerings.length > CHANGES_KEPT) steerings.shift();
      return id;
    },
    async settingsByHand() {
      // There are no queues without Redis.
      return { generation: 0, settings: [] };
    },
    async amendSteering({ id }, fate) {
      const at = steerings.findIndex((each) => each.id === id);
      if (at >= 0) steerings[at] = { ...steerings[at]!, ...fate };
    },
    async forgetTenant({ queue, tenant }) {
      const kept = steerings.filter((each) => each.queue !== queue || !namesTenant(each, tenant));
      steerings.splice(0, steerings.length, ...kept);
    },
    async steerings({ queue, ...page }) {
      return newestOf(steerings, page, (each) => queue === undefined || each.queue === queue);
    },
    async endOverride({ bucket, id }) {
      buckets.get(bucket)?.overrides.delete(id);
    },
  };
}

/** A page of a log, the newest first. */
function newestOf<Entry extends { readonly id: string }>(
  log: readonly Entry[],
  { before, limit }: { readonly before: string | undefined; readonly limit: number },
  isMeant: (entry: Entry) => boolean,
): Entry[] {
  const newest = log.toReversed();
  const from = before === undefined ? 0 : newest.findIndex(({ id }) => id === before) + 1;
  return newest.slice(from).filter(isMeant).slice(0, limit);
}
