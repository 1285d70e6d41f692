/**
 * The details of a gRPC error, which come in its trailers as `google.rpc.Status` in the encoding of Protocol Buffers:
 * google/rpc/error_details.proto.
 */
import {
  allBytesOf,
  bytesOf,
  countOf,
  readFields,
  textOf,
  type Fields,
} from "../../core/input/protobuf.ts";
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

/** The details that a gRPC client keeps in an error's metadata, as their JSON would be; empty if there are none. Never throws. */
export function readGrpcDetails(error: object): readonly object[] {
  try {
    const bytes = trailerOf(readProperty(error, "metadata"));
    if (bytes === undefined || bytes.length > MOST_BYTES) return [];
    return allBytesOf(fieldsOf(bytes), 3).map(detailOf);
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
    const violations = allBytesOf(parts, 1).map((given) => violationOf(fieldsOf(given)));
    return { "@type": type, violations };
  }
  if (type.endsWith("google.rpc.ErrorInfo")) {
    return { "@type": type, reason: textOf(parts, 1), domain: textOf(parts, 2) };
  }
  return {};
}

function violationOf(fields: Fields): object {
  return {
    description: textOf(fields, 2),
    quotaMetric: textOf(fields, 4),
    quotaId: textOf(fields, 5),
  };
}

function fieldsOf(bytes: Uint8Array): Fields {
  return readFields(bytes, MOST_FIELDS);
}
