/**
 * What is kept of the error that failed an attempt: its message as the job's reason, and beside it its code, its status
 * and its causes. BullMQ keeps only a message and a stack.
 */
import { describeValue } from "../core/describe.ts";
import { isResponse, statusIn } from "../throttle/feedback/layers.ts";
import { readProperty } from "../throttle/feedback/properties.ts";
import { isFinalError } from "./bullmq/errors.ts";

/** The facts of an error beside its message. */
export interface ErrorFacts {
  /** Its `code`: `"ECONNREFUSED"`, `"23505"`. Undefined without one. */
  readonly code?: string | undefined;
  /** The HTTP status of the response that it carries: `503`. Undefined without one. */
  readonly status?: number | undefined;
  /** Its `cause`, up to five levels deep. Undefined without one. */
  readonly cause?: ErrorCause | undefined;
  /** The errors of an `AggregateError`: for instance one for each address of a host. */
  readonly errors?: readonly ErrorCause[] | undefined;
}

/** The facts of the error that failed an attempt, beside its message. */
export interface FailureFacts extends ErrorFacts {
  /**
   * Its name, or that of its class: `"TypeError"`. Undefined for a plain `Error`, and for a value that is not an error.
   */
  readonly errorName?: string | undefined;
}

/** An error that led to another. */
export interface ErrorCause extends ErrorFacts {
  /** `"TypeError"`; for a response of `fetch`, `"Response"`. */
  readonly name: string;
  /** The first 1,000 characters: `"connect ECONNREFUSED 10.0.0.7:443"`. */
  readonly message: string;
}

/** How deep causes are kept, how many of them, and how many characters of a message, and of a name or code. */
const [DEEPEST, MOST, LONGEST_MESSAGE, LONGEST_WORD] = [5, 20, 1_000, 100];

/** The name of an error that has no specific name. */
const PLAIN = "Error";

interface Walk {
  readonly seen: Set<unknown>;
  left: number;
}

const originals = new WeakMap<Error, unknown>();

/** Records that an error stands for a thrown value, so that its facts are those of the thrown value. */
export function standFor(failure: Error, thrown: unknown): Error {
  if (failure !== thrown) originals.set(failure, thrown);
  return failure;
}

/** Returns the thrown value that an error stands for, or the error itself. */
export function originalOf(error: unknown): unknown {
  return error instanceof Error && originals.has(error) ? originals.get(error) : error;
}

/** Returns the facts of a thrown value. Never throws. */
export function readErrorFacts(thrown: unknown): FailureFacts {
  const error = originalOf(thrown);
  const name = error instanceof Error && !isFinalError(error) ? nameOf(error) : PLAIN;
  return {
    ...(name !== PLAIN && { errorName: name.slice(0, LONGEST_WORD) }),
    ...factsOf(error, 0, { seen: new Set([error]), left: MOST }),
  };
}

function factsOf(error: unknown, depth: number, walk: Walk): ErrorFacts {
  if (typeof error !== "object" || error === null) return {};
  const code = codeOf(error);
  const status = statusOf(error);
  const below = (inner: unknown): ErrorCause | undefined => causeOf(inner, depth + 1, walk);
  const cause = below(readProperty(error, "cause"));
  const listed = readProperty(error, "errors");
  const errors = listOf(listed).flatMap((inner) => below(inner) ?? []);
  return {
    ...(code !== undefined && { code }),
    ...(status !== undefined && { status }),
    ...(cause !== undefined && { cause }),
    ...(errors.length > 0 && { errors }),
  };
}

/** Undefined for no error, for an error that was seen before, and beyond the bounds. */
function causeOf(error: unknown, depth: number, walk: Walk): ErrorCause | undefined {
  if (error === undefined || error === null || depth > DEEPEST || walk.left <= 0) return undefined;
  if (walk.seen.has(error)) return undefined;
  walk.seen.add(error);
  walk.left -= 1;
  const name = nameOf(error).slice(0, LONGEST_WORD);
  const message = messageOf(error).slice(0, LONGEST_MESSAGE);
  return { name, message, ...factsOf(error, depth, walk) };
}

function nameOf(error: unknown): string {
  if (isResponse(error)) return "Response";
  const name = readProperty(error, "name");
  if (typeof name !== "string" || name === "") return typeof error;
  if (name !== PLAIN) return name;
  // A class without its own name inherits "Error".
  const made = readProperty(error, "constructor");
  const ofClass: unknown = typeof made === "function" ? made.name : undefined;
  return typeof ofClass === "string" && ofClass !== "" ? ofClass : name;
}

function messageOf(error: unknown): string {
  if (typeof error === "string") return error;
  const message = readProperty(error, "message");
  if (typeof message === "string") return message;
  if (!isResponse(error)) return describeValue(error);
  return `HTTP ${String(readProperty(error, "status"))} ${String(readProperty(error, "statusText"))}`.trimEnd();
}

function codeOf(error: object): string | undefined {
  const code = readProperty(error, "code");
  const isCode = (typeof code === "string" && code !== "") || Number.isFinite(code);
  return isCode ? String(code).slice(0, LONGEST_WORD) : undefined;
}

function statusOf(error: object): number | undefined {
  try {
    return statusIn(error);
  } catch {
    return undefined;
  }
}

function listOf(errors: unknown): readonly unknown[] {
  try {
    return Array.isArray(errors) ? errors.slice(0, MOST) : [];
  } catch {
    // A proxy that throws.
    return [];
  }
}

/** All texts in which a reason is searched: that of the error, and the messages and codes of its causes. */
export function textsOf(reason: string, facts: ErrorFacts): string[] {
  const within = causesOf(facts).flatMap(({ message, code = "" }) => [message, code]);
  return [reason, facts.code ?? "", ...within].filter((text) => text !== "");
}

/** True if the error or one of its causes has this code. */
export function hasCode(facts: ErrorFacts, code: string): boolean {
  return facts.code === code || causesOf(facts).some((cause) => cause.code === code);
}

function causesOf({ cause, errors = [] }: ErrorFacts): ErrorCause[] {
  const direct = cause === undefined ? errors : [cause, ...errors];
  return direct.flatMap((each) => [each, ...causesOf(each)]);
}

/** Rebuilds an error that was kept, with its causes. */
function rebuildError({ name, message, ...facts }: ErrorCause): Error {
  return rebuildWith(message, { ...facts, errorName: name });
}

/** The same for a given message. Without a kept name, the stack is that of this call. */
export function rebuildWith(
  message: string,
  { cause, errors, code, status, errorName: name }: FailureFacts,
): Error {
  const options = cause === undefined ? undefined : { cause: rebuildError(cause) };
  const error =
    errors === undefined
      ? new Error(message, options)
      : new AggregateError(errors.map(rebuildError), message, options);
  return Object.assign(error, {
    ...(name !== undefined && { name, stack: `${name}: ${message}` }),
    ...(code !== undefined && { code }),
    ...(status !== undefined && { status }),
  });
}

/** Reads stored facts. A job that failed before facts were stored has none. */
export function parseErrorFacts(json: unknown): FailureFacts {
  if (typeof json !== "string" || json === "") return {};
  try {
    const facts = JSON.parse(json) as FailureFacts | null;
    return typeof facts === "object" && facts !== null ? facts : {};
  } catch {
    return {};
  }
}
