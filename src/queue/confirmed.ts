import { redisRefusalOf, StoreUnavailableError, type RedisRefusal } from "../core/errors.ts";

/** How ioredis refuses a command that it has not begun to send. */
const UNSENT = "Stream isn't writeable";

/** What Redis says of jobs that it was given to store. */
export async function confirmed<Answer>(storing: Promise<Answer>): Promise<Answer> {
  try {
    return await storing;
  } catch (cause) {
    const isUnsent = cause instanceof Error && cause.message.startsWith(UNSENT);
    const refusal = redisRefusalOf(cause);
    const problem = isUnsent
      ? "Redis could not be reached; nothing was stored"
      : `${whatRedisDid(refusal)}; it may or may not be stored. With a dedupeId, a retry is safe`;
    const remedy = `${refusal?.remedy ?? "See that Redis runs"}, and try again.`;
    throw new StoreUnavailableError(`${problem}. ${remedy}`, cause, { mayBeStored: !isUnsent });
  }
}

function whatRedisDid(refusal: RedisRefusal | undefined): string {
  if (refusal === undefined) return "Redis did not confirm the job";
  return `Redis refused the job: ${refusal.reason}`;
}

/** The failure of one round trip of many, after others that went well. */
export function afterOthers(stored: readonly unknown[], error: unknown): unknown {
  if (!(error instanceof StoreUnavailableError) || stored.length === 0) return error;
  const message = `The first ${stored.length} jobs are stored. For the next ones: ${error.message}`;
  const facts = { mayBeStored: error.mayBeStored, storedCount: stored.length };
  return new StoreUnavailableError(message, error.cause, facts);
}
