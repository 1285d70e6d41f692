import type { Cluster, Redis } from "ioredis";
import { SLOT_SECRET_KEPT_MS } from "../../../core/stores/insight/slots.ts";
import {
  HISTORY_STEP_MS,
  REPLICA_ALIVE_MS,
  type AboutReplica,
  type BucketLook,
  type InsightStore,
  type Point,
  type QueueFacts,
  type WorkerActivity,
} from "../../../core/stores/insight/store.ts";
import {
  LOGS,
  logsOf,
  namesTenant,
  newestFirst,
  type ChangesPage,
  type NewQueueChange,
} from "../../../core/stores/insight/changes.ts";
import type {
  NotedRequest,
  RequestNoted,
  RequestNotes,
} from "../../../core/stores/insight/requests.ts";
import type { Requests } from "../requests/requests.ts";
import {
  fleetBase,
  FLEET,
  insightScripts,
  OUTBOX_STATE,
  readChange,
  RULED,
  RULES,
  valueOf,
} from "../scripts/insight/insight.ts";
import { jobScripts } from "../scripts/queue/jobs.ts";
import { steeringScripts } from "../scripts/queue/steering.ts";
import { bindScripts, runScript } from "../scripts/script.ts";
import { optional } from "../scripts/shape.ts";
import { baseOf, requestNoteKey } from "../scripts/keys.ts";

const HOUR_MS = 3_600_000;
/** The number of changes per read when searching the log for the changes of one bucket. */
const READ_AT_ONCE = 500;
/** The number of buckets that one script reads. Redis needs about a millisecond for them. */
const LOOKED_AT_ONCE = 100;

