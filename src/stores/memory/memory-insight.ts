import {
  CHANGES_KEPT,
  HISTORY_KEPT_MS,
  HISTORY_STEP_MS,
  UNCONFIRMED_MS,
  type BucketReport,
  type BucketActivity,
  type Point,
  type InsightStore,
  type OutboxFacts,
  type Override,
  type QueueFacts,
  type ReplicaFacts,
  type WorkerActivity,
} from "../../core/stores/insight/store.ts";
import {
  logOf,
  LOGS,
  logsOf,
  namesTenant,
  newestFirst,
  type ChangesPage,
  type KeptBucketChange,
  type KeptChange,
} from "../../core/stores/insight/changes.ts";
import { settingOf } from "../../core/stores/insight/rules.ts";
import { createMemoryRules } from "./memory-rules.ts";

interface KnownBucket {
  readonly reports: Map<
    string,
    BucketActivity & { readonly replica: string; readonly atMs: number }
  >;
  readonly history: Map<number, Omit<Point, "atMs">>;
  declared: string | undefined;
  refusals: number;
  /** The active overrides by change id, the oldest first. */
  readonly overrides: Map<string, Override>;
  paused: { readonly generation: number; readonly id: string | undefined } | undefined;
}

const NO_POINT = { started: 0, refused: 0, waiting: [] as readonly number[] };

/** Stores reports, changes and rules in this process's memory, for a fleet of only this process. */
export function createMemoryInsight(nowMs: () => number = Date.now): InsightStore {
  const buckets = new Map<string, KnownBucket>();
  const replicas = new Map<string, ReplicaFacts>();
  const queues = new Map<string, QueueFacts>();
  const outboxes = new Map<
    string,
    Omit<OutboxFacts, "reportedAgoMs"> & { readonly atMs: number }
  >();
  const workersOf = new Map<string, readonly WorkerActivity[]>();
  const logs = new Map<string, KeptChange[]>(LOGS.map((log) => [log, []]));
  const { ruled, ...rules } = createMemoryRules();
  const asks = new Map<string, { readonly asked: string; readonly untilMs: number }>();
  let slotSecret: string | undefined;
  let lastId = 0;

  function known(name: string): KnownBucket {
    const found = buckets.get(name);
    if (found !== undefined) return found;
    const made: KnownBucket = {
      reports: new Map(),
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
      // All entries expire after the same time, so the oldest expire first.
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
        if (isLast) found.reports.delete(replica);
        else found.reports.set(replica, { ...state, replica, atMs: now });
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
    async reportOutbox({ outbox, state, moved }) {
      const movedBefore = outboxes.get(outbox)?.moved ?? 0;
      outboxes.set(outbox, { ...state, outbox, moved: movedBefore + moved, atMs: nowMs() });
    },
    async outboxes() {
      const now = nowMs();
      return [...outboxes.values()].map(({ atMs, ...facts }) => ({
        ...facts,
        reportedAgoMs: now - atMs,
      }));
    },
    async workers() {
      return [...workersOf].flatMap(([replica, reports]) =>
        reports.map((worker) => ({ ...worker, replica })),
      );
    },
    async bucket(name) {
      const { reports, overrides, paused, refusals = 0 } = buckets.get(name) ?? {};
      return {
        nowMs: nowMs(),
        refusals,
        reports: [...(reports?.values() ?? [])],
        rules: ruled.get(name),
        overrides: [...(overrides?.values() ?? [])],
        pause: logs.get("")!.find((each) => each.id === paused?.id) as KeptBucketChange | undefined,
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
      const log = logs.get(logOf(change))!;
      log.push({ ...change, id, atMs, undoneBy: undefined, failed: undefined } as KeptChange);
      if (log.length > CHANGES_KEPT) log.shift();
      if (change.bucket === undefined) return id;
      const { bucket, subject, by, reason, forMs, after } = change;
      const { overrides } = known(bucket);
      if (subject !== "policy" || after.source !== "override") return id;
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
      for (const log of logs.values()) {
        const at = log.findIndex((change) => change.id === id);
        if (at >= 0) log[at] = { ...log[at]!, ...fate } as KeptChange;
      }
    },
    changes: (async (page: ChangesPage) => {
      const { bucket, queue, before, limit } = page;
      const of = bucket ?? queue;
      const isMeant = (each: KeptChange): boolean =>
        (of === undefined || of === (each.bucket ?? each.queue)) &&
        (before === undefined || newestFirst(each.id, before) > 0);
      const meant = logsOf(page).flatMap((log) => logs.get(log)!.filter(isMeant));
      return meant.toSorted((a, b) => newestFirst(a.id, b.id)).slice(0, limit);
    }) as InsightStore["changes"],
    async settingsByHand() {
      // Returns nothing, because there are no queues without Redis.
      return { generation: 0, settings: [] };
    },
    async forgetTenant({ queue, tenant }) {
      for (const [name, log] of logs) {
        logs.set(
          name,
          log.filter((each) => each.queue !== queue || !namesTenant(each, tenant)),
        );
      }
    },
    async endOverride({ bucket, id }) {
      buckets.get(bucket)?.overrides.delete(id);
    },
  };
}
