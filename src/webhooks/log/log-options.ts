import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";
import { readOptional, readOptions, wholeNumber } from "../../core/input/options.ts";
import type { TimeSpan } from "../../stores/redis/webhooks/store.ts";
import { TYPES } from "../endpoints/event-filter.ts";
import { ID, lineOf } from "../names.ts";
import { MESSAGE_ID } from "../signing/sign.ts";

/** A span of time. */
export interface Span {
  /** The start, as a Date or in ms since 1970. Defaults to the oldest entry. */
  readonly since?: Date | number | undefined;
  /** The end, as a Date or in ms since 1970. Defaults to now. */
  readonly until?: Date | number | undefined;
}

interface Page extends Span {
  /** The most entries on the page, up to 1,000. Defaults to 100. */
  readonly limit?: number | undefined;
  /** The `cursor` of the previous page. Defaults to the start. */
  readonly cursor?: string | undefined;
}

/** Identifies a message. */
export interface MessageRef {
  readonly tenant?: string | undefined;
  readonly id: string;
}

export interface ListMessages extends Page {
  readonly tenant?: string | undefined;
}

/**
 * Selects attempts: all attempts of one message, on one page, or a page of the attempts at one
 * endpoint.
 */
export interface ListAttempts extends Page {
  readonly tenant?: string | undefined;
  /** The id of a message. */
  readonly message?: string | undefined;
  /** The id of an endpoint. */
  readonly endpoint?: string | undefined;
}

/** Selects the messages to send again: one message, or the messages of a time span. */
export interface ReplayOptions extends Span {
  readonly tenant?: string | undefined;
  /** The id of one message. Defaults to all messages that match the other options. */
  readonly message?: string | undefined;
  /**
   * The endpoint that receives the messages, even if it is disabled. Defaults to the endpoints that
   * each message was sent to.
   */
  readonly endpoint?: string | undefined;
  /** The message types: `["invoice.*"]`. Defaults to all. */
  readonly types?: readonly string[] | undefined;
  /** The user who requests the replay, up to 100 characters, for the log. */
  readonly by?: string | undefined;
}

export interface RecoverOptions extends Span {
  readonly tenant?: string | undefined;
  /** The endpoint whose failed messages are sent again. */
  readonly endpoint: string;
  /** The user who requests the recovery, up to 100 characters, for the log. */
  readonly by?: string | undefined;
}

/** Selects what to delete: one message, or all messages and endpoints of a tenant. */
export interface ExpungeOptions {
  readonly tenant?: string | undefined;
  /** The id of one message. Defaults to all messages and endpoints of the tenant. */
  readonly message?: string | undefined;
}

const TIME_REMEDY = "give a Date, or ms since 1970";
const TIME = z.union([z.date(), z.number().int().min(0).max(8.64e15)], { error: TIME_REMEDY });
const BY = lineOf(100).refine((text) => text !== "", { error: "give a name, or omit the option" });
const CURSOR = z
  .string({ error: "give the cursor of a page" })
  .regex(/^\d{1,16}\.\d{1,9}$/, { error: "give the cursor of a page" });
const TENANT = { tenant: ID.optional() };
const SPAN = { since: TIME.optional(), until: TIME.optional() };
const PAGE = {
  ...SPAN,
  limit: wholeNumber(1, 1_000, "entries").optional(),
  cursor: CURSOR.optional(),
};
const MESSAGE_REF = z.strictObject({ ...TENANT, id: MESSAGE_ID });
const LIST_MESSAGES = z.strictObject({ ...TENANT, ...PAGE });
const LIST_ATTEMPTS = z.strictObject({
  ...TENANT,
  ...PAGE,
  message: MESSAGE_ID.optional(),
  endpoint: ID.optional(),
});
const REPLAY = z.strictObject({
  ...TENANT,
  ...SPAN,
  message: MESSAGE_ID.optional(),
  endpoint: ID.optional(),
  types: TYPES.optional(),
  by: BY.optional(),
});
const RECOVER = z.strictObject({ ...TENANT, ...SPAN, endpoint: ID, by: BY.optional() });
const EXPUNGE = z.strictObject({ ...TENANT, message: MESSAGE_ID.optional() });

export function readMessageRef(where: string, given: unknown): MessageRef {
  return readOptions(where, MESSAGE_REF, given);
}

export function readListMessages(where: string, given: unknown): ListMessages {
  return readOptional(where, LIST_MESSAGES, given);
}

export function readListAttempts(where: string, given: unknown): ListAttempts {
  const read = readOptions(where, LIST_ATTEMPTS, given);
  if ((read.message === undefined) === (read.endpoint === undefined)) {
    const remedy = "give the id of a message, or that of an endpoint";
    throw new InvalidOptionError({ where, option: "message", value: read.message, remedy });
  }
  const paged = (["since", "until", "limit", "cursor"] as const).find(
    (name) => read[name] !== undefined,
  );
  if (read.message === undefined || paged === undefined) return read;
  const remedy = "leave it out: the attempts of a message are one page";
  throw new InvalidOptionError({ where, option: paged, value: read[paged], remedy });
}

export function readReplay(where: string, given: unknown): ReplayOptions {
  const read = readOptions(where, REPLAY, given);
  const isWide = read.since === undefined && read.types === undefined;
  if (read.message === undefined && isWide) {
    const remedy = "give the message, or say since when: everything is much";
    throw new InvalidOptionError({ where, option: "since", value: undefined, remedy });
  }
  const more = (["since", "until", "types"] as const).find((name) => read[name] !== undefined);
  if (read.message === undefined || more === undefined) return read;
  const remedy = "leave it out: one message is named";
  throw new InvalidOptionError({ where, option: more, value: read[more], remedy });
}

export function readRecover(where: string, given: unknown): RecoverOptions {
  return readOptions(where, RECOVER, given);
}

export function readExpunge(where: string, given: unknown): ExpungeOptions {
  return readOptions(where, EXPUNGE, given);
}

/** Returns the range of entries that a page shows. */
export function spanOf({ since, until, limit = 100, cursor }: Page): TimeSpan {
  const [untilMs, skip] = cursor === undefined ? [msOf(until, 8.64e15), 0] : readCursor(cursor);
  return { sinceMs: msOf(since, 0), untilMs, skip, limit };
}

/** Returns the cursor of the next page; undefined on the last page. */
export function cursorAfter(span: TimeSpan, timesMs: readonly number[]): string | undefined {
  const lastMs = timesMs.at(-1);
  if (lastMs === undefined || timesMs.length < span.limit) return undefined;
  const same = timesMs.filter((ms) => ms === lastMs).length;
  return `${lastMs}.${same + (lastMs === span.untilMs ? span.skip : 0)}`;
}

function readCursor(cursor: string): [untilMs: number, skip: number] {
  return cursor.split(".").map(Number) as [number, number];
}

function msOf(time: Date | number | undefined, otherwise: number): number {
  return time instanceof Date ? time.getTime() : (time ?? otherwise);
}
