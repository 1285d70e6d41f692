import { format, inspect } from "node:util";
import { afterEach, describe, expect, it, vi } from "vitest";
import { Redis } from "ioredis";
import { createSluice, StoreUnavailableError, type Sluice, type SluiceOptions } from "sluice";
import { refusalsOf } from "../../support/draws/ask-all.ts";
import { startRedis } from "../../support/redis/local-redis.ts";
import type { LocalRedis } from "../../support/redis/private-redis.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { freePort } from "../../support/redis/redis-port.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const PASSWORD = "hush/hush@1";
const IN_URL = encodeURIComponent(PASSWORD);

let redis: LocalRedis | undefined;
let opened: Sluice[] = [];
afterEach(async () => {
  vi.restoreAllMocks();
  await Promise.all(opened.map((sluice) => sluice.close()));
  opened = [];
  await redis?.stop();
  redis = undefined;
});

async function startWithPassword(password: string): Promise<number> {
  redis = await startRedis({ fresh: true });
  const { port } = new URL(redis.url);
  const admin = new Redis(redis.url);
  await admin.acl("SETUSER", "app", "on", `>${password}`, "~*", "&*", "+@all");
  admin.disconnect();
  return Number(port);
}

function urlOf(port: number): string {
  return `redis://app:${IN_URL}@127.0.0.1:${port}`;
}

type Fault = () => Promise<{ given: SluiceOptions["redis"]; strike?: () => Promise<void> }>;

const faults: [string, Fault][] = [
  ["the password is wrong", async () => ({ given: urlOf(await startWithPassword("another")) })],
  [
    "the password is wrong, and was given as an option",
    async () => {
      const port = await startWithPassword("another");
      return { given: { host: "127.0.0.1", port, username: "app", password: PASSWORD } };
    },
  ],
  ["there is no such host", async () => ({ given: `redis://app:${IN_URL}@no-such-host.invalid` })],
  ["nobody listens", async () => ({ given: urlOf(await freePort("127.0.0.1")) })],
  [
    "the server goes away",
    async () => {
      const given = urlOf(await startWithPassword(PASSWORD));
      return { given, strike: () => redis!.stop() };
    },
  ],
  [
    "the user has no rights but to ask for INFO",
    async () => {
      const port = await startWithPassword(PASSWORD);
      const admin = new Redis(redis!.url);
      await admin.acl("SETUSER", "app", "-@all", "+info");
      admin.disconnect();
      return { given: urlOf(port) };
    },
  ],
];

/** All that was said where somebody could read it. */
function overhear(): { readonly said: string[]; readonly logger: SluiceOptions["logger"] } {
  const said: string[] = [];
  const hear = (...parts: unknown[]): void => void said.push(format(...parts), lookInto(parts));
  for (const method of ["log", "warn", "error"] as const) {
    vi.spyOn(console, method).mockImplementation(hear);
  }
  vi.spyOn(process, "emitWarning").mockImplementation(hear);
  return { said, logger: { warn: hear, error: hear } };
}

function lookInto(value: unknown): string {
  return inspect(value, { depth: 12, showHidden: true, maxStringLength: null });
}

describe("a password stays hidden", () => {
  it.each(faults)("in errors, their causes and the log when %s", async (_name, begin) => {
    const { given, strike } = await begin();
    const { said, logger } = overhear();
    const sluice = createSluice({ redis: given, storeTimeoutMs: 300, logger });
    opened.push(sluice);
    const bucket = sluice.bucket("b", { rate: "100/s" });
    const queue = sluice.queue<number>("jobs", { bucket });
    queue.on("done", () => {});
    sluice.worker(queue, async () => {});
    if (strike !== undefined) {
      await bucket.draw();
      await queue.enqueue(1);
      await strike();
    }

    const reasons = await refusalsOf(bucket, queue);
    await waitUntil(() => said.length > 0, "the log has something of it");

    const all = [...said, ...reasons.flatMap((reason) => [lookInto(reason), String(reason.stack)])];
    for (const text of all) {
      expect(text).not.toContain(PASSWORD);
      expect(text).not.toContain(IN_URL);
    }
  });

  it("while each rejected caller and the log report that it is wrong", async () => {
    const { said, logger } = overhear();
    const redis = urlOf(await startWithPassword("another"));
    const sluice = createSluice({ redis, storeTimeoutMs: 300, breaker: { failures: 1 }, logger });
    opened.push(sluice);
    const bucket = sluice.bucket("b", { rate: "100/s" });
    const queue = sluice.queue<number>("jobs", { bucket });

    const first = await rejectionOf(bucket.draw());
    await waitUntil(() => said.length > 0, "the breaker has opened");
    const next = await rejectionOf(bucket.draw());
    const ofQueue = await rejectionOf(queue.counts());

    for (const reason of [first, next, ofQueue] as Error[]) {
      expect(reason).toBeInstanceOf(StoreUnavailableError);
      expect(reason.message).toContain("WRONGPASS");
      expect(String(reason.cause)).toContain("WRONGPASS");
    }
    expect((ofQueue as Error).message).toContain("Check the user and the password");
    expect(said[0]).toMatch(/only probes are sent until one succeeds: WRONGPASS/);
  });

  it.each([
    `http://app:${IN_URL}@127.0.0.1`,
    `redis//app:${IN_URL}@127.0.0.1`,
    `redis://app:${PASSWORD}@127.0.0.1:port`,
    `app:${IN_URL}@127.0.0.1`,
  ])("when the URL is invalid: %#", (url) => {
    const error = caught(() => createSluice({ redis: url }));

    expect(error).toMatchObject({ code: "ERR_INVALID_OPTION" });
    expect(lookInto(error)).not.toContain(IN_URL);
    expect(lookInto(error)).not.toContain(PASSWORD);
  });
});

it("a password from a file connects, even with a line break at its end", async () => {
  const port = await startWithPassword(PASSWORD);
  const asOption = { host: "127.0.0.1", port, username: "app", password: `${PASSWORD}\r\n` };

  for (const given of [`${urlOf(port)}\n`, asOption]) {
    const sluice = createSluice({ redis: given });
    opened.push(sluice);

    expect((await sluice.bucket("b", { rate: "100/s", burst: 2 }).tryDraw()).allowed).toBe(true);
  }
});

function caught(act: () => unknown): unknown {
  try {
    act();
  } catch (error) {
    return error;
  }
  throw new Error("expected it to throw");
}