export function createRedisInsight(
  redis: Redis | Cluster,
  prefix: string,
  requests: Pick<Requests, "send" | "sendOnce">,
): InsightStore {
  const base = fleetBase({ prefix });
  const scripts = bindScripts(redis, { prefix }, insightScripts);
  const send = <T>(run: () => Promise<T>): Promise<T> => requests.send(FLEET, run);
  const sendOnce = <T>(run: () => Promise<T>): Promise<T> => requests.sendOnce(FLEET, run);

  let askedMs: Promise<number> | undefined;

  /** Returns the time of Redis. The reads of one overview share one request. */
  function nowMs(): Promise<number> {
    askedMs ??= readClock().finally(() => {
      askedMs = undefined;
    });
    return askedMs;
  }

  async function readClock(): Promise<number> {
    return Math.floor((await runScript(redis, jobScripts.clock, { prefix, queue: FLEET })) / 1_000);
  }

  /** Reads the newest entries of several logs, each with its result. */
  async function readLogs(asked: ChangesPage) {
    const { bucket, queue, before, limit } = asked;
    const page = { of: bucket ?? queue, before, limit };
    const logs = logsOf(asked).map((log) => readLog(`${base}:changes${log}`, page));
    const entries = (await Promise.all(logs)).flat();
    const found = entries.toSorted(([a], [b]) => newestFirst(a, b)).slice(0, limit);
    if (found.length === 0) return [];
    const fates = await redis.mget(found.map(([id]) => `${base}:fate:${id}`));
    return found.map((entry, at) => readChange(entry, fates[at]));
  }

  function look(buckets: readonly string[], areHere: boolean) {
    return send(() => scripts.look({ buckets, areHere }));
  }

  async function readLog(key: string, { of, before, limit }: LogPage): Promise<StreamEntry[]> {
    const found: StreamEntry[] = [];
    let end = before === undefined ? "+" : `(${before}`;
    while (found.length < limit) {
      const page = await redis.xrevrange(key, end, "-", "COUNT", READ_AT_ONCE);
      for (const entry of page) {
        const isMeant = of === undefined || valueOf(entry[1], "bucket") === of;
        if (isMeant && found.length < limit) found.push(entry);
      }
      if (page.length < READ_AT_ONCE) break;
      end = `(${page.at(-1)![0]}`;
    }
    return found;
  }

  /** Returns the workers of a queue that `queue.status()` counts as alive. */
  async function liveOf(queue: string, atMs: number): Promise<string[]> {
    const found = await redis.hgetall(`${baseOf({ prefix, queue })}workers:live`);
    const live = Object.entries(found).filter(([, until]) => Number.parseInt(until, 10) > atMs);
    return live.map(([worker]) => worker);
  }

  return {
    ...createRequestNotes(redis, prefix, requests),
    slotSecret: (own) =>
      send(async () => {
        const key = `${base}:slot-secret`;
        await redis.set(key, own, "PX", SLOT_SECRET_KEPT_MS, "NX");
        return (await redis.get(key)) ?? own;
      }),
    queues: ({ after, limit }) =>
      send(async () => {
        const from = after === "" ? "-" : `(${after}`;
        const names = await redis.zrangebylex(`${base}:queues`, from, "+", "LIMIT", 0, limit);
        const texts = names.length === 0 ? [] : await redis.hmget(`${base}:of-queues`, ...names);
        const queues = names.flatMap((name, at) => readQueue(name, texts[at]) ?? []);
        return { queues, errors: [] };
      }),
    queue: (name) => send(async () => readQueue(name, await redis.hget(`${base}:of-queues`, name))),
    workers: () =>
      send(async () => {
        const sinceMs = (await nowMs()) - REPLICA_ALIVE_MS;
        const [alive, reports] = await Promise.all([
          redis.zrangebyscore(`${base}:replicas`, sinceMs, "+inf"),
          redis.hgetall(`${base}:workers`),
        ]);
        return alive.flatMap((replica) => {
          const text = reports[replica];
          if (text === undefined) return [];
          return (JSON.parse(text) as WorkerActivity[]).map((worker) => ({ ...worker, replica }));
        });
      }),
    liveWorkers: async (queues) => {
      if (queues.length === 0) return [];
      return send(async () => {
        const atMs = await nowMs();
        const live = await Promise.all(queues.map((queue) => liveOf(queue, atMs)));
        return live.flat();
      });
    },
    reportOutbox: (report) => sendOnce(() => scripts.reportOutbox(report)),
    outboxes: () =>
      send(async () => {
        const [atMs, states, moved] = await Promise.all([
          nowMs(),
          redis.hgetall(`${base}:outboxes`),
          redis.hgetall(`${base}:outboxes-moved`),
        ]);
        return Object.entries(states).map(([outbox, stored]) => {
          const { atMs: reportedAtMs, state } = OUTBOX_STATE.read(stored);
          const reportedAgoMs = Math.max(0, atMs - reportedAtMs);
          return { ...state, outbox, moved: Number(moved[outbox] ?? 0), reportedAgoMs };
        });
      }),
    report: (report) =>
      sendOnce(async () => {
        const { queues, workers } = report;
        const isOfQueues = queues.length > 0 || workers !== undefined;
        const [reported] = await Promise.all([
          scripts.reportReplica(report),
          isOfQueues ? scripts.reportQueues(report) : undefined,
        ]);
        return reported;
      }),
    bucketNames: ({ after, limit }) =>
      send(async () => {
        const from = after === "" ? "-" : `(${after}`;
        const names = await redis.zrangebylex(`${base}:names`, from, "+", "LIMIT", 0, limit);
        return { names, errors: [] };
      }),
    async bucket(name) {
      const [found] = await look([name], false);
      return found!.facts;
    },
    async looks(names) {
      const found = new Map<string, BucketLook>();
      const groups = Array.from({ length: Math.ceil(names.length / LOOKED_AT_ONCE) }, (_, at) =>
        names.slice(at * LOOKED_AT_ONCE, (at + 1) * LOOKED_AT_ONCE),
      );
      const looking = groups.map(async (group) => {
        const looked = await look(group, !redis.isCluster);
        for (const [at, name] of group.entries()) found.set(name, looked[at]!);
      });
      await Promise.all(looking);
      return found;
    },
    offerRules: (offer) => send(() => scripts.offerRules(offer)),
    rules: () => send(async () => optional(RULES).read(await redis.get(`${base}:rules`))),
    noteRules: (note) => send(() => scripts.noteRules(note)),
    rulesApplied: (rules) => send(() => scripts.rulesApplied(rules)),
    ruledNames: () => send(() => redis.hkeys(`${base}:rules:texts`)),
    ruledOf: (names) =>
      send(async () => {
        const found = await redis.hmget(`${base}:rules:texts`, ...names);
        return found.map((text) => optional(RULED).read(text));
      }),
    declaredOf: (buckets) =>
      send(async () => {
        if (buckets.length === 0) return [];
        const found = await redis.hmget(`${base}:declared`, ...buckets);
        return found.map((text) => text ?? undefined);
      }),
    declared: (bucket) =>
      send(async () => (await redis.hget(`${base}:declared`, bucket)) ?? undefined),
    replicas: () =>
      send(async () => {
        const sinceMs = (await nowMs()) - REPLICA_ALIVE_MS;
        const found = await redis.zrangebyscore(`${base}:replicas`, sinceMs, "+inf", "WITHSCORES");
        const names = found.filter((_, at) => at % 2 === 0);
        if (names.length === 0) return [];
        const texts = await redis.mget(names.map((name) => `${base}:replica:${name}`));
        return names.flatMap((replica, at) => {
          const text = texts[at];
          if (text === null || text === undefined) return [];
          const seenAtMs = Number(found[at * 2 + 1]);
          return [{ ...(JSON.parse(text) as AboutReplica), replica, seenAtMs }];
        });
      }),
    history: (bucket, { fromMs, untilMs }) =>
      send(async () => {
        const first = Math.floor(fromMs / HOUR_MS);
        const count = Math.max(0, Math.floor(untilMs / HOUR_MS) - first + 1);
        const hours = Array.from({ length: count }, (_, at) => first + at);
        const read = (log: string): Promise<Record<string, string>[]> =>
          Promise.all(hours.map((hour) => redis.hgetall(`${base}:${log}:${bucket}:${hour}`)));
        const [found, waits] = await Promise.all([read("history"), read("waits")]);
        const points = hours.flatMap((hour, at) =>
          pointsOf(found[at]!, waits[at]!, hour * HOUR_MS),
        );
        return points
          .filter(({ atMs }) => atMs + HISTORY_STEP_MS > fromMs && atMs <= untilMs)
          .toSorted((a, b) => a.atMs - b.atMs);
      }),
    // This request is sent only once: resending it after a lost reply would record the change
    // twice.
    noteChange: (change) => sendOnce(() => scripts.noteChange({ change })),
    amendChange: ({ id }, fate) => send(() => scripts.amendChange({ id, fate })),
    changes: ((page: ChangesPage) => send(() => readLogs(page))) as InsightStore["changes"],
    // This request is sent only once, because it is repeated twice a second anyway.
    settingsByHand: (queue) =>
      sendOnce(() => runScript(redis, steeringScripts.byHand, { prefix, queue })),
    forgetTenant: ({ queue, tenant }) =>
      send(async () => {
        for (const log of LOGS.filter((each) => each !== ":rules")) {
          const key = `${base}:changes${log}`;
          const all = await readLog(key, { of: queue, before: undefined, limit: Infinity });
          const ids = all
            .filter(([, fields]) => namesTenant(noted(fields), tenant))
            .map(([id]) => id);
          if (ids.length === 0) continue;
          await redis.unlink(ids.map((id) => `${base}:fate:${id}`));
          await redis.xdel(key, ...ids);
        }
      }),
    confirmChange: (made) => send(() => scripts.confirmChange(made)),
    endOverride: (override) => send(() => scripts.endOverride(override)),
  };
}

