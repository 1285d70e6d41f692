import { describe, expect, it } from "vitest";
import { createJudge } from "../../../src/webhooks/guard/addresses.ts";
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

describe("an address in the URL of an endpoint", () => {
  const given = (allow: readonly string[]) => urlSchema({ http: true, judge: createJudge(allow) });

  it.each([
    "http://10.0.0.1/",
    "https://10.0.0.1:8443/hooks?a=1",
    "http://10.0.0.1./",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://0x7f.1/",
    "http://%31%30.0.0.1/",
    "http://\uff11\uff10.0.0.1/",
    "http://10\u30020\u30020\u30021/",
    "http://0/",
    "http://169.254.169.254/latest/meta-data/",
    "http://168.63.129.16/",
    "http://[::1]/",
    "http://[::]/",
    "http://[0:0:0:0:0:ffff:10.0.0.1]/",
    "http://[::ffff:a00:1]/",
    "http://[::10.0.0.1]/",
    "http://[64:ff9b::10.0.0.1]/",
    "http://[fd00:ec2::254]/",
    "http://[fe80::1]/",
    "http://[2002:a00:1::]/",
    "http://localhost:3000/",
    "http://LOCALHOST./",
    "http://api.localhost/",
  ])("is refused at once where it is private: %s", (url) => {
    const { success, error } = given([]).safeParse(url);

    expect(success).toBe(false);
    expect(error!.issues[0]!.message).toMatch(
      /public address, or declare .* allow: \["[\d.:a-f]+"\]/,
    );
  });

  it.each([
    ["http://10.0.0.1/", ["10.0.0.0/8"]],
    ["http://[::ffff:10.0.0.1]/", ["10.0.0.1"]],
    ["http://[fd00::1]/", ["fd00::/8"]],
    ["http://localhost/", ["127.0.0.0/8"]],
    ["http://localhost/", ["::1"]],
    ["http://8.8.8.8/", []],
    ["http://[2606:4700::1111]/", []],
    ["http://10.0.0.1.example.com/", []],
    ["http://localhost.example.com/", []],
  ])("may be %s with allow: %j", (url, allow) => {
    expect(given(allow).safeParse(url).success).toBe(true);
  });

  it("is refused until the sender allows what the error says", () => {
    for (const url of ["http://10.0.0.1/", "http://[::1]/", "http://localhost/"]) {
      const { message } = given([]).safeParse(url).error!.issues[0]!;
      const [, allow] = /allow: (\[.*\])/.exec(message)!;

      expect(given(JSON.parse(allow!) as string[]).safeParse(url).success).toBe(true);
    }
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
