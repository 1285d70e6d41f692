/** `sluice.overview()` and `sluice.changes()`: all buckets and replicas that share a Redis, and what was changed by hand. */
import * as z from "zod";
import { reasonOf } from "../core/describe.ts";
import { NAME, readOptions, wholeNumber } from "../core/input/options.ts";
import type { InsightStore } from "../core/stores/insight/store.ts";
import type { OwnedBucket } from "../throttle/bucket.ts";
import { describeChange, type BucketChange } from "../throttle/bucket/changes.ts";
import type { BucketStatus } from "../throttle/bucket/status.ts";

export interface OverviewOptions {
  /** The `next` of the page before. Defaults to the first page. */
  readonly after?: string | undefined;
  /** How many buckets at most, 1 to 1,000. Defaults to 100. */
  readonly limit?: number | undefined;
}

/** A process that uses buckets. */
export interface Replica {
  /** A name that no other process has. */
  readonly replica: string;
  readonly host: string;
  readonly pid: number;
  /** The version of Sluice that it runs. */
  readonly version: string;
  /** When it started, in ms since 1970, by its own clock. */
  readonly startedAtMs: number;
  /** When it last told something, by the clock of Redis: every thirty seconds at least. */
  readonly seenAtMs: number;
}

export interface Overview {
  /** By name, those of one page. A bucket is listed for 30 days after its last call. */
  readonly buckets: readonly BucketStatus[];
  /** What could not be looked at: a bucket of this page whose server does not answer, or a server (undefined). */
  readonly unreachable: readonly Unreachable[];
  /** What to give as `after` for the next page; undefined: this was the last one. */
  readonly next: string | undefined;
  /** Those that were heard of in the last 90 seconds. */
  readonly replicas: readonly Replica[];
}

/** What an overview lacks, and why. */
export interface Unreachable {
  readonly bucket: string | undefined;
  readonly reason: string;
}

export interface ChangesOptions {
  /** Only those of this bucket. Defaults to all. */
  readonly bucket?: string | undefined;
  /** Only those before this one, by its id: for the next page. Defaults to the newest. */
  readonly before?: string | undefined;
  /** How many at most, 1 to 1,000. Defaults to 100. */
  readonly limit?: number | undefined;
}

const LIMIT = { limit: wholeNumber(1, 1_000, "entries").optional() };
const OVERVIEW = z.strictObject({ ...LIMIT, after: NAME.optional() });
const AN_ID = { error: 'give the id of a change, such as "1764166000000-0"' };
const CHANGES = z.strictObject({
  ...LIMIT,
  bucket: NAME.optional(),
  before: z
    .string(AN_ID)
    .regex(/^\d{1,15}-\d{1,15}$/, AN_ID)
    .optional(),
});
const A_PAGE = 100;

export interface InsightParts {
  readonly insight: InsightStore;
  /** The bucket of this name, whichever process declares it. */
  readonly find: (bucket: string) => Promise<Pick<OwnedBucket, "status"> | undefined>;
}

export interface Insight {
  overview(options?: OverviewOptions): Promise<Overview>;
  changes(options?: ChangesOptions): Promise<readonly BucketChange[]>;
}

export function createInsight({ insight, find }: InsightParts): Insight {
  return {
    async overview(given = {}) {
      const { after = "", limit = A_PAGE } = readOptions("overview()", OVERVIEW, given);
      const [{ names, errors }, replicas] = await Promise.all([
        insight.bucketNames({ after, limit: limit + 1 }),
        insight.replicas(),
      ]);
      const page = names.slice(0, limit);
      const unreachable: Unreachable[] = errors.map((error) => ({
        bucket: undefined,
        reason: reasonOf(error),
      }));
      const looks = page.map(async (name) => {
        try {
          return await (await find(name))?.status();
        } catch (error) {
          unreachable.push({ bucket: name, reason: reasonOf(error) });
          return undefined;
        }
      });
      const found = await Promise.all(looks);
      const buckets = found.filter((status) => status !== undefined);
      const next = names.length > limit ? page.at(-1) : undefined;
      return { buckets, unreachable, next, replicas };
    },
    async changes(given = {}) {
      const { bucket, before, limit = A_PAGE } = readOptions("changes()", CHANGES, given);
      const found = await insight.changes({ bucket, before, limit });
      return found.map(describeChange);
    },
  };
}
