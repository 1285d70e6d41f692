/** Runs in a child process of a worker. BullMQ's main file imports this file and calls it with each job. */

import process from "node:process";
import type { Answer } from "../../../core/answer.ts";
import { readAnswer } from "../../../throttle/feedback/answer.ts";
import { readErrorFacts, rebuildWith } from "../../failure.ts";
import { assertProgress, type Handler, type JobContext } from "../context.ts";
import {
  asFailure,
  failureByResponse,
  isFailure,
  isStorable,
  responseFailure,
} from "../outcome.ts";
import {
  HANDLER_FILE,
  type ChildAnswer,
  type ChildAttempt,
  type ChildFailure,
  type SlotMessage,
} from "./sandbox-protocol.ts";

/** A job as BullMQ passes it to a processor in a child process. */
interface SandboxedJob {
  readonly data: unknown;
  readonly sluice: ChildAttempt;
  log(line: string): Promise<void>;
  updateProgress(value: unknown): Promise<void>;
}

const handler = await loadHandler(process.env[HANDLER_FILE]!);

async function loadHandler(file: string): Promise<Handler<unknown, unknown>> {
  const { default: exported } = (await import(file)) as { default?: unknown };
  // In a CommonJS file that was compiled from ESM, `default` is an object whose own `default` is the export.
  const inner = (exported as { default?: unknown } | undefined)?.default;
  const found = typeof exported === "function" ? exported : inner;
  if (typeof found !== "function") throw new Error(`${file} has no function as its default export`);
  return found as Handler<unknown, unknown>;
}

/** Runs one job. Errors are returned and not thrown, because BullMQ would send only the messages of thrown errors. */
export default async function runHere(
  stored: SandboxedJob,
  _token: unknown,
  signal: AbortSignal,
): Promise<ChildAnswer> {
  const job = { ...stored.sluice.job, data: stored.data };
  try {
    const result = await handler(job, contextOf(stored, signal));
    if (isFailure(result)) return { failure: await failureOf(result) };
    const refused = stored.sluice.failOnResponse ? await refusalIn(result) : undefined;
    if (refused !== undefined) return { failure: await failureOf(refused) };
    return isStorable(result) ? { result } : { isLost: true };
  } catch (thrown) {
    return { failure: await failureOf(thrown instanceof Error ? thrown : asFailure(thrown)) };
  }
}

async function refusalIn(result: unknown): Promise<Error | undefined> {
  const failure = responseFailure(result);
  if (failure !== undefined) return failure;
  return (await readAnswer(result)).refused ? failureByResponse(result) : undefined;
}

function contextOf(stored: SandboxedJob, signal: AbortSignal): JobContext {
  const { attempt, slot, parents } = stored.sluice;
  const release = (): void => send({ sluice: "release" });
  return {
    signal,
    attempt,
    slot: {
      ...slot,
      // A slot can have several named keys, but a job has only one key.
      keys: undefined,
      signal,
      settle: async (cost) => send({ sluice: "settle", cost }),
      release,
      [Symbol.dispose]: release,
      [Symbol.asyncDispose]: async () => release(),
    },
    log: (line) => stored.log(String(line)),
    progress: (value) => {
      assertProgress(value);
      return stored.updateProgress(value);
    },
    async parents() {
      if ("outcomes" in parents) return parents.outcomes;
      throw rebuildWith(parents.failure.message, parents.failure.facts);
    },
  };
}

function send(message: SlotMessage): void {
  process.send?.(message);
}

/**
 * Returns the parts of an error that can be sent to the parent process: its plain values, and the downstream's response
 * if one is attached.
 */
async function failureOf(error: Error): Promise<ChildFailure> {
  const { message, stack } = error;
  const facts = readErrorFacts(error);
  const { errorName: name = error.name } = facts;
  const plain = Object.entries(error).filter(([, value]) => isPlain(value));
  const answer = await readAnswer(error);
  const isAnswered = answer.refused || answer.status !== undefined;
  const response = isAnswered ? { response: responseOf(answer) } : {};
  return { ...Object.fromEntries(plain), name, message, stack, facts, ...response };
}

/** Returns an object like the downstream's response, in a form that the bucket in the parent process can read. */
function responseOf({ status, refused, stated, afterMs, ...more }: Answer): object {
  if (!refused) {
    const headers = afterMs === undefined ? {} : { "retry-after-ms": String(afterMs) };
    return { status, headers };
  }
  const { overloaded, lasts, retry, scope, unit } = more;
  const code = overloaded
    ? "overloaded"
    : lasts && afterMs === undefined
      ? "insufficient_quota"
      : "rate_limit";
  const quotaId =
    scope === undefined && !lasts ? undefined : `per ${scope ?? "hour"} ${unit ?? ""}`;
  const headers = {
    ...(stated || lasts ? { "retry-after-ms": String(afterMs) } : {}),
    ...(retry ? {} : { "x-should-retry": "false" }),
  };
  return { status: overloaded ? 529 : 429, headers, data: { error: { code, quotaId } } };
}

function isPlain(value: unknown): boolean {
  return ["string", "number", "boolean"].includes(typeof value);
}
