/** Decides from a call's result or error what a concurrency limit that adapts to latency learns from the call. */
import { interpret } from "./answer.ts";
import { grpcCodeOf, isErrorLike, layersOf } from "./layers.ts";
import { readProperty } from "./properties.ts";

/**
 * How a call ended: it is `done`, the downstream `dropped` it because of overload, or its latency says nothing about the
 * load and is `ignored`.
 */
export type CallOutcome = "done" | "dropped" | "ignored";

/** HTTP statuses of a server without capacity, and of a proxy that waited too long for the server behind it. */
const OVERLOADED: ReadonlySet<unknown> = new Set([503, 504, 524, 529]);
/** Error codes and error names of a call that took too long. */
const TIMEOUTS: ReadonlySet<unknown> = new Set([
  "TimeoutError",
  "ETIMEDOUT",
  "ESOCKETTIMEDOUT",
  "ECONNABORTED",
  "UND_ERR_CONNECT_TIMEOUT",
  "UND_ERR_HEADERS_TIMEOUT",
  "UND_ERR_BODY_TIMEOUT",
  "ConnectTimeoutError",
  "APIConnectionTimeoutError",
  "ERR_HANDLER_TIMEOUT",
]);
const NAMED = ["code", "name", "type"];
/** The gRPC status codes DEADLINE_EXCEEDED and UNAVAILABLE. */
const GRPC_CODES: ReadonlySet<unknown> = new Set([4, 14]);

/**
 * Errors and responses with a status of 400 or more are ignored, because a downstream often answers them faster than
 * other calls. Never throws, for any value.
 */
export function callOutcomeOf(resultOrError: unknown): CallOutcome {
  if (typeof resultOrError !== "object" || resultOrError === null) return "done";
  const { status = 0, refused, overloaded } = interpret(resultOrError, Date.now()).answer;
  if (overloaded || OVERLOADED.has(status)) return "dropped";
  const hasTimedOut = layersOf(resultOrError).some(
    ({ source, isError }) => isError && isTimeout(source),
  );
  if (hasTimedOut) return "dropped";
  return refused || status >= 400 || isErrorLike(resultOrError) ? "ignored" : "done";
}

function isTimeout(source: object): boolean {
  return (
    NAMED.some((name) => TIMEOUTS.has(readProperty(source, name))) ||
    GRPC_CODES.has(grpcCodeOf(source))
  );
}
