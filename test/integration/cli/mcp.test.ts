import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import process from "node:process";
import { createInterface } from "node:readline";
import { pino } from "pino";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { waitUntil } from "../../support/async/wait-until.ts";
import { ACT, ask, openServers, VIEW } from "../../support/server/open-server.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const servers = openServers();
const SECRET = "4111 1111 1111 1111";

async function openService() {
  const service = sluices.open();
  const bucket = service.bucket("stripe", { rate: "100/s" });
  const queue = service.queue<unknown>("charges", { bucket });
  await bucket.draw();
  await queue.enqueue({ card: SECRET }, { id: "order-17", delayMs: 3_600_000 });
  const isReported = async (): Promise<boolean> => {
    const { buckets, queues } = await service.overview();
    return buckets.length === 1 && queues.length === 1;
  };
  await waitUntil(isReported, "both are reported");
  return { service, bucket, queue };
}

/** A session of an MCP client with `sluice mcp`. */
function openSession(...args: string[]) {
  const main = join(inject("builtRoot"), "dist/cli.js");
  const env = { ...process.env, REDIS_URL: inject("redisUrl"), SLUICE_BY: "ann" };
  const prefix = ["--prefix", sluices.prefix()];
  const child = spawn(process.execPath, [main, ...prefix, "mcp", ...args], { env });
  onTestFinished(() => void child.kill());
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  let id = 0;

  async function request(method: string, params?: object) {
    child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id: ++id, method, params })}\n`);
    const { value } = await lines.next();
    const reply = JSON.parse(String(value)) as {
      id: number;
      result: { tools?: { name: string }[]; content?: { text: string }[]; isError?: boolean };
      error?: { code: number };
    };
    expect(reply.id).toBe(id);
    return reply;
  }

  return {
    request,
    async call(name: string, given: object) {
      const { result } = await request("tools/call", { name, arguments: given });
      return { text: result.content![0]!.text, isError: result.isError === true };
    },
    async end() {
      child.stdin.end();
      const [code] = (await once(child, "exit")) as [number];
      return code;
    },
  };
}

describe("sluice mcp", () => {
  it("lets a model read, but neither change anything nor see data", async () => {
    const { bucket } = await openService();
    const session = openSession();
    const opened = await session.request("initialize", { protocolVersion: "2025-06-18" });

    const { result } = await session.request("tools/list");
    const status = await session.call("bucket_look", { bucket: "stripe" });
    const job = await session.call("job_look", { queue: "charges", id: "order-17" });
    const data = await session.call("job_look", { queue: "charges", id: "order-17", data: true });
    const pause = await session.request("tools/call", {
      name: "bucket_pause",
      arguments: { bucket: "stripe" },
    });

    expect(opened.result).toMatchObject({ protocolVersion: "2025-06-18" });
    expect(result.tools!.map(({ name }) => name)).not.toContain("bucket_pause");
    expect(JSON.parse(status.text)).toMatchObject({ name: "stripe", capPerSecond: 100 });
    expect(JSON.parse(job.text)).toMatchObject({ state: "delayed", why: { waitsFor: "delay" } });
    expect(data).toMatchObject({ isError: true });
    expect(job.text + data.text).not.toContain(SECRET);
    expect(pause.error).toMatchObject({ code: -32_602 });
    expect((await bucket.peek()).pausedForMs).toBe(0);
    expect(await session.end()).toBe(0);
  });

  it("makes allowed changes, and the log shows the author", async () => {
    const { service, queue } = await openService();
    const session = openSession("--allow", "act");

    const paused = await session.call("queue_pause", { queue: "charges", reason: "429s" });
    const wrong = await session.call("queue_pause", { queue: "charges", forMs: 0 });
    const undone = await session.call("queue_undo", { queue: "charges" });

    expect(JSON.parse(paused.text)).toMatchObject({ pauses: [{ forMs: "forever" }] });
    expect(wrong).toMatchObject({ isError: true, text: expect.stringContaining("forMs") });
    expect(JSON.parse(undone.text)).toMatchObject({ undone: { action: "pause" }, pauses: [] });
    expect(await queue.paused()).toEqual([]);
    const [, pause] = await service.changes({ queue: "charges" });
    expect(pause).toMatchObject({ action: "pause", by: "ann (mcp)", reason: "429s" });
    expect(await session.end()).toBe(0);
  });
});

describe("POST /mcp", () => {
  it("logs each change with its author, and no reads", async () => {
    await openService();
    const lines: string[] = [];
    const logger = pino({}, { write: (line: string) => void lines.push(line) });
    const { url } = await servers.open(sluices.open(), { logger });
    const call = (name: string) =>
      ask(`${url}/mcp`, {
        token: ACT,
        body: {
          jsonrpc: "2.0",
          id: 1,
          method: "tools/call",
          params: { name, arguments: { bucket: "stripe" } },
        },
      });

    await call("bucket_look");
    await call("bucket_pause");

    const changes = lines
      .map((line) => JSON.parse(line) as { msg?: string })
      .filter(({ msg }) => msg === "changed by hand");
    expect(changes).toMatchObject([{ operation: "bucket.pause", bucket: "stripe", by: "ann" }]);
  });

  it("gives each token the tools of its role, within its scope", async () => {
    const { bucket } = await openService();
    const { url } = await servers.open(sluices.open());
    const call = (token: string, name: string, given: object) =>
      ask(`${url}/mcp`, {
        token,
        body: { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: given } },
      });

    const looked = await call(VIEW, "bucket_look", { bucket: "stripe" });
    const refused = await call(VIEW, "bucket_pause", { bucket: "stripe" });
    const notified = await ask(`${url}/mcp`, {
      token: VIEW,
      body: { jsonrpc: "2.0", method: "notifications/initialized" },
    });
    const nobody = await ask(`${url}/mcp`, { body: {} });
    expect((await bucket.peek()).pausedForMs).toBe(0);
    await call(ACT, "bucket_pause", { bucket: "stripe", by: "bot" });

    expect(JSON.parse(looked.json.result.content[0].text)).toMatchObject({ name: "stripe" });
    expect(refused.json.error).toMatchObject({ code: -32_602 });
    expect(notified).toMatchObject({ status: 202, text: "" });
    expect(nobody.status).toBe(401);
    expect(await bucket.status()).toMatchObject({
      pausedForMs: Infinity,
      pausedBy: { by: "bot (token of ann)" },
    });
  });
});

describe("each read operation", () => {
  it("shows neither names beyond the scope of a token nor data of jobs", async () => {
    const { bucket, queue } = await openService();
    await bucket.pause({ by: "bob" });
    await queue.pause({ by: "bob" });
    const tokens = [{ token: VIEW, role: "view", buckets: ["other"], queues: ["other"] }] as const;
    const { url: scoped } = await servers.open(sluices.open(), { tokens });
    const { url: whole } = await servers.open(sluices.open());
    const asked = { bucket: "stripe", queue: "charges", id: "order-17" };
    const listed = await ask(`${whole}/mcp`, {
      token: VIEW,
      body: { jsonrpc: "2.0", id: 1, method: "tools/list" },
    });
    const { tools } = listed.json.result as {
      tools: { name: string; inputSchema: { required: string[] } }[];
    };
    const answers = async (url: string): Promise<string[]> =>
      Promise.all(
        tools.map(async ({ name, inputSchema: { required } }) => {
          const given = Object.fromEntries(
            Object.entries(asked).filter(([field]) => required.includes(field)),
          );
          const params = { name, arguments: given };
          const body = { jsonrpc: "2.0", id: 1, method: "tools/call", params };
          const { json } = await ask(`${url}/mcp`, { token: VIEW, body });
          const { isError, content } = json.result;
          return isError === true ? "" : `${name}: ${content[0].text}`;
        }),
      );

    const ofScope = (await answers(scoped)).join("\n");
    const all = (await answers(whole)).join("\n");

    expect(ofScope).not.toMatch(/stripe|charges|order-17|bob/);
    expect(ofScope).toContain("bucket_list:");
    expect(all).toMatch(/stripe[^]*charges[^]*bob/);
    expect(all).not.toContain(SECRET);
  });
});
