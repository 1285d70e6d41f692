import * as z from "zod";
import { readJobId } from "../../job.ts";

/** What a program needs to end a job that it runs. */
export interface Receipt {
  /** The id of the job. */
  readonly id: string;
  /** The token of the job's lock. It is unguessable, so it proves that its holder is the one to end the job. */
  readonly token: string;
  /** The signed id of the attempt's slot. Undefined if the slot was released. */
  readonly slotId?: string | undefined;
  /** The time limit of the attempt. Undefined without a limit. */
  readonly limit?: TimeLimit | undefined;
}

/** When the attempt fails unless it has ended before. */
export interface TimeLimit {
  /** The `timeoutMs` of the job or of its worker. */
  readonly timeoutMs: number;
  /** The end of the attempt on the clock of Redis. */
  readonly endsAtMs: number;
}

export function writeReceipt({ id, token, slotId, limit }: Receipt): string {
  const parts: unknown[] = [id, token];
  if (slotId !== undefined || limit !== undefined) parts.push(slotId);
  if (limit !== undefined) parts.push([limit.timeoutMs, limit.endsAtMs]);
  return Buffer.from(JSON.stringify(parts)).toString("base64url");
}

/** Returns the time limit of an attempt whose slot was at `startedAtMs`. */
export function limitFrom(
  startedAtMs: number,
  timeoutMs: number | undefined,
): TimeLimit | undefined {
  return timeoutMs === undefined ? undefined : { timeoutMs, endsAtMs: startedAtMs + timeoutMs };
}

const TEXT = z.string().min(1);
const PARTS = z.tuple([
  TEXT,
  TEXT,
  TEXT.nullable().optional(),
  z.tuple([z.number().positive(), z.number()]).optional(),
]);

/** True if a job can have this id. Otherwise the id could name another key of the queue in Redis. */
function isJobId(id: string | undefined): id is string {
  try {
    return readJobId("receipt", id) !== undefined;
  } catch {
    return false;
  }
}

/** Reads a receipt. Returns undefined for a text that is none. */
export function readReceipt(text: string): Receipt | undefined {
  let read: unknown;
  try {
    read = JSON.parse(Buffer.from(text, "base64url").toString());
  } catch {
    return undefined;
  }
  const [id, token, slotId, times] = PARTS.safeParse(read).data ?? [];
  if (token === undefined || !isJobId(id)) return undefined;
  const limit = times && { timeoutMs: times[0], endsAtMs: times[1] };
  return { id, token, slotId: slotId ?? undefined, limit };
}
