import process from "node:process";
import { randomBytes } from "node:crypto";
import { describe, expect, inject, it, onTestFinished, vi } from "vitest";
import { createSecret, createWebhooks } from "sluice/webhooks";
import { rejectionOf } from "../../support/async/rejection.ts";
import { scriptProcesses, type ScriptProcess } from "../../support/children/script-process.ts";
import { openSluice } from "../../support/redis/for-one-test.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const processes = scriptProcesses();

async function startDev(
  args: readonly string[],
  env: Record<string, string | undefined> = { REDIS_URL: undefined },
) {
  const started = processes.start("src/cli/main.ts", {
    args: ["dev", "--port", "0", "--redis-port", "0", "--webhooks-port", "0", ...args],
    env,
  });
  await waitUntil(() => /^webhooks /m.test(started.stdout), "it is ready");
  await waitUntil(
    () => env["REDIS_URL"] !== undefined || started.stdout.includes("REDIS_URL"),
    "it has printed the address",
  );
  return { started, board: lineOf(started, "board"), redis: lineOf(started, "REDIS_URL") };
}

function lineOf({ stdout }: ScriptProcess, name: string): string | undefined {
  return new RegExp(`^${name} +(\\S+)`, "m").exec(stdout)?.[1]?.replace(/,$/, "");
}

async function callTool(board: string, name: string, input: object): Promise<unknown> {
  const params = { name, arguments: input };
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params });
  const headers = { "content-type": "application/json" };
  return (await fetch(`${board}/mcp`, { method: "POST", headers, body })).json();
}

describe("sluice dev", () => {
  it("shares one Redis in memory between processes and the board, and ends on Ctrl-C", async () => {
    const { started, board, redis } = await startDev([]);
    const [producer, worker] = [openSluice({ redis }), openSluice({ redis })];
    const open = (sluice: typeof producer) =>
      sluice.queue<number, number>("jobs", { bucket: sluice.bucket("api", { rate: "100/s" }) });
    worker.worker(open(worker), async ({ data }) => data * 2);

    const job = await open(producer).enqueue(21);

    expect(await job.finished()).toBe(42);
    await waitUntil(async () => {
      const { queues } = (await (await fetch(`${board}/api/v1/queues`)).json()) as {
        readonly queues: readonly { readonly name: string }[];
      };
      return queues.some(({ name }) => name === "jobs");
    }, "the board lists the queue");
    started.signal("SIGINT");
    expect(await started.ended).toBe(0);
    expect(started.stderr).toBe("");
  });

  it.each([
    ["refuses changes by agents", [], true],
    ["lets agents make changes with --allow act", ["--allow", "act"], undefined],
  ] as const)("%s", async (_what, args, isError) => {
    const { board, redis } = await startDev(args);
    const bucket = openSluice({ redis }).bucket("api", { rate: "100/s" });
    // On a busy machine, the server may translate its first scripts for longer than a draw waits.
    const draws = async (): Promise<boolean> =>
      bucket.draw().then(
        () => true,
        () => false,
      );
    await waitUntil(draws, "the server has loaded the scripts");
    const isReported = async (): Promise<boolean> => {
      const response = await fetch(`${board}/api/v1/buckets`);
      return response.ok && (await response.text()).includes('"api"');
    };
    await waitUntil(isReported, "the bucket is reported");

    const reply = await callTool(board!, "bucket_pause", { bucket: "api", forMs: 60_000 });

    const { result, error } = reply as {
      readonly result?: { readonly isError?: boolean };
      readonly error?: unknown;
    };
    expect(error !== undefined || result?.isError === true ? true : undefined).toBe(isError);
  });

  it("receives webhooks of a sender that allows only its URL, and fails them on request", async () => {
    const secret = createSecret();
    const { started, redis } = await startDev(["--webhooks-secret", secret]);
    const receiver = lineOf(started, "webhooks")!;
    vi.stubEnv("SLUICE_DEV_WEBHOOKS", receiver);
    onTestFinished(() => void vi.unstubAllEnvs());
    const keys = `k1:${randomBytes(32).toString("base64")}`;
    const sluice = openSluice({ redis, logger: { warn() {}, error() {} } });
    const hooks = createWebhooks(sluice, { keys, scheduleMs: [0, 3_600_000] });
    const put = (id: string, url: string) =>
      hooks.endpoints.put({ tenant: "acme", id, url, secret });

    await put("good", `${receiver}/billing`);
    await put("bad", `${receiver}/fail/503`);
    hooks.worker();
    const { id } = await hooks.send({ tenant: "acme", type: "invoice.paid", data: { total: 7 } });

    const line = `verified invoice.paid ${id} {`;
    await waitUntil(
      () =>
        [`/billing 204 ${line}`, `/fail/503 503 ${line}`].every((each) =>
          started.stdout.includes(each),
        ),
      "both are printed",
    );
    const other = receiver.replace(/\d+$/, (port) => String(Number(port) - 1));
    for (const url of [other, receiver.replace("127.0.0.1", "127.0.0.2")]) {
      expect(await rejectionOf(put("other", url))).toMatchObject({ option: "url" });
    }
  });

  it("uses the Redis that it is given, and starts none", async () => {
    const { started, board } = await startDev([], { REDIS_URL: inject("redisUrl") });

    expect((await fetch(`${board}/api/v1/buckets`)).status).toBe(200);
    expect(started.stdout).not.toContain("REDIS_URL");
  });

  it("names a port that can never work", async () => {
    const wrong = processes.start("src/cli/main.ts", {
      args: ["dev", "--redis-port", "x"],
      env: { REDIS_URL: undefined },
    });

    expect(await wrong.ended).toBe(2);
    expect(wrong.stderr).toContain('sluice dev: option "--redis-port" is "x"');
  });
});

it("an example runs on a machine without Redis, Docker or root", async () => {
  const example = processes.start("examples/run.ts", {
    isSource: true,
    args: ["webhook"],
    env: { REDIS_URL: undefined, PATH: process.execPath.replace(/\/[^/]*$/, "/none") },
  });

  expect(await example.ended).toBe(0);
  expect(example.stdout).toContain("invoice.paid was answered 200");
});
