import { writeFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { waitUntil } from "../../support/async/wait-until.ts";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { ACT, ask, VIEW } from "../../support/server/open-server.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const processes = scriptProcesses();

/** Runs `sluice serve` as a process of its own. */
function serve(args: readonly string[], env: Record<string, string> = {}) {
  return processes.start("src/cli/main.ts", {
    args: ["--prefix", sluices.prefix(), "serve", "--port", "0", ...args],
    env: { REDIS_URL: inject("redisUrl"), ...env },
    isBuilt: true,
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

  it.each([
    [[], "--insecure-local"],
    [["--insecure-local", "--host", "0.0.0.0"], "loopback only"],
    [["--insecure-local", "--port", "web"], "0 to 65535"],
    [["--token", ACT, "--tls-key", "key.pem"], "--tls-cert"],
    [["--token-file", "/nowhere/tokens"], "cannot be read"],
  ])("refuses %j with one line that says what to do", async (args, remedy) => {
    const process = serve(args);

    expect(await process.ended).toBe(2);

    expect(process.stdout).toBe("");
    expect(process.stderr.trimEnd().split("\n")).toHaveLength(1);
    expect(process.stderr).toContain(remedy);
  });
});
