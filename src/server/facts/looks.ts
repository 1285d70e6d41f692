/** `GET /api/v1/…`: what an operator asks. */
import type { FastifyInstance } from "fastify";
import type { LoggedChange } from "../../insight/overview.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import type { BucketBrief, History } from "../../throttle/bucket/facts/status.ts";
import { accessOf, assertBucket, assertQueue } from "../access/access.ts";
import { bucketNamed } from "./named.ts";
import {
  answer,
  BRIEF,
  LOGGED_CHANGE,
  list,
  object,
  PROBLEM,
  REPLICA,
  STATUS,
  UNREACHABLE,
} from "./schemas.ts";
import type { Snapshots } from "./snapshot.ts";

const VIEW = { needs: "view" } as const;
const OF_BUCKET = { needs: "view", bucket: "bucket" } as const;
const NAMED = object({ bucket: { type: "string", maxLength: 1_024 } });
const WRONG = { 400: PROBLEM, 401: PROBLEM, 403: PROBLEM, 503: PROBLEM };
const NUMBER = { type: "number" };
const COUNT = { type: "integer", minimum: 0 };

const TOTALS = object({
  atMs: NUMBER,
  buckets: COUNT,
  waiting: COUNT,
  oldestMs: NUMBER,
  actualPerSecond: NUMBER,
  capPerSecond: NUMBER,
  cooling: COUNT,
  paused: COUNT,
  away: COUNT,
  overrides: COUNT,
  replicas: list(REPLICA),
  unreachable: UNREACHABLE,
});

/** With the defaults of its schema. */
interface BucketsQuery {
  readonly search?: string;
  readonly sort: keyof typeof ORDERS;
  readonly offset: number;
  readonly limit: number;
  readonly recent?: boolean;
}

/** What the table is ordered by; the busiest first, of equals by name. */
const ORDERS = {
  name: () => 0,
  waiting: ({ waiting }: BucketBrief) => waiting.total,
  oldest: ({ waiting }: BucketBrief) => waiting.oldestMs,
  actual: ({ actualPerSecond }: BucketBrief) => actualPerSecond,
  share: (status: BucketBrief) => shareOf(status),
} as const;

function shareOf({ actualPerSecond, capPerSecond }: BucketBrief): number {
  return capPerSecond === undefined ? 0 : actualPerSecond / capPerSecond;
}

