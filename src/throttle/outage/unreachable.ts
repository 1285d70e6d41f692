/** Decides from a call's result or error whether the call's downstream is unreachable. */
import { interpret } from "../feedback/answer.ts";
import { grpcCodeOf, layersOf } from "../feedback/layers.ts";
import { readProperty } from "../feedback/properties.ts";

/**
 * HTTP statuses with which a proxy reports that it could not reach the server behind it. They come
 * from RFC 9110 and from Cloudflare.
 */
const STATUSES: ReadonlySet<unknown> = new Set([502, 503, 504, 521, 522, 523, 524, 530]);

/** Error codes and error names that mean an unreachable downstream. */
const CODES: ReadonlySet<unknown> = new Set([
  // From Node, libuv and the DNS resolver.
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
  // From undici, and therefore from `fetch`.
  "UND_ERR_CONNECT_TIMEOUT",
  "UND_ERR_HEADERS_TIMEOUT",
  "UND_ERR_BODY_TIMEOUT",
  "UND_ERR_SOCKET",
  "UND_ERR_CLOSED",
  "UND_ERR_DESTROYED",
  "UND_ERR_PRX_TLS",
  // From the clients of Axios, Got, ky, OpenAI, Anthropic, Stripe and MongoDB.
  "ERR_NETWORK",
  "TimeoutError",
  "ConnectTimeoutError",
  "APIConnectionError",
  "APIConnectionTimeoutError",
  "StripeConnectionError",
  "MongoNetworkError",
  "MongoServerSelectionError",
  "PROTOCOL_CONNECTION_LOST",
  // From Sluice itself: a handler exceeded its timeout.
  "ERR_HANDLER_TIMEOUT",
]);
const NAMED = ["code", "errno", "name", "type"];
/** The gRPC status codes DEADLINE_EXCEEDED and UNAVAILABLE. */
const GRPC_CODES: ReadonlySet<unknown> = new Set([4, 14]);
const MESSAGE =
  /^fetch failed$|^failed to fetch$|socket hang up|network (?:socket disconnected|error|timeout)/i;

/**
 * Returns true if the downstream of a call is unreachable. A response with a retry time proves that
 * the downstream works. Never throws, even for an unexpected value.
 */
export function isUnreachable(resultOrError: unknown): boolean {
  if (typeof resultOrError !== "object" || resultOrError === null) return false;
  const { status, stated } = interpret(resultOrError, Date.now()).answer;
  if (stated) return false;
  if (status !== undefined) return STATUSES.has(status);
  return layersOf(resultOrError).some(
    ({ source, isError }) => isError && (hasCode(source) || hasMessage(source)),
  );
}

function hasCode(source: object): boolean {
  return (
    NAMED.some((name) => CODES.has(readProperty(source, name))) ||
    GRPC_CODES.has(grpcCodeOf(source))
  );
}

function hasMessage(source: object): boolean {
  const message = readProperty(source, "message");
  return typeof message === "string" && message.length < 1_000 && MESSAGE.test(message);
}

/** System calls that come before a connection. ICMP errors of a later call may follow a sent request. */
const SYSCALLS: ReadonlySet<unknown> = new Set(["connect", "getaddrinfo"]);
/** Codes and names of errors that only a missing connection causes. */
const UNCONNECTED: ReadonlySet<unknown> = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "UND_ERR_CONNECT_TIMEOUT",
  "ConnectTimeoutError",
]);

/** Returns true if an error proves that no connection was made, so that no request was sent on it. Never throws. */
export function isUnconnected(error: unknown): boolean {
  if (typeof error !== "object" || error === null) return false;
  const layers = layersOf(error);
  if (layers.some(({ status }) => status !== undefined)) return false;
  return layers.some(
    ({ source, isError }) =>
      isError &&
      (SYSCALLS.has(readProperty(source, "syscall")) ||
        NAMED.some((name) => UNCONNECTED.has(readProperty(source, name)))),
  );
}
