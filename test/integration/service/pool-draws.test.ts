import { expect, it } from "vitest";
import { fixedWindow, leakyBucket } from "sluice";
import { services } from "../../support/server/service.ts";
import { fakeApis } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const servers = services();
const apis = fakeApis();

it("a server names the member of each slot, and settles it by its id on any server", async () => {
  const prefix = sluices.prefix();
  const tokens = (most: number) => ({ limits: [fixedWindow(most, "1h", { unit: "tokens" })] });
  const pool = sluices.open({ prefix }).pool("gpt", {
    members: { east: tokens(100), west: tokens(50) },
    prefer: ["east", "west"],
  });
  await pool.draw({ cost: { tokens: 1 } });
  // The servers only know what the process has reported.
  const [one, other] = [sluices.open({ prefix }), sluices.open({ prefix })];
  await expect.poll(() => one.find("gpt")).toBeDefined();
  const [first, second] = [await servers.start(one), await servers.start(other)];

  const drawn = await first.post("/v1/buckets/gpt/draw", { cost: { tokens: 90 } });
  const spilled = await first.post("/v1/buckets/gpt/try", { cost: { tokens: 40 } });
  const refused = await first.post("/v1/buckets/gpt/try", { cost: { tokens: 40 } });
  const { slot } = drawn.json;
  const settled = await second.post(`/v1/slots/${slot.id}/settle`, { cost: { tokens: 20 } });

  expect(slot).toMatchObject({ bucket: "gpt", member: "east" });
  expect(spilled.json).toMatchObject({ allowed: true, slot: { member: "west" } });
  expect(refused.status).toBe(429);
  expect(settled.status).toBe(200);
  const remaining = (await pool.members()).map(({ limits }) => limits[0]!.remaining);
  expect(remaining).toEqual([79, 10]);
});

it("a call in the handler of a job uses the member that it asks for, and pays that member's limits", async () => {
  const sluice = sluices.open();
  const tokens = fixedWindow(100, "1h", { unit: "tokens" });
  const pool = sluice.pool("gpt", {
    members: {
      east: { limits: [leakyBucket("100/s"), tokens], value: "E" },
      west: { limits: [leakyBucket("100/s"), tokens], value: "W" },
    },
    prefer: ["east", "west"],
  });
  const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("gpt") });
  const cost = { tokens: 30 };
  sluice.worker(queue, () => pool.member("west").run((value) => value, { cost }));

  const job = await queue.enqueue(1);

  expect(await job.finished()).toBe("W");
  const left = (await pool.members()).map(({ limits }) => limits[1]!.remaining);
  expect(left).toEqual([100, 70]);
});

it("a forward sends each request to the member of its slot, and the next try to another one", async () => {
  const seen: string[] = [];
  const start = (name: string) =>
    apis.start(({ headers, path }) => {
      seen.push(`${name} ${path} ${String(headers["authorization"])}`);
      const isRefused = seen.length === 1;
      return isRefused ? { status: 429, headers: { "retry-after": "60" } } : { body: name };
    });
  const [east, west] = [await start("east"), await start("west")];
  const sluice = sluices.open();
  sluice.pool("gpt", {
    members: { east: { rate: "100/s" }, west: { rate: "100/s" } },
    prefer: ["east", "west"],
  });
  const members = {
    east: { to: `${east.url}/e`, headers: { authorization: "Bearer E" } },
    west: { to: west.url, headers: { authorization: "Bearer W" } },
  };
  // The header of the member replaces that of the forward, however its name is written.
  const headers = { Authorization: "Bearer common" };
  const forward = { gpt: { to: "http://127.0.0.1:9", headers, members } };
  const service = await servers.start(sluice, { forward });

  const { status, text } = await service.post("/gpt/v1/chat", { call: 1 });
  const twoAddresses = { gpt: { to: ["http://127.0.0.1:9", "http://127.0.0.1:10"], members } };
  await expect(servers.start(sluice, { forward: twoAddresses })).rejects.toMatchObject({
    code: "ERR_INVALID_OPTION",
    option: "members",
  });

  expect([status, text]).toEqual([200, "west"]);
  expect(seen).toEqual(["east /e/v1/chat Bearer E", "west /v1/chat Bearer W"]);
});
