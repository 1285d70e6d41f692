/**
 * Finds the responses inside a result or an error. An error may wrap other errors, and each error may have a response
 * with headers and a body.
 */
import { types } from "node:util";
import {
  allBytesOf,
  bytesOf,
  countOf,
  readFields,
  textOf,
  type Fields,
} from "../../core/input/protobuf.ts";
import {
  BODIES,
  CODES_OF_ERRORS,
  HEADERS,
  PARTS,
  PARTS_OF_ERRORS,
  STATUSES,
  WAITS,
  WAITS_IN_MS,
  WITHIN,
} from "./dialects.ts";
import { listHeaders } from "./headers.ts";
import { readOwnProperty, readProperty } from "./properties.ts";
import { readDelayMs, readWaitMs } from "./retry-after.ts";

/** One error in a chain of errors, or a result. */
export interface Layer {
  readonly source: object;
  /** The objects that may have a status and headers. The most reliable object comes first. */
  readonly parts: readonly object[];
  readonly status: number | undefined;
  readonly headers: object | undefined;
  /** True if the source is an error. Its own name and codes then count too. */
  readonly isError: boolean;
}

/** The bounds for reading errors: the most layers, the most errors of one list, and the deepest nesting. */
const [MOST_LAYERS, MOST_ERRORS, DEEPEST] = [40, 20, 10];

/**
 * Returns the layers of a result or an error, followed by the layers of the errors inside it, the outermost first.
 * Never throws.
 */
export function layersOf(source: object): readonly Layer[] {
  const layers: Layer[] = [];
  const seen = new Set<object>();
  let level: object[] = [source];
  for (let depth = 0; depth <= DEEPEST && level.length > 0; depth++) {
    const below: object[] = [];
    for (const each of level) {
      if (seen.has(each) || layers.length >= MOST_LAYERS) continue;
      seen.add(each);
      const layer = layerOf(each);
      layers.push(layer);
      below.push(...errorsWithin(layer));
    }
    level = below;
  }
  return layers;
}

function layerOf(source: object): Layer {
  const isError = isErrorLike(source) || isGrpcStatus(source);
  // The response comes before the error itself, because an app may have set its own status on the error.
  const names = isError ? [...PARTS, ...PARTS_OF_ERRORS] : PARTS;
  const within = names.map((name) => readProperty(source, name));
  // Clients that never throw, such as Resend's, return `data: null` and an error.
  const isWithoutData = !isError && !isResponse(source) && readProperty(source, "data") === null;
  if (isWithoutData) within.push(readProperty(source, "error"));
  const parts = [readProperty(source, "response"), source, ...within].filter(isObject);
  // Some errors wrap the response once more, for example an app's own error with an Axios error inside.
  const inner = parts.map((part) => (part === source ? undefined : readProperty(part, "response")));
  parts.push(...inner.filter(isObject));
  const status = firstOf(parts, (part) => statusOf(part, isError));
  return { source, parts, status, headers: headersIn(parts), isError };
}

/**
 * Merges the headers of the objects in `parts`. If several objects have the same header, the most reliable object wins.
 */
function headersIn(parts: readonly object[]): object | undefined {
  const found = new Set(parts.flatMap(headersOf));
  const [first, ...others] = found;
  if (others.length === 0) return first;
  const all = new Map<string, string>();
  for (const headers of found) {
    for (const [name, value] of listHeaders(headers)) if (!all.has(name)) all.set(name, value);
  }
  return all;
}

/** Returns the HTTP status of a response, or of the response inside an error. */
export function statusIn(source: object): number | undefined {
  return layerOf(source).status;
}

/**
 * Returns the status of a returned response. This is an object with headers: the result itself, or its property
 * `response` or `rawResponse`.
 */
export function responseStatusIn(result: unknown): number | undefined {
  if (!isObject(result) || isErrorLike(result)) return undefined;
  const places = [result, ...["response", "rawResponse"].map((name) => readProperty(result, name))];
  return firstOf(places.filter(isObject), (place) => {
    const hasHeaders = ["headers", "rawHeaders"].some((name) =>
      isObject(readProperty(place, name)),
    );
    return hasHeaders ? statusOf(place, false) : undefined;
  });
}

/**
 * Returns the errors inside an error. In a result, only `cause` and an `error` that looks like one count, because other
 * properties are data.
 */
function errorsWithin({ source, isError }: Layer): readonly object[] {
  if (!isError) {
    const error = readProperty(source, "error");
    return [readProperty(source, "cause"), isObject(error) && isErrorLike(error) && error].filter(
      isObject,
    );
  }
  const named = WITHIN.map((name) => readProperty(source, name)).filter(isObject);
  const lists = ["errors", "graphQLErrors"].map((name) => listIn(readProperty(source, name)));
  return [...named, ...lists.flat()];
}

/** Returns the objects in a list of errors, the last error first. */
function listIn(errors: unknown): readonly object[] {
  try {
    if (!Array.isArray(errors)) return [];
    return errors.slice(-MOST_ERRORS).filter(isObject).toReversed();
  } catch {
    return [];
  }
}

/** Returns the possible bodies of a layer, parsed or as text. */
export function bodiesOf({ source, parts, isError }: Layer): readonly unknown[] {
  const bodies = parts.flatMap((part) => {
    const read = isResponse(part) ? readOwnProperty : readProperty;
    return BODIES.map((name) => read(part, name));
  });
  // Telegram's clients store the body in `response`.
  const response = readProperty(source, "response");
  if (isError && isObject(response) && statusOf(response, true) === undefined)
    bodies.push(response);
  const message = isError ? readProperty(source, "message") : undefined;
  const jsonAt = typeof message === "string" ? message.indexOf("{") : -1;
  if (jsonAt !== -1) bodies.push((message as string).slice(jsonAt));
  return bodies.filter((body) => typeof body === "string" || isPlainBody(body));
}

