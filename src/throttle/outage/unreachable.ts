/** Decides from the result or the error of a call whether its downstream is unreachable. */
import { interpret } from "../feedback/answer.ts";
import { grpcCodeOf, layersOf } from "../feedback/layers.ts";
import { readProperty } from "../feedback/properties.ts";

/** Statuses with which a proxy reports that it could not reach the server behind it: RFC 9110, and Cloudflare's own. */
const STATUSES: ReadonlySet<unknown> = new Set([502, 503, 504, 521, 522, 523, 524, 530]);

/** Codes and names of errors for an unreachable downstream. */
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
  // Sluice's own: a handler exceeded its timeout.
  "ERR_HANDLER_TIMEOUT",
]);
const NAMED = ["code", "errno", "name", "type"];
/** gRPC's DEADLINE_EXCEEDED and UNAVAILABLE. */
const GRPC_CODES: ReadonlySet<unknown> = new Set([4, 14]);
const MESSAGE =
  /^fetch failed$|^failed to fetch$|socket hang up|network (?:socket disconnected|error|timeout)/i;

/**
 * True if the downstream of a call is unreachable. A response that names a retry time came from a downstream that
 * works. Never throws, whatever the value is.
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
