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

/** The code of an error in the form of gRPC: other errors have small numbers as codes too. Clients give numbers or names. */
export function grpcCodeOf(error: object): unknown {
  const isGrpc =
    METADATA.some((name) => typeof readProperty(error, name) === "object") ||
    typeof readProperty(error, "details") === "string";
  const code = isGrpc ? readProperty(error, "code") : undefined;
  return typeof code === "string" ? CODES.get(code.toLowerCase().replaceAll("_", "")) : code;
}

const CODES: ReadonlyMap<string, number> = new Map([
  ["resourceexhausted", RESOURCE_EXHAUSTED],
  ["unavailable", UNAVAILABLE],
]);

/** Whether an object that is no Error is one of gRPC all the same: its metadata has the details of one. */
export function isGrpcStatus(value: object): boolean {
  const code = grpcCodeOf(value);
  const isFailed = code === RESOURCE_EXHAUSTED || code === UNAVAILABLE;
  return isFailed && trailerOf(value) !== undefined;
}

/** Where clients keep what came with an error. */
const METADATA = ["metadata", "trailers", "trailer", "trailingMetadata"] as const;
const TRAILER = "grpc-status-details-bin";
/** Larger trailers are not sent. */
const MOST_BYTES = 65_536;
const MOST_FIELDS = 1_000;

/** The details of an error, in the trailer or as its client has listed them, as their JSON would be. Never throws. */
export function readGrpcDetails(error: object): readonly object[] {
  try {
    const bytes = trailerOf(error);
    if (bytes === undefined) return listedIn(error);
    if (bytes.length > MOST_BYTES) return [];
    return allBytesOf(fieldsOf(bytes), 3).map((each) => {
      const fields = fieldsOf(each);
      return detailOf(textOf(fields, 1), bytesOf(fields, 2));
    });
  } catch {
    // Cut short, or no Protocol Buffers at all.
    return [];
  }
}

function trailerOf(error: object): Uint8Array | undefined {
  for (const name of METADATA) {
    const bytes = bytesIn(valueIn(readProperty(error, name)));
    if (bytes !== undefined) return bytes;
  }
  return undefined;
}

/** The trailer in the metadata of grpc-js, in a `Headers`, a `Map`, pairs or an object. */
function valueIn(metadata: unknown): unknown {
  if (typeof metadata !== "object" || metadata === null) return undefined;
  const get = readProperty(metadata, "get");
  if (typeof get === "function") return get.call(metadata, TRAILER);
  // What a logger or a message to another thread keeps of grpc-js's.
  const inside = readProperty(metadata, "internalRepr");
  if (inside instanceof Map) return inside.get(TRAILER);
  if (Array.isArray(metadata)) {
    const at = metadata.indexOf(TRAILER);
    if (at !== -1) return metadata[at + 1];
    return metadata.find((pair) => Array.isArray(pair) && pair[0] === TRAILER)?.[1];
  }
  return readProperty(metadata, TRAILER);
}

function bytesIn(value: unknown): Uint8Array | undefined {
  const first: unknown = Array.isArray(value) ? value[0] : value;
  if (typeof first === "string" && first !== "") return Buffer.from(first, "base64");
  return first instanceof Uint8Array ? first : undefined;
}

/** Connect's clients list the details of an error, each with its type and bytes. */
function listedIn(error: object): readonly object[] {
  const details = readProperty(error, "details");
  if (!Array.isArray(details)) return [];
  return details.slice(0, MOST_FIELDS).flatMap((detail: unknown) => {
    const type = readProperty(detail, "type");
    const value = bytesIn(readProperty(detail, "value"));
    return typeof type === "string" && value !== undefined ? [detailOf(type, value)] : [];
  });
}

/** What a `google.protobuf.Any` holds. */
function detailOf(type: string, value: Uint8Array | undefined): object {
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
