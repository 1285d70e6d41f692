import { readFile } from "node:fs/promises";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { Redis } from "ioredis";
import { StoreUnavailableError, createSluice, type RedisInput, type Sluice } from "sluice";
import { createWebhooks } from "sluice/webhooks";
import { makeCertificate, type Certificate } from "../../support/servers/certificate.ts";
import { startRedis } from "../../support/redis/local-redis.ts";
import type { LocalRedis } from "../../support/redis/private-redis.ts";
import { freePort } from "../../support/redis/redis-port.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { LOCAL, startReceiver, untilIdle } from "../../support/webhooks/open-hooks.ts";
import { useAll } from "../../support/children/whole-path.ts";

const PASSWORD = "p@ss/word";
const SET_INFO = "client|setinfo";

let certificate: Certificate;
let redis: LocalRedis;
let admin: Redis;
let tlsPort: number;
beforeAll(async () => {
  certificate = await makeCertificate();
  tlsPort = await freePort("127.0.0.1");
  const { certFile, keyFile } = certificate;
  const files = ["--tls-cert-file", certFile, "--tls-key-file", keyFile];
  const tls = ["--tls-port", String(tlsPort), ...files, "--tls-auth-clients", "no"];
  redis = await startRedis({ fresh: true, args: tls });
  admin = new Redis(redis.url);
  // The line of the docs, word for word, but for its password.
  const page = await readFile("docs/guides/production/redis.md", "utf8");
  const [, line = ""] = /^ACL SETUSER (.+)$/m.exec(page) ?? [];
  const [user = "", ...rules] = line.split(" ");
  const own = rules.map((rule) => (rule.startsWith(">") ? `>${PASSWORD}` : rule));
  await admin.acl("SETUSER", user, ...own);
  // As the page has it for those who know the command.
  const [known] = (await admin.call("COMMAND", "INFO", SET_INFO)) as unknown[];
  if (known) await admin.acl("SETUSER", user, `+${SET_INFO}`);
});
afterAll(async () => {
  admin.disconnect();
  await redis.stop();
  await certificate.remove();
});

let opened: Sluice[] = [];
afterEach(async () => {
  await Promise.all(opened.map((sluice) => sluice.close()));
  opened = [];
  await admin.flushall();
  await admin.acl("LOG", "RESET");
});

function openSluice(given: RedisInput, storeTimeoutMs = 2_000): Sluice {
  const logger = { warn: () => {}, error: () => {} };
  const sluice = createSluice({ redis: given, storeTimeoutMs, logger });
  opened.push(sluice);
  return sluice;
}

function urlOf(scheme: string, port: number | string, path = ""): string {
  return `${scheme}://sluice:${encodeURIComponent(PASSWORD)}@127.0.0.1:${port}${path}`;
}

async function denials(): Promise<string[]> {
  const log = (await admin.acl("LOG")) as string[][];
  return log.map((entry) => `${entry[5]} ${entry[7]}`);
}

describe("a user with the rights that docs/guides/production/redis.md names", () => {
  it("can use all features of a sluice, and Redis denies no command", async () => {
    const sluice = openSluice(urlOf("redis", new URL(redis.url).port));

    await useAll(sluice);

    // BullMQ gives its connections names and says what it is; it does without, too.
    expect(await denials()).toEqual([]);
  });

  it("can send webhooks and delete them", async () => {
    const sluice = openSluice(urlOf("redis", new URL(redis.url).port));
    const hooks = createWebhooks(sluice, LOCAL);
    const receiver = await startReceiver();
    const tenant = "acme";
    for (const id of ["a", "ordered"]) {
      const endpoint = { tenant, id, url: receiver.url, ordered: id === "ordered" };
      await hooks.endpoints.put({ ...endpoint, rate: "500/s" });
      await hooks.endpoints.disable({ tenant, id });
      await hooks.endpoints.enable({ tenant, id });
    }
    await hooks.tenants.setLimits({ tenant, rate: "900/s" });
    const event = { type: "note.made", data: { n: 1 } };
    await hooks.send({ ...event, tenant, id: "m-1" });
    await hooks.broadcast({ ...event, id: "b-1" });
    await hooks.replay({ tenant, message: "m-1", by: "ann" });
    await hooks.expunge({ tenant, message: "m-1" });
    hooks.worker();
    await hooks.send({ ...event, tenant, id: "m-2" });
    await untilIdle(hooks);
    await hooks.recover({ tenant, endpoint: "a" });
    await hooks.status({ tenant, id: "a" });
    await hooks.messages.list({ tenant });
    await hooks.attempts.list({ tenant, endpoint: "a" });
    await hooks.queue.pause({ key: tenant });

    await hooks.expunge({ tenant });

    expect(await denials()).toEqual([]);
  });

  it("can do nothing outside its keys and channels", async () => {
    const client = new Redis(urlOf("redis", new URL(redis.url).port));
    client.on("error", () => undefined);

    const outcomes = await Promise.allSettled([
      client.set("other", 1),
      client.publish("other", "news"),
      client.flushall(),
      client.keys("*"),
      client.config("GET", "*"),
    ]);
    client.disconnect();

    expect(outcomes.map(({ status }) => status)).toEqual(outcomes.map(() => "rejected"));
  });
});

describe("Redis without TLS", () => {
  it("fails calls with the likely cause when the URL requires TLS", async () => {
    const { port } = new URL(redis.url);
    const bucket = openSluice(urlOf("rediss", port), 300).bucket("b", { rate: "1/s" });

    const reason = await rejectionOf(bucket.draw());

    expect(reason).toBeInstanceOf(StoreUnavailableError);
    expect((reason as Error).message).toContain("does the server speak TLS?");
  });
});

describe("Redis behind TLS", () => {
  it("serves calls and jobs with a user, a password and a database number", async () => {
    const sluice = openSluice({
      host: "127.0.0.1",
      port: tlsPort,
      tls: { ca: certificate.pem },
      username: "sluice",
      password: PASSWORD,
      db: 3,
    });

    await useAll(sluice);

    const keyspace = await admin.info("keyspace");
    expect(keyspace).toContain("db3:");
    expect(keyspace).not.toContain("db0:");
  });

  it("is rejected when no known authority signed its certificate", async () => {
    const bucket = openSluice(urlOf("rediss", tlsPort), 500).bucket("b", { rate: "10/s" });

    const reason = await rejectionOf(bucket.draw());

    expect(reason).toBeInstanceOf(StoreUnavailableError);
    expect(((reason as Error).cause as Error).message).toContain("certificate");
  });

  it("is reached by a rediss:// URL with user, password and database", async () => {
    const url = urlOf("rediss", tlsPort, "/4");
    const client = new Redis(url, { tls: { ca: certificate.pem } });
    const sluice = openSluice(client);

    await sluice.bucket("b", { rate: "10/s" }).draw();

    client.disconnect();
    expect(await admin.info("keyspace")).toContain("db4:");
  });

  it("uses the database number of a plain URL", async () => {
    const sluice = openSluice(urlOf("redis", new URL(redis.url).port, "/5"));

    await sluice.bucket("b", { rate: "10/s" }).draw();

    expect(await admin.info("keyspace")).toContain("db5:");
  });
});
