import { describe, expect, it } from "vitest";
import { EXTRA_HEADERS, urlSchema } from "../../../src/webhooks/guard/target.ts";

describe("the URL of an endpoint", () => {
  const secure = urlSchema({ http: false });
  const plain = urlSchema({ http: true });

  it.each([
    "https://example.com/hooks?a=1",
    "https://example.com:8443//host",
    "https://[2606::1]/",
    "https://hooks.example.com.:65535/",
    `https://${"a".repeat(63)}.example.com/`,
  ])("may be %s", (url) => expect(secure.safeParse(url).success).toBe(true));

  it.each([
    "http://example.com/",
    "ftp://example.com/",
    "javascript:alert(1)",
    "//example.com/",
    "example.com",
    "https://user@example.com/",
    "https://:pw@example.com/",
    "https://example.com/#part",
    "https://",
    "https://./",
    "https://.../",
    "https://example.com../",
    "https://hooks..example.com/",
    `https://${"a".repeat(64)}.example.com/`,
    `https://${"a.".repeat(150)}com/`,
    "https://example.com:0/",
    "https://example.com:65536/",
    "https://[fe80::1%25eth0]/",
    `https://example.com/${"a".repeat(2_048)}`,
    "",
  ])("may not be %s", (url) => expect(secure.safeParse(url).success).toBe(false));

  it("may be plain HTTP where that was declared", () => {
    expect(plain.safeParse("http://example.com/").success).toBe(true);
    expect(plain.safeParse("ws://example.com/").success).toBe(false);
  });
});

const SENDERS_OWN = [
  "content-type",
  "content-encoding",
  "accept-encoding",
  "keep-alive",
  "te",
  "trailer",
  "upgrade",
  "via",
  "forwarded",
  "x-forwarded-for",
  "x-github-event",
  "x-github-delivery",
  "stripe-signature",
];

describe("the headers of an endpoint", () => {
  it.each<[string, Record<string, string>]>([
    ["a token", { authorization: "Bearer abc" }],
    ["text in Latin-1", { "x-team": "Zürich, ok" }],
  ])("may have %s", (_what, headers) => {
    expect(EXTRA_HEADERS.safeParse(headers).success).toBe(true);
  });

  it.each<[string, Record<string, unknown>]>([
    ["a line break", { "x-a": "a\r\nx-b: c" }],
    ["a line feed", { "x-a": "a\nb" }],
    ["a NUL", { "x-a": "a\0b" }],
    ["a snowman", { "x-a": "☃" }],
    ["spaces around", { "x-a": " a " }],
    ["no value", { "x-a": "" }],
    ["a long value", { "x-a": "a".repeat(4_097) }],
    ["a name with a space", { "x a": "b" }],
    ["a name with a colon", { "x:": "b" }],
    ["a name of nothing", { "": "b" }],
    ["the host", { Host: "metadata.google.internal" }],
    ["a length", { "Content-Length": "0" }],
    ["an encoding", { "transfer-encoding": "chunked" }],
    ["a connection", { Connection: "close" }],
    ["an expectation", { Expect: "100-continue" }],
    ...SENDERS_OWN.map((name): [string, Record<string, string>] => [name, { [name]: "a" }]),
    ["a signature", { "Webhook-Signature": "v1,none" }],
    ["GitHub's signature", { "X-Hub-Signature-256": "sha256=0" }],
    ["a proxy's", { "Proxy-Authorization": "Basic abc" }],
    ["the same name twice", { "x-a": "1", "X-A": "2" }],
    ["a number", { "x-a": 1 }],
    ["too many", Object.fromEntries(Array.from({ length: 33 }, (_, at) => [`x-${at}`, "1"]))],
  ])("may not have %s", (_what, headers) => {
    expect(EXTRA_HEADERS.safeParse(headers).success).toBe(false);
  });
});
