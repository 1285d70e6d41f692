import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { inspect } from "node:util";
import { Cluster } from "ioredis";
import { pino } from "pino";
import { afterEach, describe, expect, it, vi } from "vitest";
import { createSluice, type Sluice, type SluiceOptions } from "sluice";
import { refusalsOf } from "../../support/draws/ask-all.ts";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { freePort } from "../../support/redis/redis-port.ts";

const PASSWORD = "hush/hush@1";
const IN_URL = encodeURIComponent(PASSWORD);
const servers = ownRedisServers();
let endings: (() => unknown)[] = [];
afterEach(async () => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  for (const end of endings.toReversed()) await end();
  endings = [];
});

/** All that somebody could read: a real pino's lines, the console and the warnings of the process. */
function overhear(): { readonly said: string[]; readonly logger: SluiceOptions["logger"] } {
  const said: string[] = [];
  const hear = (...parts: unknown[]): void => void said.push(inspect(parts, { depth: 12 }));
  for (const method of ["log", "warn", "error"] as const) {
    vi.spyOn(console, method).mockImplementation(hear);
  }
  vi.spyOn(process, "emitWarning").mockImplementation(hear);
  return { said, logger: pino({ level: "trace" }, { write: (line) => void said.push(line) }) };
}

function assertHidden(...seen: readonly unknown[]): void {
  const lines: string[] = [];
  const log = pino({ level: "trace" }, { write: (line) => void lines.push(line) });
  for (const each of seen) {
    log.error({ err: each, error: each }, "told");
    lines.push(inspect(each, { depth: 12, showHidden: true, maxStringLength: null }));
  }
  for (const text of lines) {
    expect(text.includes(PASSWORD)).toBe(false);
    expect(text.includes(IN_URL)).toBe(false);
  }
}

/** A server that knows no command, and tells what it was given, as Redis does of a command that was renamed. */
async function startTellingServer(): Promise<number> {
  const server = createServer((socket) => {
    const reply = `-ERR unknown command 'auth', with args beginning with: 'app' '${PASSWORD}' \r\n`;
    socket.on("data", (data) => {
      const count = data.toString().match(/^\*\d/gm)?.length ?? 1;
      socket.write(reply.repeat(count));
    });
    socket.on("error", () => undefined);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  endings.push(() => server.close());
  return (server.address() as AddressInfo).port;
}

type Given = Pick<SluiceOptions, "redis" | "shards">;

const faults: readonly (readonly [string, () => Promise<Given>])[] = [
  [
    "another password is asked for",
    async () => {
      const { port, operator } = await servers.start();
      await operator.config("SET", "requirepass", "another");
      return { redis: `redis://:${IN_URL}@127.0.0.1:${port}` };
    },
  ],
  [
    "the server tells what it was sent",
    async () => ({ redis: `redis://app:${IN_URL}@127.0.0.1:${await startTellingServer()}` }),
  ],
  [
    "no sentinel answers",
    async () => {
      const sentinels = [{ host: "127.0.0.1", port: await freePort("127.0.0.1") }];
      const passwords = { password: PASSWORD, sentinelPassword: PASSWORD };
      return { redis: { sentinels, name: "main", ...passwords } };
    },
  ],
  [
    "no node of a cluster answers",
    async () => {
      const nodes = [{ host: "127.0.0.1", port: await freePort("127.0.0.1"), password: PASSWORD }];
      const redisOptions = { password: PASSWORD };
      const cluster = new Cluster(nodes, { redisOptions, lazyConnect: true });
      endings.push(() => cluster.disconnect());
      return { redis: cluster };
    },
  ],
  [
    "no shard answers",
    async () => {
      const ports = [await freePort("127.0.0.1"), await freePort("127.0.0.1")];
      return { shards: ports.map((port) => `redis://app:${IN_URL}@127.0.0.1:${port}`) };
    },
  ],
];

describe("a password of Redis is in no error and no log", () => {
  it.each(faults)("when %s", async (_name, begin) => {
    const { said, logger } = overhear();
    const sluice: Sluice = createSluice({ ...(await begin()), storeTimeoutMs: 300, logger });
    endings.push(() => sluice.close());
    const bucket = sluice.bucket("b", { rate: "100/s" });
    const queue = sluice.queue<number>("jobs", { bucket });
    sluice.worker(queue, async () => {});

    const reasons = await refusalsOf(bucket, queue);

    assertHidden(...reasons, ...reasons.map(({ cause }) => cause), said);
  });

  const bad: readonly (readonly [string, unknown])[] = [
    ["a URL whose password was not encoded", { redis: "redis://app:hush%/hush@1@127.0.0.1" }],
    ["no URL", { redis: `redis:${PASSWORD}` }],
    ["a URL within options", { redis: { url: `redis://app:${IN_URL}@h` } }],
    ["a list of URLs", { redis: [`redis://app:${IN_URL}@h`] }],
    ["options of Redis that are none of ours", { password: PASSWORD, host: "h" }],
    ["options within others", { shards: [{ host: "h", password: PASSWORD }] }],
    ["shards that are one", { shards: [`redis://:${IN_URL}@h`, `redis://:${IN_URL}@h:6379`] }],
    ["a shard with a bad port", { shards: [`redis://:${IN_URL}@h:99999`, "redis://h"] }],
    ["a string for options", `redis://app:${IN_URL}@h`],
    ["a list for options", [`redis://app:${IN_URL}@h`]],
    ["both", { redis: `redis://:${IN_URL}@h`, shards: [`redis://:${IN_URL}@h`] }],
    ["a key", { tls: { key: `-----BEGIN PRIVATE KEY-----\n${PASSWORD}`, passphrase: PASSWORD } }],
  ];

  it.each(bad)("when the options are wrong: %s", (_name, options) => {
    const error = caught(() => createSluice(options as SluiceOptions));

    expect(error).toMatchObject({ code: "ERR_INVALID_OPTION" });
    assertHidden(error);
    expect(inspect(error)).not.toContain("hush");
  });

  it("when $REDIS_URL cannot be read", () => {
    vi.stubEnv("REDIS_URL", "redis://app:hush%/hush@1@127.0.0.1");

    const error = caught(() => createSluice());

    expect(error).toMatchObject({ code: "ERR_INVALID_OPTION", option: "$REDIS_URL" });
    expect(inspect(error)).not.toContain("hush");
  });
});

function caught(act: () => unknown): unknown {
  try {
    act();
  } catch (error) {
    return error;
  }
  throw new Error("expected it to throw");
}
