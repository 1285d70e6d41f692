/**
 * Reads and writes the messages of `envoy.service.ratelimit.v3` by field number:
 * https://www.envoyproxy.io/docs/envoy/latest/api-v3/service/ratelimit/v3/rls.proto
 */
import {
  allBytesOf,
  bytesOf,
  countOf,
  type Fields,
  readFields,
  textOf,
  writeFields,
} from "../../../core/input/protobuf.ts";

/** One entry of a descriptor, for example the key `remote_address` with the value `10.0.0.1`. */
interface DescriptorEntry {
  readonly key: string;
  readonly value: string;
}

/** A limit that Envoy sets itself. Its unit is a number of `RateLimitUnit`. */
interface OwnLimit {
  readonly requests: number;
  readonly unit: number;
}

export interface Descriptor {
  readonly entries: readonly DescriptorEntry[];
  readonly limit: OwnLimit | undefined;
  /**
   * The number of calls that the descriptor counts for. If undefined, the request's `hits` applies.
   */
  readonly hits: number | undefined;
  /** True if the descriptor returns calls to the limit. */
  readonly isRefund: boolean;
}

export interface RateLimitRequest {
  readonly domain: string;
  readonly descriptors: readonly Descriptor[];
  /** The number of calls that the request counts for. */
  readonly hits: number;
}

/** The values of `RateLimitResponse.Code`. */
export const CODE = { ok: 1, overLimit: 2 } as const;

export interface CurrentLimit {
  readonly name: string;
  readonly requestsPerUnit: number;
  /**
   * A value of `RateLimitResponse.RateLimit.Unit`: 1 is a second, 2 a minute, 3 an hour, 4 a day.
   */
  readonly unit: number;
}

export interface DescriptorStatus {
  readonly code: number;
  readonly limit?: CurrentLimit | undefined;
  readonly remaining?: number;
  /** Ms until the limit resets. Undefined if the limit never resets. */
  readonly untilResetMs?: number | undefined;
}

export interface RateLimitResponse {
  readonly code: number;
  readonly statuses: readonly DescriptorStatus[];
  readonly headers: Readonly<Record<string, string>>;
}

/** @throws a RangeError for bytes that are not a valid message. */
export function readRequest(bytes: Uint8Array): RateLimitRequest {
  const fields = readFields(bytes);
  return {
    domain: textOf(fields, 1),
    descriptors: allBytesOf(fields, 2).map(readDescriptor),
    // An omitted field and 0 are the same bytes in the message. Envoy's own service reads both as
    // 1.
    hits: Math.max(1, hitsOf(fields, 3)),
  };
}

function readDescriptor(bytes: Uint8Array): Descriptor {
  const fields = readFields(bytes);
  // The field is a google.protobuf.UInt64Value, so that 0 differs from an omitted value.
  const hits = bytesOf(fields, 3);
  const limit = bytesOf(fields, 2);
  return {
    entries: allBytesOf(fields, 1).map(readDescriptorEntry),
    limit: limit && readLimit(limit),
    hits: hits === undefined ? undefined : hitsOf(readFields(hits), 1),
    isRefund: countOf(fields, 4) !== 0,
  };
}

function readLimit(bytes: Uint8Array): OwnLimit {
  const fields = readFields(bytes);
  return { requests: countOf(fields, 1), unit: countOf(fields, 2) };
}

/**
 * Reads a number of hits and caps it. A larger number exceeds every limit anyway, but Envoy would
 * let the call pass after an error.
 */
function hitsOf(fields: Fields, number: number): number {
  return Math.min(Number.MAX_SAFE_INTEGER, countOf(fields, number));
}

function readDescriptorEntry(bytes: Uint8Array): DescriptorEntry {
  const fields = readFields(bytes);
  return { key: textOf(fields, 1), value: textOf(fields, 2) };
}

export function writeResponse({ code, statuses, headers }: RateLimitResponse): Uint8Array {
  return writeFields([
    [1, code],
    ...statuses.map((status) => [2, writeStatus(status)] as const),
    ...Object.entries(headers).map((header) => [3, writeHeader(header)] as const),
  ]);
}

function writeStatus({ code, limit, remaining, untilResetMs }: DescriptorStatus): Uint8Array {
  return writeFields([
    [1, code],
    [2, limit && writeLimit(limit)],
    [3, remaining === undefined ? undefined : uint32(remaining)],
    [4, untilResetMs === undefined ? undefined : writeDuration(untilResetMs)],
  ]);
}

function writeLimit({ name, requestsPerUnit, unit }: CurrentLimit): Uint8Array {
  return writeFields([
    [1, uint32(requestsPerUnit)],
    [2, unit],
    [3, name],
  ]);
}

/**
 * Writes a duration in whole milliseconds. Rounds up, so that a client that waits for this time is
 * allowed.
 */
function writeDuration(ms: number): Uint8Array {
  const whole = Math.max(0, Math.ceil(ms));
  return writeFields([
    [1, Math.floor(whole / 1_000)],
    [2, (whole % 1_000) * 1_000_000],
  ]);
}

function writeHeader([name, value]: readonly [string, string]): Uint8Array {
  return writeFields([
    [1, name],
    [2, value],
  ]);
}

function uint32(value: number): number {
  return Math.min(0xffff_ffff, Math.max(0, Math.floor(value)));
}

/** The values of `grpc.health.v1.HealthCheckResponse.ServingStatus`. */
const SERVING = { yes: 1, no: 2 } as const;

/**
 * Returns the service that a `grpc.health.v1.HealthCheckRequest` asks about. "" is the whole
 * server.
 */
export function readHealthCheck(bytes: Uint8Array): string {
  return textOf(readFields(bytes), 1);
}

export function writeHealth(isServing: boolean): Uint8Array {
  return writeFields([[1, isServing ? SERVING.yes : SERVING.no]]);
}
