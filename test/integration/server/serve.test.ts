import { writeFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { waitUntil } from "../../support/async/wait-until.ts";
import { runCli } from "../../support/children/run-cli.ts";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { ACT, ask, VIEW } from "../../support/server/open-server.ts";
import { rulesFiles } from "../../support/rules/rules-files.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const processes = scriptProcesses();
const files = rulesFiles();

/** Runs `sluice serve` as a process of its own. */
function serve(args: readonly string[], env: Record<string, string> = {}) {
  return processes.start("src/cli/main.ts", {
    args: ["--prefix", sluices.prefix(), "serve", "--port", "0", ...args],
    env: { REDIS_URL: inject("redisUrl"), ...env },
  });
}

async function urlOf(process: ReturnType<typeof serve>): Promise<string> {
  await waitUntil(() => /^http\S+$/m.test(process.stdout), "it says its URL");
  return /^http\S+$/m.exec(process.stdout)![0];
}

describe("sluice serve", () => {
  it.each(["SIGINT", "SIGTERM"] as const)("prints its URL, and ends on %s", async (signal) => {
    const process = serve(["--insecure-local"]);
    const url = await urlOf(process);

    const ready = await ask(`${url}/readyz`);
    process.signal(signal);

    expect(ready.json).toEqual({ ready: true, reasons: [] });
    expect(await process.ended).toBe(0);
    expect(process.stderr).toBe("");
  });

  it("takes tokens from a file with roles, and from the environment", async () => {
    const folder = await mkdtemp(join(tmpdir(), "sluice-serve-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    const file = join(folder, "tokens.json");
    await writeFile(file, JSON.stringify([{ token: VIEW, role: "view", name: "bob" }]));

    const ofFile = await urlOf(serve(["--token-file", file]));
    const ofEnv = await urlOf(serve([], { SLUICE_TOKEN: ACT }));

    const session = "/api/v1/session";
    expect((await ask(ofFile + session, { token: VIEW })).json).toMatchObject({
      role: "view",
      name: "bob",
    });
    expect((await ask(ofFile + session, { token: ACT })).status).toBe(401);
    expect((await ask(ofEnv + session, { token: ACT })).json).toMatchObject({ role: "act" });
  });

  it("says that its port is taken, and that Redis does not answer", async () => {
    const first = serve(["--insecure-local", "--redis", "redis://127.0.0.1:1"]);
    const { port } = new URL(await urlOf(first));
    const second = serve(["--insecure-local", "--port", port]);

    expect(await second.ended).toBe(1);
    expect(second.stderr).toMatch(/EADDRINUSE.* give another --port/);
    await waitUntil(() => first.stderr.includes("answers 503 until Redis answers"), "it says so");
    expect(first.stderr).toContain("ECONNREFUSED");
  });

  it("changes nothing when it cannot listen: neither by its rules nor by --llm", async () => {
    const rules = files.write("sluice.yaml", "version: 9\nbuckets: { api: { rate: 1/h } }");
    const first = serve(["--insecure-local"]);
    const { port } = new URL(await urlOf(first));
    const service = sluices.open();
    const bucket = service.bucket("api", { rate: "50/s" });
    await bucket.draw();

    const llm = ["--forward", "gpt=http://127.0.0.1:1", "--llm", "gpt=openai,requests=1/h"];
    const second = serve(["--insecure-local", "--port", port, "--rules", rules, ...llm]);

    expect(await second.ended).toBe(1);
    expect(second.stderr).toContain("EADDRINUSE");
    expect(await service.changes()).toEqual([]);
    expect((await bucket.status()).policy).toBe("50/s");
    expect(await service.find("gpt")).toBeUndefined();
  });

  it("puts its rules in force once it listens", async () => {
    const rules = files.write("sluice.yaml", "version: 9\nbuckets: { api: { rate: 20/s } }");
    await urlOf(serve(["--insecure-local", "--rules", rules]));
    const service = sluices.open();

    await waitUntil(async () => (await service.find("api")) !== undefined, "they are in force");

    expect((await service.bucket("api").peek()).policy).toBe("20/s");
  });

  it("continues when its output is not read", async () => {
    const process = serve(["--insecure-local"]);
    const url = await urlOf(process);

    process.readNoMore();
    for (let asked = 0; asked < 20; asked++) await ask(`${url}/api/v1/overview`);
    const answer = await ask(`${url}/readyz`);
    process.signal("SIGTERM");

    expect(answer.status).toBe(200);
    expect(await process.ended).toBe(0);
  });

  it("says how long connections and silent upstreams last", async () => {
    const more = ["--keep-alive-timeout", "620s", "--forward", "up=http://127.0.0.1:1"];
    const url = await urlOf(serve(["--insecure-local", ...more, "--forward-timeout", "20m"]));

    const answer = await ask(`${url}/healthz`, { headers: { connection: "keep-alive" } });

    expect(answer.headers["keep-alive"]).toBe("timeout=620");
  });

  it("takes pages of its public address", async () => {
    const origin = "http://ops.example.com";
    const proxied = ["--public-url", `${origin}/sluice`, "--trust-proxy", "127.0.0.1"];
    const url = await urlOf(serve(["--token", ACT, ...proxied]));

    const answer = await ask(`${url}/api/v1/session`, {
      body: { token: ACT },
      headers: { origin },
    });

    expect(answer.status).toBe(200);
    expect(String(answer.headers["set-cookie"])).toContain("Path=/sluice/");
  });

  it.each([
    [["--insecure-local", "--forward-timeout", "20m"], "beside a --forward"],
    [["--insecure-local", "--public-url", "ops"], "give a URL"],
    [["--insecure-local", "--trust-proxy", "nobody"], "addresses and networks"],
    [["--insecure-local", "--keep-alive-timeout", "620"], "90s, 15m or 2h"],
    [[], "--insecure-local"],
    [["--insecure-local", "--host", "0.0.0.0"], "loopback only"],
    [["--insecure-local", "--port", "web"], "0 to 65535"],
    [["--token", ACT, "--tls-key", "key.pem"], "--tls-cert"],
    [["--token-file", "/nowhere/tokens"], "cannot be read"],
  ])("refuses %j with one line that says what to do", async (args, remedy) => {
    const env = { REDIS_URL: inject("redisUrl") };

    const { code, out, err } = await runCli(["serve", "--port", "0", ...args], env);

    expect({ code, out }).toEqual({ code: 2, out: "" });
    expect(err.trimEnd().split("\n")).toHaveLength(1);
    expect(err).toContain(remedy);
  });
});
