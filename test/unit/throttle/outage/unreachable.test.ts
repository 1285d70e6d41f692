import { describe, expect, it } from "vitest";
import { isUnreachable } from "../../../../src/throttle/outage/unreachable.ts";

function coded(code: string | number, message = "no", more: object = {}): Error {
  return Object.assign(new Error(message), { code, ...more });
}

function named(name: string): Error {
  return Object.assign(new Error("no"), { name });
}

const refused = coded("ECONNREFUSED", "connect ECONNREFUSED 127.0.0.1:1");

describe("an error means that the downstream is unreachable", () => {
  it.each<[string, unknown]>([
    ["a connection is refused", refused],
    ["it is reset", coded("ECONNRESET", "read ECONNRESET")],
    ["a name cannot be resolved", coded("ENOTFOUND", "getaddrinfo ENOTFOUND x")],
    ["the resolver does not answer", coded("EAI_AGAIN")],
    ["it hangs up", new Error("socket hang up")],
    ["fetch fails", new TypeError("fetch failed", { cause: refused })],
    ["fetch fails without a cause", new TypeError("fetch failed")],
    ["a host has two addresses", new AggregateError([refused, coded("ENETUNREACH")])],
    [
      "the same within a fetch",
      new TypeError("fetch failed", { cause: new AggregateError([refused]) }),
    ],
    ["undici waits for headers", coded("UND_ERR_HEADERS_TIMEOUT")],
    ["undici waits to connect", new Error("x", { cause: coded("UND_ERR_CONNECT_TIMEOUT") })],
    [
      "axios times out",
      coded("ECONNABORTED", "timeout of 1000ms exceeded", { name: "AxiosError" }),
    ],
    ["axios has a network error", coded("ERR_NETWORK", "Network Error", { name: "AxiosError" })],
    ["AbortSignal.timeout()", new DOMException("timed out", "TimeoutError")],
    ["OpenAI's client", Object.assign(named("Error"), { constructor: {}, cause: refused })],
    ["Stripe's client", Object.assign(new Error("x"), { type: "StripeConnectionError" })],
    ["gRPC is unavailable", coded(14, "14 UNAVAILABLE", { details: "no", metadata: {} })],
    ["gRPC is too late", coded(4, "4 DEADLINE_EXCEEDED", { details: "no", metadata: {} })],
    ["a proxy says 502", Object.assign(new Error("x"), { status: 502 })],
    ["a proxy says 503", new Error("x", { cause: new Response("", { status: 503 }) })],
    ["a proxy says 504", { response: { status: 504, headers: {} }, stack: "", message: "x" }],
    ["Cloudflare says 522", Object.assign(new Error("x"), { statusCode: 522 })],
    ["a handler took too long", coded("ERR_HANDLER_TIMEOUT")],
    ["five deep", [1, 2, 3, 4].reduce<Error>((cause) => new Error("w", { cause }), refused)],
  ])("when %s", (_what, error) => {
    expect(isUnreachable(error)).toBe(true);
  });

  it.each<[string, unknown]>([
    ["an error of its own", new Error("no such charge")],
    ["a 429", Object.assign(new Error("x"), { status: 429 })],
    ["a 500", Object.assign(new Error("x"), { status: 500 })],
    ["a 404 of axios", coded("ERR_BAD_REQUEST", "x", { response: { status: 404, headers: {} } })],
    [
      "a 503 that names a time",
      new Error("x", { cause: new Response("", { status: 503, headers: { "Retry-After": "3" } }) }),
    ],
    ["an abort by hand", new DOMException("aborted", "AbortError")],
    ["a text", "ECONNREFUSED"],
    ["nothing", undefined],
    ["null", null],
    ["data", { code: "ECONNREFUSED" }],
    [
      "getters that throw",
      Object.defineProperty(new Error("x"), "code", {
        get() {
          throw new Error("no");
        },
      }),
    ],
  ])("but not %s", (_what, error) => {
    expect(isUnreachable(error)).toBe(false);
  });
});