export function lookRoutes(app: FastifyInstance, sluice: Sluice, snapshots: Snapshots): void {
  const recent = createRecent(sluice);

  app.get(
    "/api/v1/overview",
    {
      config: VIEW,
      schema: {
        summary: "All buckets together, and the processes that use them",
        tags: ["facts"],
        response: { 200: answer("The totals.", TOTALS), ...WRONG },
      },
    },
    async (request) => {
      const { mayBucket } = accessOf(request);
      const { buckets: all, replicas, unreachable, atMs } = await snapshots.read();
      const buckets = all.filter(({ name }) => mayBucket(name));
      const how = (count: (status: BucketBrief) => number): number =>
        buckets.reduce((sum, status) => sum + count(status), 0);
      // What is used of the caps: of a bucket without one, nothing is known.
      const capped = buckets.filter(({ capPerSecond }) => capPerSecond !== undefined);
      return {
        atMs,
        buckets: buckets.length,
        waiting: how(({ waiting }) => waiting.total),
        oldestMs: buckets.reduce((most, { waiting }) => Math.max(most, waiting.oldestMs), 0),
        actualPerSecond: capped.reduce((sum, status) => sum + status.actualPerSecond, 0),
        capPerSecond: capped.reduce((sum, status) => sum + status.capPerSecond!, 0),
        cooling: how(({ coolingForMs }) => Number(coolingForMs > 0)),
        paused: how(({ pausedForMs }) => Number(pausedForMs > 0)),
        away: how(({ awayForMs }) => Number(awayForMs > 0)),
        overrides: how(({ source }) => Number(source === "override")),
        replicas,
        unreachable: unreachable.filter(({ bucket }) => bucket === undefined || mayBucket(bucket)),
      };
    },
  );

  app.get<{ Querystring: BucketsQuery }>(
    "/api/v1/buckets",
    {
      config: VIEW,
      schema: {
        summary: "A page of the buckets",
        tags: ["facts"],
        querystring: {
          type: "object",
          additionalProperties: false,
          properties: {
            search: { type: "string", maxLength: 1_024, description: "Part of the name." },
            sort: { type: "string", enum: Object.keys(ORDERS), default: "name" },
            offset: { type: "integer", minimum: 0, default: 0 },
            limit: { type: "integer", minimum: 1, maximum: 200, default: 50 },
            recent: {
              type: "boolean",
              description: "Adds calls by second in the last ten minutes, in steps of ten seconds.",
            },
          },
        },
        response: {
          200: answer(
            "The page, and how many there are.",
            object(
              {
                atMs: NUMBER,
                total: COUNT,
                buckets: list(BRIEF),
                recent: { type: "object", additionalProperties: list(NUMBER) },
              },
              ["recent"],
            ),
          ),
          ...WRONG,
        },
      },
    },
    async (request) => {
      const { search = "", sort, offset, limit } = request.query;
      const { mayBucket } = accessOf(request);
      const { buckets, atMs } = await snapshots.read();
      const wanted = search.toLowerCase();
      const found = buckets.filter(
        ({ name }) => name.toLowerCase().includes(wanted) && mayBucket(name),
      );
      const by = ORDERS[sort];
      const page = found.toSorted((a, b) => by(b) - by(a)).slice(offset, offset + limit);
      const isOld = Date.now() - atMs > FRESH_MS;
      const rows = isOld ? await Promise.all(page.map((row) => anew(sluice, row))) : page;
      const told = { atMs, total: found.length, buckets: rows };
      return request.query.recent === true ? { ...told, recent: await recent(page) } : told;
    },
  );

  app.get<{ Params: { bucket: string } }>(
    "/api/v1/buckets/:bucket",
    {
      config: OF_BUCKET,
      schema: {
        summary: "One bucket: its limits, what waits, and who set what is in force",
        tags: ["facts"],
        params: NAMED,
        response: { 200: answer("The bucket.", STATUS), 404: PROBLEM, ...WRONG },
      },
    },
    async ({ params }) => (await bucketNamed(sluice, params.bucket)).status(),
  );

  app.get<{ Params: { bucket: string }; Querystring: { sinceMs?: number; untilMs?: number } }>(
    "/api/v1/buckets/:bucket/history",
    {
      config: OF_BUCKET,
      schema: {
        summary:
          "Calls that a bucket started, refusals and who waited, in steps of ten seconds, of up to 24 hours",
        tags: ["facts"],
        params: NAMED,
        querystring: {
          type: "object",
          additionalProperties: false,
          properties: { sinceMs: COUNT, untilMs: COUNT },
        },
        response: {
          200: answer(
            "The steps in which calls started or waited, the oldest first.",
            object({
              stepMs: NUMBER,
              points: list(
                object({
                  atMs: NUMBER,
                  started: NUMBER,
                  refused: NUMBER,
                  waiting: {
                    type: "object",
                    additionalProperties: NUMBER,
                    description: "Callers that waited, by priority, on average over the step.",
                  },
                }),
              ),
            }),
          ),
          404: PROBLEM,
          ...WRONG,
        },
      },
    },
    async ({ params, query }) => (await bucketNamed(sluice, params.bucket)).history(query),
  );

  app.get<{ Querystring: { bucket?: string; queue?: string; before?: string; limit: number } }>(
    "/api/v1/changes",
    {
      config: VIEW,
      schema: {
        summary: "What was changed by hand, by whom and why; the newest first",
        tags: ["facts"],
        querystring: {
          type: "object",
          additionalProperties: false,
          properties: {
            bucket: { type: "string", maxLength: 1_024, description: "Only those of this bucket." },
            queue: {
              type: "string",
              maxLength: 1_024,
              description: "Only those of this queue, or of the endpoints of this sender.",
            },
            before: { type: "string", description: "The next of the page before." },
            limit: { type: "integer", minimum: 1, maximum: 1_000, default: 100 },
          },
        },
        response: {
          200: answer(
            "The changes, and where the next page begins if there may be one.",
            object({ changes: list(LOGGED_CHANGE), next: { type: "string" } }, ["next"]),
          ),
          ...WRONG,
        },
      },
    },
    async (request) => {
      const { limit, ...asked } = request.query;
      if (asked.bucket !== undefined) assertBucket(request, asked.bucket);
      if (asked.queue !== undefined) assertQueue(request, asked.queue);
      const found: readonly LoggedChange[] = await sluice.changes({ ...asked, limit });
      const next = found.length === limit ? found.at(-1)?.id : undefined;
      const { mayBucket, mayQueue } = accessOf(request);
      const changes = found.filter((change) =>
        change.bucket === undefined ? mayQueue(change.queue) : mayBucket(change.bucket),
      );
      return next === undefined ? { changes } : { changes, next };
    },
  );
}

/** The order of many buckets may be older than what is said of those that are shown. */
const FRESH_MS = 3_000;

async function anew(sluice: Sluice, status: BucketBrief): Promise<BucketBrief> {
  try {
    const found = await (await sluice.find(status.name))?.status();
    if (found === undefined) return status;
    const { limits: _limits, ...brief } = found;
    return brief;
  } catch {
    // Its server does not answer: what was last known is shown, and the totals say which server that is.
    return status;
  }
}

const RECENT_MS = 600_000;
/** A step of the history takes so long. */
const STEP_MS = 10_000;

/** Calls by second of the last ten minutes. They change once a step, so what was read is kept for half of one. */
function createRecent(sluice: Sluice) {
  const kept = new Map<string, { readonly rates: Promise<number[]>; readonly untilMs: number }>();

  async function read(name: string): Promise<number[]> {
    const nowMs = Date.now();
    const bucket = await sluice.find(name);
    const history = await bucket?.history({ sinceMs: nowMs - RECENT_MS - STEP_MS });
    return history === undefined ? [] : ratesOf(history, nowMs);
  }

  function ask(name: string): Promise<number[]> {
    const found = kept.get(name);
    if (found !== undefined && found.untilMs > performance.now()) return found.rates;
    // A server that does not answer is seen in the rest of the page.
    const rates = read(name).catch(() => []);
    if (kept.size >= 1_000) kept.clear();
    kept.set(name, { rates, untilMs: performance.now() + STEP_MS / 2 });
    return rates;
  }

  return async (page: readonly BucketBrief[]): Promise<Record<string, number[]>> => {
    const all = page.map(async ({ name }) => [name, await ask(name)] as const);
    return Object.fromEntries(await Promise.all(all));
  };
}

/** The oldest first; the step that is not over is left out. */
function ratesOf({ stepMs, points }: History, nowMs: number): number[] {
  const steps = RECENT_MS / stepMs;
  const endMs = Math.floor(nowMs / stepMs) * stepMs;
  const byStep = new Map(points.map(({ atMs, started }) => [atMs, started]));
  return Array.from({ length: steps }, (_, index) => {
    const started = byStep.get(endMs - (steps - index) * stepMs) ?? 0;
    return (started * 1_000) / stepMs;
  });
}
