import { readFile } from "node:fs/promises";
import { onTestFinished, describe, expect, it, vi } from "vitest";
import { startFakeDownstream } from "../../../src/entries/testing/fake-downstream.ts";
import {
  createDeliverer,
  MOST_READ,
  type Delivered,
  type Deliverer,
  type DeliverySettings,
} from "../../../src/webhooks/delivery/deliver.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { closedUrl } from "../../support/servers/closed-url.ts";
import { startEgressProxy } from "../../support/servers/egress-proxy.ts";
import { startAnswering, startHostile, startTls } from "../../support/servers/hostile-endpoints.ts";

const LOCAL = ["127.0.0.0/8"];
const OK = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const never = new AbortController().signal;

function open(settings: Partial<DeliverySettings> = {}): Deliverer {
  const deliverer = createDeliverer({ allow: LOCAL, connectMs: 5_000, ...settings });
  onTestFinished(() => deliverer.close());
  return deliverer;
}

function post(deliverer: Deliverer, url: string, timeoutMs = 10_000): Promise<Delivered> {
  const request = { url, headers: { "content-type": "application/json" }, timeoutMs };
  return deliverer.deliver({ ...request, body: Buffer.from("{}") }, never);
}

/** What each name resolves to, one answer after another; the last one stays. */
function fakeResolver(answers: readonly (readonly string[])[]): {
  readonly resolve: (hostname: string) => Promise<readonly string[]>;
  readonly asked: string[];
} {
  const asked: string[] = [];
  return {
    asked,
    async resolve(hostname) {
      asked.push(hostname);
      return answers[Math.min(asked.length, answers.length) - 1]!;
    },
  };
}

function refusing(code: string): () => Promise<never> {
  return () => Promise.reject(Object.assign(new Error(code), { code }));
}

describe("an endpoint that answers with", () => {
  it.each([
    ["an endless body", "success"],
    ["a gzip bomb", "success"],
    ["10,000 headers", "too-large"],
    ["a reset", "unreachable"],
    ["a reset in the middle of the answer", "unreachable"],
    ["an end without an answer", "unreachable"],
    ["what is no HTTP", "unreachable"],
    ["HTTP/1.0 without a length", "success"],
    ["204 and a body", "success"],
    ["205 without an end", "success"],
    ["two answers", "success"],
    ["two lengths", "unreachable"],
    ["a length and chunks", "unreachable"],
    ["another protocol", "unreachable"],
    ["100 Continue without end", "unreachable"],
    ["a header without end", "too-large"],
    ["trailers without end", "too-large"],
  ])("%s holds nothing up: %s", async (behaviour, outcome) => {
    const endpoint = await startHostile(behaviour);

    const delivered = await post(open(), `http://127.0.0.1:${endpoint.port}/`, 300_000);

    expect(delivered).toMatchObject({ outcome });
    expect(delivered.answer.length).toBeLessThanOrEqual(1_024);
    await waitUntil(() => endpoint.open === 0, "its connection has ended");
  });

  it.each([
    "a slow drip",
    "a slow head",
    "silence",
    "200 after the deadline",
    "103 Early Hints without end",
    "a chunk's head without end",
  ])("%s is given up at the deadline for all of it", async (behaviour) => {
    const endpoint = await startHostile(behaviour);

    const delivered = await post(open(), `http://127.0.0.1:${endpoint.port}/`, 300);

    expect(delivered).toMatchObject({
      outcome: "timeout",
      error: expect.stringContaining("did not answer in time"),
    });
    await waitUntil(() => endpoint.open === 0, "its connection has ended");
  });

  it("an endless body is read to a bound", async () => {
    const endpoint = await startHostile("an endless body");

    await post(open(), `http://127.0.0.1:${endpoint.port}/`);

    await waitUntil(() => endpoint.open === 0, "its connection has ended");
    // What the buffers of two sockets take beside it.
    expect(endpoint.written).toBeLessThan(MOST_READ + 16_000_000);
  });

  it.each([
    ["to a private address", "http://169.254.169.254/latest/meta-data/"],
    ["to itself", "/"],
  ])("a redirect %s is not followed", async (_where, location) => {
    const answer = `HTTP/1.1 301 Moved\r\nlocation: ${location}\r\ncontent-length: 0\r\n\r\n`;
    const endpoint = await startAnswering(answer);

    const delivered = await post(open(), `http://127.0.0.1:${endpoint.port}/`);

    expect(delivered).toMatchObject({ outcome: "redirect", status: 301 });
    expect(endpoint.came).toBe(1);
  });

  it.each([
    ["7", 7_000],
    ["7.5", 7_500],
    ["-5", undefined],
    ["soon", undefined],
    ["1, 2", undefined],
    ["1e3", undefined],
    ["1\r\nretry-after: 9", 9_000],
    ["9\r\nretry-after: soon", 9_000],
    ["Fri, 01 Jan 2021 00:00:00 GMT", 0],
    ["9".repeat(30), Number.MAX_SAFE_INTEGER],
  ])("Retry-After: %j asks to be left alone for %s ms", async (text, retryAfterMs) => {
    const answer = `HTTP/1.1 503 Away\r\nretry-after: ${text}\r\ncontent-length: 0\r\n\r\n`;
    const endpoint = await startAnswering(answer);

    const delivered = await post(open(), `http://127.0.0.1:${endpoint.port}/`);

    expect(delivered).toMatchObject({ outcome: "server-error", retryAfterMs });
  });

  it("control characters shows none of them in a log", async () => {
    const text = "a\u001b[2Jb\u0000c\u202ed";
    const length = Buffer.byteLength(text);
    const endpoint = await startAnswering(
      `HTTP/1.1 400 Bad\r\ncontent-length: ${length}\r\n\r\n${text}`,
    );

    const { answer } = await post(open(), `http://127.0.0.1:${endpoint.port}/`);

    expect(answer).toBe("a\ufffd[2Jb\ufffdc\ufffdd");
  });
});