/** True for a parsed body. Streams cannot be read here, and an error is a separate layer. */
function isPlainBody(body: unknown): boolean {
  if (!isObject(body) || isErrorLike(body)) return false;
  return (
    typeof readProperty(body, "getReader") !== "function" &&
    typeof readProperty(body, "pipe") !== "function"
  );
}

/** Returns the codes in the properties of an error itself. */
export function codesOf({ source }: Layer): readonly unknown[] {
  // Quota errors of browser storage or of `getRandomValues()` do not come from a downstream.
  if (source instanceof DOMException) return [];
  return CODES_OF_ERRORS.map((name) => readProperty(source, name));
}

/**
 * Returns the wait in the properties of an error itself, in ms. Slack uses seconds and discord.js uses ms. Others name
 * the unit in the property's name.
 */
export function ownWaitOf(source: object, wallNowMs: number): number | undefined {
  const isInMs = typeof readProperty(source, "timeToReset") === "number";
  const inMs = WAITS_IN_MS.map((name) => readDelayMs(readProperty(source, name), 1));
  const seconds = WAITS.map((name) => {
    const value = readProperty(source, name);
    // AWS SDK v2 stores its own backoff in ms under this name, so it is not a wait that the server asked for.
    if (name === "retryDelay" && typeof value === "number") return undefined;
    return isInMs ? readDelayMs(value, 1) : readWaitMs(value, wallNowMs);
  });
  return [...inMs, ...seconds].find((waitMs) => waitMs !== undefined);
}

/** True for a response of `fetch`, also if its class comes from another realm or package. */
export function isResponse(value: unknown): value is Response {
  return (
    typeof readProperty(value, "clone") === "function" &&
    typeof readProperty(value, "status") === "number"
  );
}

function statusOf(part: object, isError: boolean): number | undefined {
  const given = STATUSES.map((name) => readProperty(part, name));
  const status = firstOf(given, (value) => toStatus(value, isError));
  if (status !== undefined || !isError) return status;
  // Only codes from 400 count, because many errors have small numbers as codes, for example exit codes of processes.
  const codes = ["code", "error_code"].map((name) => toStatus(readProperty(part, name), isError));
  return codes.find((code) => code !== undefined && code >= 400);
}

function toStatus(value: unknown, isError: boolean): number | undefined {
  const number =
    isError && typeof value === "string" && /^\d{3}$/.test(value) ? Number(value) : value;
  const isStatus =
    Number.isInteger(number) && (number as number) >= 100 && (number as number) <= 599;
  return isStatus ? (number as number) : undefined;
}

function headersOf(part: object): readonly object[] {
  return HEADERS.map((name) => readProperty(part, name)).filter(isObject);
}

function firstOf<Item, Found>(
  items: readonly Item[],
  read: (item: Item) => Found | undefined,
): Found | undefined {
  for (const item of items) {
    const found = read(item);
    if (found !== undefined) return found;
  }
  return undefined;
}

export function isErrorLike(value: object): boolean {
  if (types.isNativeError(value)) return true;
  try {
    if (value instanceof Error) return true;
  } catch {
    return false;
  }
  return (
    typeof readProperty(value, "stack") === "string" &&
    typeof readProperty(value, "message") === "string"
  );
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

/** The gRPC code for a used-up quota. */
export const RESOURCE_EXHAUSTED = 8;
/** The gRPC code for a server that accepts no calls or is unreachable. */
export const UNAVAILABLE = 14;

/**
 * Returns the code of a gRPC error, as a number if known. Clients use numbers or names. Undefined for other errors,
 * whose codes may be small numbers too.
 */
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

/** True for a plain object that is a gRPC status: a failure code, and metadata with error details. */
function isGrpcStatus(value: object): boolean {
  const code = grpcCodeOf(value);
  const isFailed = code === RESOURCE_EXHAUSTED || code === UNAVAILABLE;
  return isFailed && trailerOf(value) !== undefined;
}

/** The properties in which clients store the metadata of an error. */
const METADATA = ["metadata", "trailers", "trailer", "trailingMetadata"] as const;
const TRAILER = "grpc-status-details-bin";
/** The largest trailer that is read, in bytes. Servers send no larger ones. */
const MOST_BYTES = 65_536;
const MOST_FIELDS = 1_000;

/**
 * Returns the details of a gRPC error, in the shape of their JSON form. They come from the trailer, or from the list
 * that the client has decoded. The trailer is a `google.rpc.Status` in Protocol Buffers: see
 * google/rpc/error_details.proto. Never throws.
 */
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
    // The bytes are cut short, or are not Protocol Buffers.
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

/**
 * Returns the trailer in metadata. The metadata may come from grpc-js, or be a `Headers`, a `Map`, a list of pairs or
 * an object.
 */
function valueIn(metadata: unknown): unknown {
  if (typeof metadata !== "object" || metadata === null) return undefined;
  const get = readProperty(metadata, "get");
  if (typeof get === "function") return get.call(metadata, TRAILER);
  // If metadata of grpc-js was logged or sent to another thread, only this property remains.
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

/** Returns the details in the list of Connect's clients, where each detail has a type and bytes. */
function listedIn(error: object): readonly object[] {
  const details = readProperty(error, "details");
  if (!Array.isArray(details)) return [];
  return details.slice(0, MOST_FIELDS).flatMap((detail: unknown) => {
    const type = readProperty(detail, "type");
    const value = bytesIn(readProperty(detail, "value"));
    return typeof type === "string" && value !== undefined ? [detailOf(type, value)] : [];
  });
}

/** Decodes the content of a `google.protobuf.Any`. */
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
