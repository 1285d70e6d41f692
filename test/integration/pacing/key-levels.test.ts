import { Redis } from "ioredis";
import { afterEach, describe, expect, inject, it } from "vitest";
import { createSluice, fixedWindow, type Sluice } from "sluice";
import { children } from "../../support/children/child.ts";
import { assertBounds, ENDPOINTS, LATENCY_MS, startFour } from "../../support/draws/tenants.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";
import { hearCommands } from "../../support/redis/for-one-test.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const processes = children();
const sluices = realSluices();
const downstream = useDownstream({ latencyMs: LATENCY_MS });
const start = () =>
  startFour(processes, {
    url: inject("redisUrl"),
    prefix: sluices.prefix(),
    downstream,
    calls: 10,
  });

describe("four processes that call for customers and their endpoints", () => {
  it("keep the limits of all, of each customer and of each endpoint", async () => {
    const replicas = await start();

    await Promise.all(replicas.map((replica) => replica.success()));

    expect(downstream.arrivals).toHaveLength(4 * 10 * ENDPOINTS.length);
    assertBounds(downstream);
  });

  it("keep them when one process is killed, and continue", async () => {
    const replicas = await start();
    await waitUntil(() => downstream.arrivals.length > 60, "calls are under way");

    replicas[0]!.signal("SIGKILL");
    await Promise.all(replicas.map(({ ended }) => ended));

    const own = downstream.arrivals.filter(
      ({ headers }) => headers["x-pid"] !== String(replicas[0]!.pid),
    );
    expect(own).toHaveLength(3 * 10 * ENDPOINTS.length);
    assertBounds(downstream);
  });
});

describe("a login", () => {
  let sluice: Sluice | undefined;
  let redis: Redis | undefined;
  afterEach(async () => {
    await sluice?.close();
    redis?.disconnect();
  });

  it("is counted by its address and its e-mail in one command", async () => {
    redis = new Redis(inject("redisUrl"));
    const prefix = sluices.prefix();
    const sent: (readonly string[])[] = [];
    await hearCommands(inject("redisUrl"), ({ args, isOfScript }) => {
      if (!isOfScript && args.some((arg) => arg.includes(prefix))) sent.push(args);
    });
    sluice = createSluice({ redis: inject("redisUrl"), prefix, logger: { warn() {}, error() {} } });
    const bucket = sluice.bucket("logins", {
      perKey: {
        address: { limits: [fixedWindow(10, "12h"), fixedWindow(100, "1d")] },
        email: { limits: [fixedWindow(5, "1d")] },
      },
    });
    const login = (email: string) => ({ keys: { address: "10.0.0.1", email } });
    await bucket.tryDraw(login("warm@example.com"));
    const told = (name: string): Promise<void> =>
      waitUntil(() => sent.some(([, key]) => key === `${prefix}:${name}`), "all is told");
    await redis.set(`${prefix}:begin`, "1", "EX", 10);
    await told("begin");
    const before = sent.length;

    const decision = await bucket.tryDraw(login("a@example.com"));
    await redis.set(`${prefix}:end`, "1", "EX", 10);
    await told("end");

    expect(decision.limits.map(({ remaining }) => remaining)).toEqual([8, 98, 4]);
    expect(sent.slice(before).map(([name]) => name!.toLowerCase())).toEqual(["evalsha", "set"]);
  });
});