/** Reads a recorded change of a queue or of its bucket. */
function noted(fields: readonly string[]): Partial<NewQueueChange> {
  return JSON.parse(valueOf(fields, "change")) as Partial<NewQueueChange>;
}

type StreamEntry = [id: string, fields: string[]];

/** Selects the newest entries before `before`: of one bucket, of one queue, or of all. */
interface LogPage {
  readonly of: string | undefined;
  readonly before: string | undefined;
  readonly limit: number;
}

/**
 * Returns the time steps of one hour. In the stored counts, the fields for refusals have an "r"
 * before the step number.
 */
function pointsOf(counts: Counts, waits: Counts, hourMs: number): Point[] {
  const counted = Object.keys(counts).map((field) => field.replace("r", ""));
  return [...new Set([...counted, ...Object.keys(waits)])].map((step) => ({
    atMs: hourMs + Number(step) * HISTORY_STEP_MS,
    started: Number(counts[step] ?? 0),
    refused: Number(counts[`r${step}`] ?? 0),
    // The stored text has hundredths of a caller, by rank: "12,,300,".
    waiting: waits[step]?.split(",").map((sum) => Number(sum) / 100) ?? [],
  }));
}

type Counts = Readonly<Record<string, string>>;

/** Stores requests, to detect repeated ones: see `core/stores/insight/requests.ts`. */
function createRequestNotes(
  redis: Redis | Cluster,
  prefix: string,
  requests: Pick<Requests, "send">,
): RequestNotes {
  const keyOf = ({ queue, name }: NotedRequest): string => requestNoteKey(prefix, queue, name);

  async function note(request: NotedRequest, keptMs: number): Promise<RequestNoted> {
    const key = keyOf(request);
    const isFirst = (await redis.set(key, request.asked, "PX", keptMs, "NX")) === "OK";
    if (isFirst) return "first";
    const asked = await redis.get(key);
    if (asked !== null && asked !== request.asked) return "other";
    const isKept = asked !== null && (await redis.pexpire(key, keptMs)) === 1;
    // The stored request may have expired between the two commands. In that case it is stored
    // again.
    return isKept ? "same" : note(request, keptMs);
  }

  return {
    noteRequest: (request, keptMs) => requests.send(request.queue, () => note(request, keptMs)),
    forgetRequest: (request) =>
      requests.send(request.queue, async () => {
        const key = keyOf(request);
        if ((await redis.get(key)) === request.asked) await redis.del(key);
      }),
  };
}

function readQueue(name: string, text: string | null | undefined): QueueFacts | undefined {
  if (text === null || text === undefined) return undefined;
  return { ...(JSON.parse(text) as Omit<QueueFacts, "name">), name };
}
