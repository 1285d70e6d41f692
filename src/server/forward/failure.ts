import type { FastifyReply, FastifyRequest } from "fastify";
import { reasonOf } from "../../core/describe.ts";
import { LineFullError, SluiceError, WaitTooLongError } from "../../core/errors.ts";
import { HttpProblem } from "../problem.ts";

const LATE = new Set([
  "UND_ERR_HEADERS_TIMEOUT",
  "UND_ERR_BODY_TIMEOUT",
  "UND_ERR_CONNECT_TIMEOUT",
]);

/** Whether another upstream may have what this one lacks: room within the wait, or an answer at all. */
export function isWorthAnother(error: unknown, isSent: boolean): boolean {
  if (!isSent) return error instanceof WaitTooLongError || error instanceof LineFullError;
  return !(error instanceof SluiceError);
}

/** What the client is told where there is no answer of an upstream to pass on. */
export function failureOf(error: unknown, forward: string, request: FastifyRequest): unknown {
  if (error instanceof SluiceError || error instanceof HttpProblem) return error;
  const { code } = error as { readonly code?: string };
  request.log.warn({ forward, reason: reasonOf(error) }, "An upstream gave no answer.");
  if (LATE.has(code ?? ""))
    return new HttpProblem(
      "ERR_UPSTREAM_TIMEOUT",
      "The upstream was silent for longer than the timeoutMs of this forward.",
    );
  return new HttpProblem(
    "ERR_UPSTREAM_UNREACHABLE",
    "The upstream could not be reached, or broke off.",
  );
}

/** A client that said how long it would wait has something else to do: its library is not to try again by itself. */
export function sayNoRetry(reply: FastifyReply, error: unknown): void {
  if (error instanceof WaitTooLongError) void reply.header("x-should-retry", "false");
}
