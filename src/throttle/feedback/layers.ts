/**
 * Finds where clients keep a response: an error may wrap others, and each may have a response with headers and a body.
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

/** One error of a chain, or a result. */
export interface Layer {
  readonly source: object;
  /** The objects that may have a status and headers, the most reliable first. */
  readonly parts: readonly object[];
  readonly status: number | undefined;
  readonly headers: object | undefined;
  /** True if it was thrown: then its own name and codes count too. */
  readonly isError: boolean;
}

/** How many errors are read, and how deeply they may be nested. */
const [MOST_LAYERS, MOST_ERRORS, DEEPEST] = [40, 20, 10];

/** A result or an error, and the errors inside it, the outermost first. Never throws. */
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
  // An app may have given its error a status from the response inside.
  const names = isError ? [...PARTS, ...PARTS_OF_ERRORS] : PARTS;
  const within = names.map((name) => readProperty(source, name));
  // A client that never throws, such as Resend's, returns `data: null` and an error.
  const isWithoutData = !isError && !isResponse(source) && readProperty(source, "data") === null;
  if (isWithoutData) within.push(readProperty(source, "error"));
  const parts = [readProperty(source, "response"), source, ...within].filter(isObject);
  // Some wrap the response once more, for example an Axios error inside an app's own error.
  const inner = parts.map((part) => (part === source ? undefined : readProperty(part, "response")));
  parts.push(...inner.filter(isObject));
  const status = firstOf(parts, (part) => statusOf(part, isError));
  return { source, parts, status, headers: headersIn(parts), isError };
}

/** The headers of all parts; the most reliable part wins. */
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

/** The HTTP status of an error's response, or of a response. */
export function statusIn(source: object): number | undefined {
  return layerOf(source).status;
}

/** The status of a returned response: of an object with headers, which is the result itself or under `response`. */
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

/** The causes of an error. Other properties of a result are data. */
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

/** The last error first. */
function listIn(errors: unknown): readonly object[] {
  try {
    if (!Array.isArray(errors)) return [];
    return errors.slice(-MOST_ERRORS).filter(isObject).toReversed();
  } catch {
    return [];
  }
}

/** Possible bodies of a layer, parsed or as text. */
export function bodiesOf({ source, parts, isError }: Layer): readonly unknown[] {
  const bodies = parts.flatMap((part) => {
    const read = isResponse(part) ? readOwnProperty : readProperty;
    return BODIES.map((name) => read(part, name));
  });
  // Telegram's clients keep the body in `response`.
  const response = readProperty(source, "response");
  if (isError && isObject(response) && statusOf(response, true) === undefined)
    bodies.push(response);
  const message = isError ? readProperty(source, "message") : undefined;
  const jsonAt = typeof message === "string" ? message.indexOf("{") : -1;
  if (jsonAt !== -1) bodies.push((message as string).slice(jsonAt));
  return bodies.filter((body) => typeof body === "string" || isPlainBody(body));
}

/** A stream cannot be read here, and an error is a layer of its own. */
function isPlainBody(body: unknown): boolean {
  if (!isObject(body) || isErrorLike(body)) return false;
  return (
    typeof readProperty(body, "getReader") !== "function" &&
    typeof readProperty(body, "pipe") !== "function"
  );
}

/** The error's own codes. */
export function codesOf({ source }: Layer): readonly unknown[] {
  // The quota errors of a storage, or of `getRandomValues()`, are not a downstream's.
  if (source instanceof DOMException) return [];
  return CODES_OF_ERRORS.map((name) => readProperty(source, name));
}

/**
 * The wait in an error's own properties: Slack's in seconds, discord.js's in ms, and others by names that say the unit.
 */
export function ownWaitOf(source: object, wallNowMs: number): number | undefined {
  const isInMs = typeof readProperty(source, "timeToReset") === "number";
  const inMs = WAITS_IN_MS.map((name) => readDelayMs(readProperty(source, name), 1));
  const seconds = WAITS.map((name) => {
    const value = readProperty(source, name);
    // AWS SDK v2 keeps its own backoff, in ms, under this name.
    if (name === "retryDelay" && typeof value === "number") return undefined;
    return isInMs ? readDelayMs(value, 1) : readWaitMs(value, wallNowMs);
  });
  return [...inMs, ...seconds].find((waitMs) => waitMs !== undefined);
}

/** True for a response of `fetch`, from any realm or package. */
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
  // Many errors have small numbers as codes, for example exit codes of processes.
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

/** gRPC's code for a used-up quota. */
export const RESOURCE_EXHAUSTED = 8;
/** gRPC's code for a server that accepts no calls, or cannot be reached. */
export const UNAVAILABLE = 14;

/** The code of a gRPC error; other errors have small numbers as codes too. Clients use numbers or names. */
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

/** True for a gRPC status that is not an `Error`: its metadata has error details. */
function isGrpcStatus(value: object): boolean {
  const code = grpcCodeOf(value);
  const isFailed = code === RESOURCE_EXHAUSTED || code === UNAVAILABLE;
  return isFailed && trailerOf(value) !== undefined;
}

/** Where clients keep the metadata of an error. */
const METADATA = ["metadata", "trailers", "trailer", "trailingMetadata"] as const;
const TRAILER = "grpc-status-details-bin";
/** Servers do not send larger trailers. */
const MOST_BYTES = 65_536;
const MOST_FIELDS = 1_000;

/**
 * The details of a gRPC error in the shape of their JSON, from its trailer or as its client has listed them. The
 * trailer is a `google.rpc.Status` in Protocol Buffers: see google/rpc/error_details.proto. Never throws.
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

/** The trailer in the metadata of grpc-js, or in a `Headers`, a `Map`, pairs or an object. */
function valueIn(metadata: unknown): unknown {
  if (typeof metadata !== "object" || metadata === null) return undefined;
  const get = readProperty(metadata, "get");
  if (typeof get === "function") return get.call(metadata, TRAILER);
  // What remains of grpc-js's metadata after it was logged or sent to another thread.
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

/** The content of a `google.protobuf.Any`. */
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
