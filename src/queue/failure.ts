/**
 * What is kept of the error that failed an attempt: its message is the job's reason, and beside it stand its code, its
 * status and the errors that led to it. BullMQ keeps a message and a stack only.
 */
import { describeValue } from "../core/describe.ts";
import { isResponse, statusIn } from "../throttle/feedback/layers.ts";
import { readProperty } from "../throttle/feedback/properties.ts";
import { isFinalError } from "./bullmq/errors.ts";

/** What is known of an error beside its message. */
export interface ErrorFacts {
  /** Its `code`: `"ECONNREFUSED"`, `"23505"`. Undefined without one. */
  readonly code?: string | undefined;
  /** The HTTP status of the answer that it carries: `503`. Undefined without one. */
  readonly status?: number | undefined;
  /** The error that led to it, its `cause`, up to five deep. Undefined without one. */
  readonly cause?: ErrorCause | undefined;
  /** The errors that led to it together, of an `AggregateError`: one for each address of a host, for instance. */
  readonly errors?: readonly ErrorCause[] | undefined;
}

/** What is known of the error that failed an attempt, beside its message. */
export interface FailureFacts extends ErrorFacts {
  /** Its name, or that of its class: `"TypeError"`. Undefined for a plain `Error`, and for what is no error. */
  readonly errorName?: string | undefined;
}

/** An error that led to another. */
export interface ErrorCause extends ErrorFacts {
  /** `"TypeError"`; of a fetch answer `"Response"`. */
  readonly name: string;
  /** The first 1,000 characters: `"connect ECONNREFUSED 10.0.0.7:443"`. */
  readonly message: string;
}

/** How deep causes are kept, how many of them, and how many characters of a message, a name or a code. */
const [DEEPEST, MOST, LONGEST_MESSAGE, LONGEST_WORD] = [5, 20, 1_000, 100];

/** The name of an error that says no more. */
const PLAIN = "Error";

interface Walk {
  readonly seen: Set<unknown>;
  left: number;
}

const originals = new WeakMap<Error, unknown>();

/** Notes that one error stands for what was thrown: the facts are those of what was thrown. */
export function standFor(failure: Error, thrown: unknown): Error {
  if (failure !== thrown) originals.set(failure, thrown);
  return failure;
}

/** What was thrown, or the error itself. */
export function originalOf(error: unknown): unknown {
  return error instanceof Error && originals.has(error) ? originals.get(error) : error;
}

/** The facts of what was thrown. Never throws, whatever comes in. */
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

/** Undefined for nothing, for an error that was met before, and beyond the bounds. */
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
  // Classes that say nothing of a name inherit that one.
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

/** All texts in which a reason is searched: that of the error, and the messages and codes of those that led to it. */
export function textsOf(reason: string, facts: ErrorFacts): string[] {
  const within = causesOf(facts).flatMap(({ message, code = "" }) => [message, code]);
  return [reason, facts.code ?? "", ...within].filter((text) => text !== "");
}

/** Whether the error, or one that led to it, has this code. */
export function hasCode(facts: ErrorFacts, code: string): boolean {
  return facts.code === code || causesOf(facts).some((cause) => cause.code === code);
}

function causesOf({ cause, errors = [] }: ErrorFacts): ErrorCause[] {
  const direct = cause === undefined ? errors : [cause, ...errors];
  return direct.flatMap((each) => [each, ...causesOf(each)]);
}

/** An error like the one that was kept, with those that led to it. */
function rebuildError({ name, message, ...facts }: ErrorCause): Error {
  return rebuildWith(message, { ...facts, errorName: name });
}

/** The same; one without a name has a stack of here. */
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

/** Reads what was stored; nothing is known of a job that failed before there were facts. */
export function parseErrorFacts(json: unknown): FailureFacts {
  if (typeof json !== "string" || json === "") return {};
  try {
    const facts = JSON.parse(json) as FailureFacts | null;
    return typeof facts === "object" && facts !== null ? facts : {};
  } catch {
    return {};
  }
}
