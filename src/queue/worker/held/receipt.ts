import { readJobId } from "../../job.ts";

/** What a program needs to end a job that it runs. */
export interface Receipt {
  /** The id of the job. */
  readonly id: string;
  /** The token of the job's lock. It is unguessable, so it proves that its holder is the one to end the job. */
  readonly token: string;
  /** The signed id of the attempt's slot. Undefined if the slot was released. */
  readonly slotId?: string | undefined;
}

export function writeReceipt({ id, token, slotId }: Receipt): string {
  const parts = slotId === undefined ? [id, token] : [id, token, slotId];
  return Buffer.from(JSON.stringify(parts)).toString("base64url");
}

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
  if (!Array.isArray(read) || read.some((part) => typeof part !== "string" || part === ""))
    return undefined;
  const [id, token, slotId, more] = read as (string | undefined)[];
  if (token === undefined || more !== undefined || !isJobId(id)) return undefined;
  return { id, token, slotId };
}
