/** Tells from what a call threw, or returned, that its downstream is away: it could not be reached, or gave no answer. */
import { hear } from "../feedback/answer.ts";
import { grpcCodeOf, layersOf } from "../feedback/layers.ts";
import { readProperty } from "../feedback/properties.ts";

/** Statuses of a proxy that does not reach what is behind it (RFC 9110), and the same of Cloudflare. */
const STATUSES: ReadonlySet<unknown> = new Set([502, 503, 504, 521, 522, 523, 524, 530]);

/** Codes and names by which clients say so. */
const CODES: ReadonlySet<unknown> = new Set([
  // Node, libuv and the resolver.
  "ECONNREFUSED",
  "ECONNRESET",
  "ECONNABORTED",
  "ECONNCLOSED",
  "EPIPE",
  "ETIMEDOUT",
  "ESOCKETTIMEDOUT",
  "EHOSTUNREACH",
  "EHOSTDOWN",
  "ENETUNREACH",
  "ENETDOWN",
  "ENETRESET",
  "EADDRNOTAVAIL",
  "ENOTFOUND",
  "ENODATA",
  "ESERVFAIL",
  "EREFUSED",
  "ETIMEOUT",
  "EAI_AGAIN",
  "EAI_FAIL",
  "EAI_NODATA",
  "EAI_NONAME",
  "ERR_SOCKET_CONNECTION_TIMEOUT",
  "ERR_STREAM_PREMATURE_CLOSE",
  "ERR_HTTP2_GOAWAY_SESSION",
  "ERR_HTTP2_SESSION_ERROR",
  "ERR_HTTP2_PING_CANCEL",
  // undici, and so fetch.
  "UND_ERR_CONNECT_TIMEOUT",
  "UND_ERR_HEADERS_TIMEOUT",
  "UND_ERR_BODY_TIMEOUT",
  "UND_ERR_SOCKET",
  "UND_ERR_CLOSED",
  "UND_ERR_DESTROYED",
  "UND_ERR_PRX_TLS",
  // Axios, Got, ky, OpenAI, Anthropic, Stripe, MongoDB.
  "ERR_NETWORK",
  "TimeoutError",
  "ConnectTimeoutError",
  "APIConnectionError",
  "APIConnectionTimeoutError",
  "StripeConnectionError",
  "MongoNetworkError",
  "MongoServerSelectionError",
  "PROTOCOL_CONNECTION_LOST",
  // A handler that did not end within its time.
  "ERR_HANDLER_TIMEOUT",
]);
const NAMED = ["code", "errno", "name", "type"];
/** gRPC's DEADLINE_EXCEEDED and UNAVAILABLE. */
const GRPC_CODES: ReadonlySet<unknown> = new Set([4, 14]);
const WORDS =
  /^fetch failed$|^failed to fetch$|socket hang up|network (?:socket disconnected|error|timeout)/i;

/**
 * Whether a call's downstream is away. An answer that names a time is no such: its downstream is there, and has asked
 * to wait. Never throws, whatever comes in.
 */
export function isAway(resultOrError: unknown): boolean {
  if (typeof resultOrError !== "object" || resultOrError === null) return false;
  const { status, stated } = hear(resultOrError, Date.now()).answer;
  if (stated) return false;
  if (status !== undefined) return STATUSES.has(status);
  return layersOf(resultOrError).some(
    ({ source, isError }) => isError && (hasCode(source) || saysSo(source)),
  );
}

function hasCode(source: object): boolean {
  return (
    NAMED.some((name) => CODES.has(readProperty(source, name))) ||
    GRPC_CODES.has(grpcCodeOf(source))
  );
}

function saysSo(source: object): boolean {
  const message = readProperty(source, "message");
  return typeof message === "string" && message.length < 1_000 && WORDS.test(message);
}
