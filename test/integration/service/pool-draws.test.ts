import { pino } from "pino";
import { expect, it } from "vitest";
import { fixedWindow, leakyBucket } from "sluice";
import { services } from "../../support/server/service.ts";
import { closedUrl } from "../../support/servers/closed-url.ts";
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

it.each([
  ["its pool does not have", "gpt", "did you mean west?"],
  ["a plain bucket cannot have", "plain", "is no pool"],
])("a server refuses a forward with a member that %s", async (_, bucket, remedy) => {
  const sluice = sluices.open();
  sluice.pool("gpt", { members: { east: { rate: "9/s" }, west: { rate: "9/s" } } });
  sluice.bucket("plain", { rate: "9/s" });
  const to = "http://127.0.0.1:9";

  const forward = { one: { to, bucket, members: { wst: to } } };
  await expect(servers.start(sluice, { forward })).rejects.toMatchObject({
    code: "ERR_INVALID_OPTION",
    option: "members",
    value: "wst",
    message: expect.stringContaining(remedy),
  });
});

it("a server forwards to a pool that is given itself, and to a member that was added before", async () => {
  const api = await apis.start(({ path }) => ({ body: path }));
  const sluice = sluices.open();
  const pool = sluice.pool("gpt", { members: { east: { rate: "9/s" } } });
  await pool.addMember("north", { rate: "9/s" });
  await pool.removeMember("east");
  const members = { north: `${api.url}/north` };
  const forward = { gpt: { to: "http://127.0.0.1:9", bucket: pool, members } };
  const service = await servers.start(sluice, { forward });

  expect((await service.get("/gpt/v1")).text).toBe("/north/v1");
});

it("a forward names what is wrong with its members when another process declares the bucket", async () => {
  const prefix = sluices.prefix();
  const other = sluices.open({ prefix });
  await other.bucket("plain", { rate: "100/s" }).draw();
  await other.pool("gpt", { members: { east: { rate: "100/s" } } }).draw();
  const sluice = sluices.open({ prefix });
  await expect.poll(() => sluice.find("plain")).toBeDefined();
  await expect.poll(() => sluice.find("gpt")).toBeDefined();
  const api = await apis.start(() => ({ body: "fine" }));
  const lines: string[] = [];
  const logger = pino({}, { write: (line: string) => void lines.push(line) });
  const members = { eats: api.url };
  const forward = { plain: { to: api.url, members }, gpt: { to: api.url, members } };
  const service = await servers.start(sluice, { forward, logger });

  const plain = await service.get("/plain/v1");
  const pool = await service.get("/gpt/v1");

  expect([plain.status, plain.json.code]).toEqual([409, "ERR_NOT_SUPPORTED"]);
  expect(plain.json.detail).toMatch(/bucket "plain" is no pool/);
  expect([pool.status, pool.text]).toEqual([200, "fine"]);
  await expect.poll(() => lines.filter((line) => /did you mean east\?/.test(line))).toHaveLength(1);
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

it("a forward takes out a member whose own credentials are refused, but not one that gets those of the client", async () => {
  const api = await apis.start(({ headers }) => {
    return { status: headers["authorization"] === "Bearer good" ? 200 : 401 };
  });
  const sluice = sluices.open();
  const rate = { rate: "100/s" };
  const own = { prefer: ["east", "west"], members: { east: rate, west: rate } };
  const [keyed, open] = [sluice.pool("keyed", own), sluice.pool("open", own)];
  const headersOf = (token: string) => ({ authorization: `Bearer ${token}` });
  const members = {
    east: { to: api.url, headers: headersOf("bad") },
    west: { to: api.url, headers: headersOf("good") },
  };
  const to = "http://127.0.0.1:9";
  const forward = {
    keyed: { to, members },
    open: { to, members: { east: api.url, west: api.url } },
  };
  const service = await servers.start(sluice, { forward });

  const statuses = [];
  for (let call = 0; call < 3; call++) statuses.push((await service.get("/keyed/v1")).status);
  const refused = await service.get("/open/v1", headersOf("bad"));

  expect(statuses).toEqual([200, 200, 200]);
  expect(api.withStatus(401)).toHaveLength(2);
  expect((await keyed.members())[0]!.coolingForMs).toBeGreaterThan(50_000);
  expect(refused.status).toBe(401);
  expect((await open.members()).map(({ coolingForMs }) => coolingForMs)).toEqual([0, 0]);
});

it("a forward sends a request to another member if the first one cannot be reached", async () => {
  const west = await apis.start(() => ({}));
  const sluice = sluices.open();
  sluice.pool("gpt", {
    members: { east: { rate: "100/s" }, west: { rate: "100/s" } },
    prefer: ["east", "west"],
  });
  const members = { east: await closedUrl(), west: west.url };
  const forward = { gpt: { to: "http://127.0.0.1:9", members } };
  const service = await servers.start(sluice, { forward });

  const { status } = await service.post("/gpt/v1/chat", { call: 1 });

  expect(status).toBe(200);
  expect(west.calls.map(({ body }) => body)).toEqual(['{"call":1}']);
});

it("a forward does not send a request again that a member may have carried out", async () => {
  const east = await apis.start(() => ({ stream: (response) => response.socket?.destroy() }));
  const west = await apis.start(() => ({}));
  const sluice = sluices.open();
  sluice.pool("gpt", {
    members: { east: { rate: "100/s" }, west: { rate: "100/s" } },
    prefer: ["east", "west"],
  });
  const members = { east: east.url, west: west.url };
  const forward = { gpt: { to: "http://127.0.0.1:9", members } };
  const service = await servers.start(sluice, { forward });

  const { status } = await service.post("/gpt/v1/chat", { call: 1 });

  expect(status).toBe(502);
  expect([east.calls.length, west.calls.length]).toEqual([1, 0]);
});
