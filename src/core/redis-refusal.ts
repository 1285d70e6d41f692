import { wordsOf } from "./describe-value.ts";

/** What Redis answered instead of doing what it was asked. */
export interface RedisRefusal {
  /** In its own words: `"NOPERM this user has no permissions to run the 'evalsha' command"`. */
  readonly reason: string;
  readonly remedy: string;
}

/** Whether Redis did answer, if with an error. */
export function isReply(error: unknown): error is Error {
  return error instanceof Error && error.name === "ReplyError";
}

/** Undefined if Redis did not answer at all. */
export function redisRefusalOf(error: unknown): RedisRefusal | undefined {
  if (!isReply(error)) return undefined;
  return { reason: wordsOf(error), remedy: remedyFor(error.message) };
}

function remedyFor(message: string): string {
  if (isForWantOfRights(message))
    return "Give its Redis user the rights that docs/topologies.md names";
  if (/^(WRONGPASS|NOAUTH)/.test(message)) return "Give the user and the password that Redis knows";
  return "See what Redis says of it in its log, or in INFO";
}

export function isForWantOfRights(message: string): boolean {
  // Redis 7.0 says it otherwise of what a script may not run.
  return /^NOPERM|^ERR The user executing the script can.t run this command/.test(message);
}