describe("an address that is not allowed", () => {
  it.each([
    ["a literal", "http://127.0.0.1:PORT/"],
    ["a number", "http://2130706433:PORT/"],
    ["hexadecimal", "http://0x7f000001:PORT/"],
    ["octal", "http://017700000001:PORT/"],
    ["a short form", "http://127.1:PORT/"],
    ["a mapped IPv6 address", "http://[::ffff:127.0.0.1]:PORT/"],
    ["NAT64", "http://[64:ff9b::7f00:1]:PORT/"],
    ["localhost", "http://localhost:PORT/"],
    ["localhost with a dot", "http://localhost.:PORT/"],
    ["no address at all", "http://0.0.0.0:PORT/"],
  ])("is not connected to as %s", async (_what, url) => {
    const endpoint = await startAnswering(OK);

    const delivered = await post(open({ allow: [] }), url.replace("PORT", String(endpoint.port)));

    expect(delivered).toMatchObject({ outcome: "blocked", status: undefined });
    expect(endpoint.came).toBe(0);
  });

  it("is not connected to when a name resolves to it", async () => {
    const endpoint = await startAnswering(OK);
    const { resolve } = fakeResolver([["127.0.0.1"]]);

    const delivered = await post(
      open({ allow: [], resolve }),
      `http://hooks.example.com:${endpoint.port}/`,
    );

    expect(delivered.outcome).toBe("blocked");
    expect(endpoint.came).toBe(0);
  });

  it.each([["::ffff:127.0.0.1"], ["64:ff9b::127.0.0.1"], ["::1"], ["2002:7f00:1::"]])(
    "is not connected to when a name resolves to %s",
    async (address) => {
      const { resolve } = fakeResolver([[address]]);

      const delivered = await post(open({ allow: [], resolve }), "http://hooks.example.com:9/");

      expect(delivered.outcome).toBe("blocked");
    },
  );

  it("is not connected to when the name resolves to it at the second look-up", async () => {
    const endpoint = await startAnswering(OK);
    const { resolve, asked } = fakeResolver([["127.0.0.1"], ["127.0.0.2"]]);
    const deliverer = open({ allow: ["127.0.0.1"], resolve });
    const url = `http://hooks.example.com:${endpoint.port}/`;

    const first = await post(deliverer, url);
    await waitUntil(() => endpoint.open === 0, "its connection has ended");
    const second = await post(deliverer, url);

    expect([first.outcome, second.outcome]).toEqual(["success", "blocked"]);
    // One look-up for each connection: what is judged is what is connected to.
    expect(asked).toHaveLength(2);
    expect(endpoint.came).toBe(1);
  });

  it("is passed over where the name has an allowed one beside it", async () => {
    const endpoint = await startAnswering(OK);
    const { resolve } = fakeResolver([["10.0.0.1", "127.0.0.1", "::1"]]);

    const delivered = await post(open({ resolve }), `http://hooks.example.com:${endpoint.port}/`);

    expect(delivered.outcome).toBe("success");
  });

  it("gives the same error as one that refuses the connection", async () => {
    const refused = await post(open(), await closedUrl());
    const blocked = await post(open({ allow: [] }), "http://127.0.0.1:9/");

    expect([refused.outcome, blocked.outcome]).toEqual(["unreachable", "blocked"]);
    expect(blocked.error).toBe(refused.error);
    expect(blocked.error).not.toMatch(/\d|block|private/);
  });
});

