/**
 * The details of a gRPC error, which come in its trailers as `google.rpc.Status` in the encoding of Protocol Buffers:
 * https://protobuf.dev/programming-guides/encoding/ and google/rpc/error_details.proto.
 */
import { readProperty } from "./properties.ts";

/** Its code for a quota that is used up. */
export const RESOURCE_EXHAUSTED = 8;
/** Its code for a server that takes no calls, or cannot be reached. */
export const UNAVAILABLE = 14;

/** The code of an error in the form of gRPC: other errors have small numbers as codes too. */
export function grpcCodeOf(error: object): unknown {
  const isGrpc =
    typeof readProperty(error, "metadata") === "object" ||
    typeof readProperty(error, "details") === "string";
  return isGrpc ? readProperty(error, "code") : undefined;
}

const TRAILER = "grpc-status-details-bin";
/** Larger trailers are not sent. */
const MOST_BYTES = 65_536;
const MOST_FIELDS = 1_000;

type Field = number | Uint8Array;

/** The details that a gRPC client keeps in an error's metadata, as their JSON would be; empty if there are none. Never throws. */
export function readGrpcDetails(error: object): readonly object[] {
  try {
    const bytes = trailerOf(readProperty(error, "metadata"));
    if (bytes === undefined || bytes.length > MOST_BYTES) return [];
    return fieldsOf(bytes)
      .filter(([number, value]) => number === 3 && typeof value !== "number")
      .map(([, value]) => detailOf(value as Uint8Array));
  } catch {
    // Cut short, or no Protocol Buffers at all.
    return [];
  }
}

function trailerOf(metadata: unknown): Uint8Array | undefined {
  const get = readProperty(metadata, "get");
  if (typeof get !== "function") return undefined;
  const found: unknown = get.call(metadata, TRAILER);
  const first: unknown = Array.isArray(found) ? found[0] : found;
  if (typeof first === "string") return Buffer.from(first, "base64");
  return first instanceof Uint8Array ? first : undefined;
}

/** A `google.protobuf.Any`. */
function detailOf(bytes: Uint8Array): object {
  const fields = fieldsOf(bytes);
  const type = textOf(fields, 1);
  const value = bytesOf(fields, 2);
  if (value === undefined) return {};
  const parts = fieldsOf(value);
  if (type.endsWith("google.rpc.RetryInfo")) {
    const duration = fieldsOf(bytesOf(parts, 1) ?? new Uint8Array());
    return {
      "@type": type,
      retryDelay: { seconds: countOf(duration, 1), nanos: countOf(duration, 2) },
    };
  }
  if (type.endsWith("google.rpc.QuotaFailure")) {
    const violations = parts.flatMap(([number, given]) =>
      number === 1 && typeof given !== "number" ? [violationOf(fieldsOf(given))] : [],
    );
    return { "@type": type, violations };
  }
  if (type.endsWith("google.rpc.ErrorInfo")) {
    return { "@type": type, reason: textOf(parts, 1), domain: textOf(parts, 2) };
  }
  return {};
}

function violationOf(fields: readonly (readonly [number, Field])[]): object {
  return {
    description: textOf(fields, 2),
    quotaMetric: textOf(fields, 4),
    quotaId: textOf(fields, 5),
  };
}

/** The fields of a message: numbers and bytes. */
function fieldsOf(bytes: Uint8Array): (readonly [number, Field])[] {
  const fields: (readonly [number, Field])[] = [];
  let at = 0;
  function varint(): number {
    let value = 0;
    for (let scale = 1; at < bytes.length; scale *= 128) {
      const byte = bytes[at]!;
      at += 1;
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
    throw new RangeError("The message ends too early");
  }
  while (at < bytes.length && fields.length < MOST_FIELDS) {
    const tag = varint();
    const [number, wire] = [Math.floor(tag / 8), tag & 7];
    if (wire === 0) fields.push([number, varint()]);
    else if (wire === 2) {
      const length = varint();
      fields.push([number, bytes.subarray(at, at + length)]);
      at += length;
    } else if (wire === 1 || wire === 5) at += wire === 1 ? 8 : 4;
    else throw new RangeError("No such type of field");
  }
  return fields;
}

function bytesOf(
  fields: readonly (readonly [number, Field])[],
  number: number,
): Uint8Array | undefined {
  const value = fields.find(([given]) => given === number)?.[1];
  return typeof value === "number" ? undefined : value;
}

function textOf(fields: readonly (readonly [number, Field])[], number: number): string {
  return Buffer.from(bytesOf(fields, number) ?? []).toString();
}

function countOf(fields: readonly (readonly [number, Field])[], number: number): number {
  const value = fields.find(([given]) => given === number)?.[1];
  return typeof value === "number" ? value : 0;
}
