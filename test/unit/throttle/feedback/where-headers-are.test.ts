import { Metadata } from "@grpc/grpc-js";
import { describe, expect, it } from "vitest";
import { interpret } from "../../../../src/throttle/feedback/answer.ts";

const nowMs = Date.UTC(2026, 10, 21, 12, 0, 0);
const headers = { "Content-Type": "text/plain", "Retry-After": "5" };

function thrown(properties: object): Error {
  return Object.assign(new Error("the call failed"), properties);
}

describe("the headers of a response", () => {
  it.each<[string, object]>([
    ["response", { response: { status: 429, headers } }],
    [
      "rawResponse, as clients that Fern generates",
      { statusCode: 429, rawResponse: { status: 429, headers: new Headers(headers) } },
    ],
    [
      "rawResponse, beside metadata of one's own",
      { statusCode: 429, metadata: { tenant: "acme" }, rawResponse: { headers } },
    ],
    [
      "rawResponse, beside empty headers",
      { statusCode: 429, headers: {}, rawResponse: { headers } },
    ],
    [
      "rawResponse as a Response",
      { status: 429, rawResponse: new Response("", { status: 429, headers }) },
    ],
    [
      "httpMeta, as clients that Speakeasy generates",
      { httpMeta: { response: new Response("", { status: 429, headers }) } },
    ],
    ["raw", { raw: { statusCode: 429, headers } }],
    ["res", { res: { statusCode: 429, headers } }],
    ["$response", { $metadata: { httpStatusCode: 429 }, $response: { statusCode: 429, headers } }],
    ["the error itself", { status: 429, headers }],
    ["responseHeaders", { statusCode: 429, responseHeaders: headers }],
    ["a response in a response", { response: { response: { status: 429, headers } } }],
    [
      "rawHeaders of Node",
      { res: { statusCode: 429, rawHeaders: ["Content-Type", "text/plain", "Retry-After", "5"] } },
    ],
  ])("are found in %s", (_where, properties) => {
    const { answer } = interpret(thrown(properties), nowMs);

    expect(answer).toMatchObject({ status: 429, refused: true, afterMs: 5_000, stated: true });
  });

  it.each<[string, unknown]>([
    ["Headers", new Headers(headers)],
    ["a Map", new Map(Object.entries(headers))],
    ["pairs", Object.entries(headers)],
    ["a flat list", Object.entries(headers).flat()],
    [
      "objects with a name and a value",
      Object.entries(headers).map(([name, value]) => ({ name, value })),
    ],
    [
      "objects with a key and a value",
      Object.entries(headers).map(([key, value]) => ({ key, value })),
    ],
    ["an object", headers],
    ["an object of lists", { "retry-after": ["5"] }],
    [
      "an object with entries()",
      { get: () => null, entries: () => Object.entries(headers).values() },
    ],
    ["an object with get()", { get: (name: string) => (name === "retry-after" ? "5" : null) }],
  ])("are read as %s", (_form, given) => {
    const error = thrown({ statusCode: 429, rawResponse: { headers: given } });

    expect(interpret(error, nowMs).answer).toMatchObject({ afterMs: 5_000, stated: true });
  });

  it.each(["x-amz-retry-after", "x-amzn-retry-after"])(
    "are looked up by the name %s, in ms, if the client cannot list them",
    (usual) => {
      const given = { get: (name: string) => (name === usual ? "700" : null) };
      const error = thrown({ statusCode: 429, rawResponse: { headers: given } });

      expect(interpret(error, nowMs).answer).toMatchObject({ afterMs: 700, stated: true });
    },
  );

  it("in a result are those of its rawResponse too", () => {
    const result = { data: null, rawResponse: { status: 429, headers } };

    expect(interpret(result, nowMs).answer).toMatchObject({ refused: true, afterMs: 5_000 });
  });
});

const TRAILER = "grpc-status-details-bin";

function field(number: number, given: string | Buffer): Buffer {
  const bytes = Buffer.from(given as string);
  return Buffer.concat([Buffer.from([number * 8 + 2, bytes.length]), bytes]);
}

/** A RetryInfo of 7.5 s. */
const INFO = field(1, Buffer.from([8, 7, 16, 0x80, 0xca, 0xb5, 0xee, 0x01]));
const STATUS = Buffer.concat([
  Buffer.from([8, 8]),
  field(2, "Quota exceeded"),
  field(3, Buffer.concat([field(1, "type.googleapis.com/google.rpc.RetryInfo"), field(2, INFO)])),
]);

describe("the details of a refusal of gRPC", () => {
  const metadata = new Metadata();
  metadata.set(TRAILER, STATUS);
  const base64 = STATUS.toString("base64").replaceAll("=", "");

  it.each<[string, object]>([
    ["metadata of grpc-js", { code: 8, details: "Quota", metadata }],
    ["metadata without a text", { code: 8, metadata }],
    ["trailers", { code: 8, details: "", trailers: metadata }],
    ["Headers of a client for browsers", { code: 8, metadata: new Headers({ [TRAILER]: base64 }) }],
    ["a Map", { code: 8, metadata: new Map([[TRAILER, STATUS]]) }],
    ["an object", { code: 8, metadata: { [TRAILER]: STATUS } }],
    ["an object of lists", { code: 8, metadata: { [TRAILER]: [new Uint8Array(STATUS)] } }],
    ["an object with base64", { code: 8, metadata: { [TRAILER]: base64 } }],
    ["pairs", { code: 8, metadata: [[TRAILER, STATUS]] }],
    [
      "a copy of grpc-js's metadata",
      { code: 8, metadata: { internalRepr: new Map([[TRAILER, [STATUS]]]) } },
    ],
    ["a name in place of a code", { code: "RESOURCE_EXHAUSTED", metadata }],
    [
      "the list of Connect's clients",
      {
        code: 8,
        metadata: new Headers(),
        details: [{ type: "google.rpc.RetryInfo", value: new Uint8Array(INFO) }],
      },
    ],
    [
      "the extra of nice-grpc's",
      {
        code: 8,
        details: "Quota",
        extra: [{ $type: "google.rpc.RetryInfo", retryDelay: { seconds: 7, nanos: 500_000_000 } }],
      },
    ],
  ])("are read from %s", (_form, properties) => {
    const expected = { refused: true, afterMs: 7_500, stated: true };

    expect(interpret(thrown(properties), nowMs).answer).toMatchObject(expected);
    expect(
      interpret(new Error("wrapped", { cause: thrown(properties) }), nowMs).answer,
    ).toMatchObject(expected);
  });

  it("are read where a status is thrown that is no Error", () => {
    const status = { code: 8, details: "Quota exceeded", metadata };

    expect(interpret(status, nowMs).answer).toMatchObject({ refused: true, afterMs: 7_500 });
  });

  it("are read of an unavailable server too", () => {
    expect(
      interpret(thrown({ code: 14, details: "busy", metadata: { [TRAILER]: STATUS } }), nowMs)
        .answer,
    ).toMatchObject({ refused: true, afterMs: 7_500 });
  });
});
