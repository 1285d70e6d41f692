import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import type { Attempt, Webhooks } from "sluice/webhooks";
import { waitUntil } from "../../support/async/wait-until.ts";
import { startEgressProxy } from "../../support/servers/egress-proxy.ts";
import { startTls } from "../../support/servers/hostile-endpoints.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { openHooks, put, startReceiver, untilIdle } from "../../support/webhooks/open-hooks.ts";

const sluices = realSluices();
const OK = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const REF = { tenant: "acme", id: "a" };
const EVENT = { tenant: "acme", type: "note.made", data: 1 };

async function attemptsAt(hooks: Webhooks, endpoint: string): Promise<readonly Attempt[]> {
  return (await hooks.attempts.list({ tenant: "acme", endpoint })).entries;
}

const outcomesOf = (attempts: readonly Attempt[]): string[] =>
  attempts.map(({ outcome }) => outcome).toReversed();

describe("an endpoint that demands a certificate of its clients", () => {
  it("gets webhooks with the one that it was put with, and none without or with another", async () => {
    const endpoint = await startTls(OK, { asks: true });
    const other = await startTls(OK);
    const { pem: cert, keyFile } = endpoint.certificate;
    const key = await readFile(keyFile, "utf8");
    const foreign = {
      cert: other.certificate.pem,
      key: await readFile(other.certificate.keyFile, "utf8"),
    };
    const hooks = openHooks(sluices, { http: undefined, ca: cert, scheduleMs: [0] });
    const url = `https://127.0.0.1:${endpoint.port}/hooks`;
    await put(hooks, { tenant: "acme", id: "with", url, certificate: { cert, key } });
    await put(hooks, { tenant: "acme", id: "without", url });
    await put(hooks, { tenant: "acme", id: "foreign", url, certificate: foreign });
    hooks.worker();

    await hooks.send(EVENT);
    await untilIdle(hooks);

    expect(outcomesOf(await attemptsAt(hooks, "with"))).toEqual(["success"]);
    expect(outcomesOf(await attemptsAt(hooks, "without"))).toEqual(["unreachable"]);
    expect(outcomesOf(await attemptsAt(hooks, "foreign"))).toEqual(["unreachable"]);
    // A new one counts from the next attempt on.
    await put(hooks, { tenant: "acme", id: "without", url, certificate: { cert, key } });
    await hooks.recover({ tenant: "acme", endpoint: "without" });
    await untilIdle(hooks);
    expect(outcomesOf(await attemptsAt(hooks, "without"))).toEqual(["unreachable", "success"]);
  });
});

it("an endpoint of http:// gets nothing more once its sender is declared without it", async () => {
  const receiver = await startReceiver();
  await put(openHooks(sluices), { ...REF, url: receiver.url });
  const hooks = openHooks(sluices, { http: false, scheduleMs: [0] });
  const blocked: string[] = [];
  hooks.on("blocked", ({ detail }) => blocked.push(detail));
  hooks.worker();

  await hooks.send(EVENT);
  await untilIdle(hooks);

  expect(outcomesOf(await attemptsAt(hooks, "a"))).toEqual(["blocked"]);
  expect(blocked).toEqual([expect.stringContaining("http: true")]);
  expect(receiver.arrivals).toEqual([]);
});

describe("through an egress proxy", () => {
  it("all is sent in tunnels, plain HTTP too, and the proxy finds the addresses", async () => {
    const proxy = await startEgressProxy();
    const receiver = await startReceiver();
    const tls = await startTls(OK);
    const ca = tls.certificate.pem;
    const hooks = openHooks(sluices, { proxy: proxy.url, allow: undefined, ca });
    const url = receiver.url.replace("127.0.0.1", "localhost");
    await put(hooks, { ...REF, url });
    await put(hooks, { ...REF, id: "tls", url: `https://127.0.0.1:${tls.port}/` });
    hooks.worker();

    await hooks.send(EVENT);
    await untilIdle(hooks);

    expect(receiver.arrivals).toHaveLength(1);
    expect(outcomesOf(await attemptsAt(hooks, "tls"))).toEqual(["success"]);
    expect(proxy.asked.toSorted()).toEqual([`127.0.0.1:${tls.port}`, new URL(url).host].toSorted());
  });

  it("what the proxy itself fails at counts for no attempt, and not against the endpoint", async () => {
    const proxy = await startEgressProxy();
    const receiver = await startReceiver();
    const breaker = { failures: 1, coolMs: 300_000 };
    const hooks = openHooks(sluices, {
      proxy: proxy.url,
      allow: undefined,
      scheduleMs: [0],
      breaker,
    });
    await put(hooks, { ...REF, url: receiver.url });
    proxy.refuses = 503;
    hooks.worker();
    await hooks.send(EVENT);
    await waitUntil(() => proxy.asked.length >= 2, "it was tried twice");

    proxy.refuses = undefined;

    await waitUntil(() => receiver.arrivals.length === 1, "it has arrived");
    await untilIdle(hooks);
    const attempts = await attemptsAt(hooks, "a");
    expect(new Set(outcomesOf(attempts).slice(0, -1))).toEqual(new Set(["ours"]));
    expect(attempts[0]).toMatchObject({ outcome: "success", attempt: 1 });
    expect((await hooks.queue.bucket.peek({ key: ["acme", "a"] })).pausedForMs).toBe(0);
  });

  it("a target that the proxy refuses is blocked, and the operator is notified", async () => {
    const proxy = await startEgressProxy();
    proxy.refuses = 407;
    const hooks = openHooks(sluices, { proxy: proxy.url, allow: undefined, scheduleMs: [0] });
    const blocked: unknown[] = [];
    hooks.on("blocked", ({ endpoint }) => blocked.push(endpoint));
    await put(hooks, { ...REF, url: "https://hooks.example.com/" });
    hooks.worker();

    await hooks.send(EVENT);
    await untilIdle(hooks);

    const [attempt] = await attemptsAt(hooks, "a");
    expect(attempt).toMatchObject({ outcome: "blocked" });
    expect(attempt!.error).not.toMatch(/proxy|block|407/i);
    expect(blocked).toEqual(["a"]);
  });
});
