/**
 * Describes the error that failed an attempt. The error's message becomes the job's reason. The error's code, status
 * and causes are stored in addition, because BullMQ keeps only a message and a stack.
 */
import { createHash } from "node:crypto";
import { describeValue } from "../core/describe.ts";
import { isResponse, statusIn } from "../throttle/feedback/layers.ts";
import { readProperty } from "../throttle/feedback/properties.ts";
import { isFinalError } from "./bullmq/errors.ts";

/** The code, status and causes of an error, which are stored in addition to its message. */
export interface ErrorFacts {
  /** The error's `code`: `"ECONNREFUSED"`, `"23505"`. Undefined if it has no code. */
  readonly code?: string | undefined;
  /** The HTTP status of the response that is attached to the error: `503`. Undefined without a status. */
  readonly status?: number | undefined;
  /** The error's `cause`, up to five levels deep. Undefined if it has no cause. */
  readonly cause?: ErrorCause | undefined;
  /** The errors inside an `AggregateError`, such as one error for each address of a host. */
  readonly errors?: readonly ErrorCause[] | undefined;
}

/** The fields of the error that failed an attempt, in addition to its message. */
export interface FailureFacts extends ErrorFacts {
  /**
   * The name of the error or of its class: `"TypeError"`. Undefined for a plain `Error`, and for a thrown value that is
   * not an error.
   */
  readonly errorName?: string | undefined;
}

/** An error that caused another error. */
export interface ErrorCause extends ErrorFacts {
  /** The name of the error: `"TypeError"`. For a response of `fetch`, `"Response"`. */
  readonly name: string;
  /** The first 1,000 characters of the error's message: `"connect ECONNREFUSED 10.0.0.7:443"`. */
  readonly message: string;
}

/**
 * The bounds of what is kept: levels of causes, number of causes, characters of a message, and characters of a name or
 * code.
 */
const [DEEPEST, MOST, LONGEST_MESSAGE, LONGEST_WORD] = [5, 20, 1_000, 100];

/** The name of an error that has no specific name. */
const PLAIN = "Error";

interface Walk {
  readonly seen: Set<unknown>;
  left: number;
}

const originals = new WeakMap<Error, unknown>();

/** Records that an error replaces a thrown value, so that code, status and causes are read from the thrown value. */
export function standFor(failure: Error, thrown: unknown): Error {
  if (failure !== thrown) originals.set(failure, thrown);
  return failure;
}

/** Returns the thrown value that an error replaces, or the error itself. */
export function originalOf(error: unknown): unknown {
  return error instanceof Error && originals.has(error) ? originals.get(error) : error;
}

/** Returns the name, code, status and causes of a thrown value. Never throws. */
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

/**
 * Describes the cause of an error. Undefined if there is no error, if the error was seen before, or if the bounds are
 * exceeded.
 */
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
  // An error class that does not set `name` inherits "Error", so the name of the class is used.
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
    // The value is a proxy that throws.
    return [];
  }
}

/**
 * Returns all texts that a `reason` filter searches: the reason and code of the error, and the messages and codes of
 * its causes.
 */
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

/** Rebuilds an error from its stored fields, with its causes. */
function rebuildError({ name, message, ...facts }: ErrorCause): Error {
  return rebuildWith(message, { ...facts, errorName: name });
}

/**
 * Rebuilds an error with this message from its stored fields. Without a stored name, the stack is the stack of this
 * call.
 */
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

/** Parses the stored fields of an error. Returns no fields for a job that failed before Sluice stored them. */
export function parseErrorFacts(json: unknown): FailureFacts {
  if (typeof json !== "string" || json === "") return {};
  try {
    const facts = JSON.parse(json) as FailureFacts | null;
    return typeof facts === "object" && facts !== null ? facts : {};
  } catch {
    return {};
  }
}

/** The parents of flows, UUIDs, long hexadecimal numbers and numbers, which differ between failures of the same kind. */
const VARYING =
  /(?<=Parent failed: job )[^\n]*?(?= of queue ")|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![0-9a-z])[0-9a-f]{12,}(?![0-9a-z])|\d+/gi;
/** The characters of a reason, with its ids replaced, that decide its group, and the most characters that are read. */
const [GROUPED_BY, MOST_READ] = [300, 4_000];

/**
 * Returns the id of the group of a failure. Failures are in the same group if the names, codes and statuses of their
 * errors are equal, and their reasons differ only in numbers and ids.
 */
export function failureGroupOf(reason: string, { errorName, code, status }: FailureFacts): string {
  // Replaces ids first: a bound inside of an id would otherwise keep a part of the id.
  const text = reason.slice(0, MOST_READ).replaceAll(VARYING, "#").slice(0, GROUPED_BY);
  const parts = JSON.stringify([errorName ?? "", code ?? "", status ?? "", text]);
  return createHash("sha256").update(parts).digest("hex").slice(0, 10);
}