describe("a request", () => {
  it("has the path of its URL, and two slashes at its start name no other host", async () => {
    const receiver = await startFakeDownstream();
    onTestFinished(() => receiver.close());

    const delivered = await post(open(), `${receiver.url}//host.example/a?b=1`);

    expect(delivered.outcome).toBe("success");
    expect(receiver.arrivals.map(({ path }) => path)).toEqual(["//host.example/a?b=1"]);
  });

  it("goes over TLS to the name in the certificate, and to no other", async () => {
    const endpoint = await startTls(OK);
    const { port, certificate } = endpoint;
    const { resolve } = fakeResolver([["127.0.0.1"]]);
    const deliverer = open({ resolve, ca: certificate.pem });

    const right = await post(deliverer, `https://127.0.0.1:${port}/`);
    const wrong = await post(deliverer, `https://hooks.example.com:${port}/`);
    const unknown = await post(open(), `https://127.0.0.1:${port}/`);

    expect([right.outcome, wrong.outcome, unknown.outcome]).toEqual([
      "success",
      "unreachable",
      "unreachable",
    ]);
    expect(wrong.detail).toMatch(/altnames/i);
  });

  it("goes to no endpoint with an untrusted certificate, whatever the environment says", async () => {
    vi.stubEnv("NODE_TLS_REJECT_UNAUTHORIZED", "0");
    onTestFinished(() => void vi.unstubAllEnvs());
    const endpoint = await startTls(OK);
    const proxy = await startEgressProxy();
    const url = `https://127.0.0.1:${endpoint.port}/`;

    const direct = await post(open(), url);
    const tunnelled = await post(open({ proxy: proxy.url }), url);

    expect([direct.outcome, tunnelled.outcome]).toEqual(["unreachable", "unreachable"]);
    expect(proxy.asked).toHaveLength(1);
  });

  it("shows a certificate to an endpoint that has one for it, and not with another's request", async () => {
    const endpoint = await startTls(OK, { asks: true });
    const { pem: cert, keyFile } = endpoint.certificate;
    const key = await readFile(keyFile, "utf8");
    const deliverer = open({ ca: cert });
    const url = `https://127.0.0.1:${endpoint.port}/`;
    const request = { url, headers: {}, body: Buffer.of(), timeoutMs: 10_000 };

    const shown = await deliverer.deliver({ ...request, certificate: { cert, key } }, never);
    const none = await post(deliverer, url);

    expect([shown.outcome, none.outcome]).toEqual(["success", "unreachable"]);
  });

  it("goes through no proxy that the environment names", async () => {
    const away = await closedUrl();
    for (const name of ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"]) {
      vi.stubEnv(name, away);
    }
    onTestFinished(() => void vi.unstubAllEnvs());
    const endpoint = await startAnswering(OK);

    const delivered = await post(open(), `http://127.0.0.1:${endpoint.port}/`);

    expect(delivered.outcome).toBe("success");
  });

  it.each<[string, DeliverySettings["resolve"], string]>([
    ["has no answer for now", refusing("EAI_AGAIN"), "ours"],
    ["cannot be reached", refusing("ECONNREFUSED"), "ours"],
    ["throws", () => Promise.reject(new Error("boom")), "ours"],
    ["returns nothing", () => Promise.resolve(undefined as never), "ours"],
    ["knows no such name", refusing("ENOTFOUND"), "unreachable"],
    ["knows no address of it", refusing("ENODATA"), "unreachable"],
    ["returns no address", () => Promise.resolve(["somewhere"]), "unreachable"],
    ["returns private ones alone", () => Promise.resolve(["10.0.0.1", "::1"]), "blocked"],
  ])("whose resolver %s is: %s", async (_what, resolve, outcome) => {
    const delivered = await post(open({ resolve }), "http://hooks.example.com/");

    expect(delivered.outcome).toBe(outcome);
  });

  it("is no fault of its endpoint when the sender is closed", async () => {
    const silent = await startHostile("silence");
    const closing = new AbortController();

    const sending = open().deliver(
      {
        url: `http://127.0.0.1:${silent.port}/`,
        headers: {},
        body: Buffer.of(),
        timeoutMs: 60_000,
      },
      closing.signal,
    );
    await waitUntil(() => silent.came === 1, "the request has come");
    closing.abort(new Error("closing"));

    expect((await sending).outcome).toBe("ours");
  });

  it.each<[string, string, string]>([
    ["ends the connection", "", "ours"],
    ["speaks no HTTP", "hello", "ours"],
    ["fails", "HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n", "ours"],
    [
      "wants a password",
      "HTTP/1.1 407 Who\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\n\r\n",
      "ours",
    ],
    ["denies the target", "HTTP/1.1 407 Denied\r\ncontent-length: 0\r\n\r\n", "blocked"],
    ["forbids the target", "HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n", "blocked"],
    ["opens a tunnel to nothing", "HTTP/1.1 200 OK\r\n\r\n", "unreachable"],
  ])("through an egress proxy that %s: %o is %s", async (_what, answer, outcome) => {
    const proxy = await startAnswering(answer);
    const deliverer = open({ proxy: `http://127.0.0.1:${proxy.port}` });

    const secure = await post(deliverer, "https://hooks.example.com/");
    const plain = await post(deliverer, "http://hooks.example.com/");

    expect([secure.outcome, plain.outcome]).toEqual([outcome, outcome]);
    // Each is asked once: nothing is tried again as fast as it can be.
    expect(proxy.came).toBe(2);
  });

  it("is no fault of its endpoint when the egress proxy is unreachable, or does not respond", async () => {
    const silent = await startHostile("silence");
    const outcomes: string[] = [];

    for (const proxy of [await closedUrl(), `http://127.0.0.1:${silent.port}`]) {
      const { outcome } = await post(open({ proxy, connectMs: 200 }), "https://hooks.example.com/");
      outcomes.push(outcome);
    }

    expect(outcomes).toEqual(["ours", "ours"]);
  });
});
