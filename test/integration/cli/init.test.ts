import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { transform } from "esbuild";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { run } from "../../../src/cli/program.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";

const ROOT = join(import.meta.dirname, "../../..");
const downstream = useDownstream();

interface ProjectOptions {
  readonly type?: "module" | "commonjs";
  readonly isTypeScript?: boolean;
}

/** Makes a project that has Sluice installed, in a folder that goes after the test. */
async function makeProject({ type = "module", isTypeScript = false }: ProjectOptions = {}) {
  const dir = await mkdtemp(join(tmpdir(), "sluice-init-"));
  onTestFinished(() => rm(dir, { recursive: true }));
  await writeFile(join(dir, "package.json"), JSON.stringify({ name: "project", type }));
  if (isTypeScript) {
    await mkdir(join(dir, "src"));
    await writeFile(join(dir, "tsconfig.json"), "{}");
  }
  await mkdir(join(dir, "node_modules"));
  await symlink(inject("builtRoot"), join(dir, "node_modules/sluice"));
  return dir;
}

/** What the compiler says of files, whose own `package.json` says which kind of modules they are. */
async function compile(files: readonly string[]): Promise<string> {
  const compilerOptions = {
    module: "nodenext",
    target: "es2023",
    strict: true,
    exactOptionalPropertyTypes: true,
    noEmit: true,
    noPropertyAccessFromIndexSignature: true,
    skipLibCheck: true,
    // The built package has no declarations here, so the compiler reads the sources.
    allowImportingTsExtensions: true,
    rootDir: "/",
    paths: {
      sluice: [join(ROOT, "src/sluice/index.ts")],
      "sluice/llm": [join(ROOT, "src/entries/llm/index.ts")],
      "sluice/webhooks": [join(ROOT, "src/webhooks/index.ts")],
    },
    types: ["node"],
    typeRoots: [join(ROOT, "node_modules/@types")],
  };
  const dir = await makeProject();
  await writeFile(join(dir, "tsconfig.json"), JSON.stringify({ compilerOptions, files }));
  const tsc = join(ROOT, "node_modules/typescript/bin/tsc");
  return new Promise((resolve) => {
    execFile(process.execPath, [tsc, "-p", dir], (_error, out) => resolve(out));
  });
}

async function init(
  args: readonly string[],
  ask?: (question: string) => Promise<string>,
): Promise<{ code: number; out: string; err: string }> {
  let [out, err] = ["", ""];
  const code = await run(["init", ...args], {
    out: (text) => void (out += text),
    err: (text) => void (err += text),
    isTty: false,
    env: {},
    ask,
  });
  return { code, out, err };
}

/** Runs a file of a project, with a Redis and with the fake downstream in place of all APIs. */
async function runFile(dir: string, file: string): Promise<{ code: number; out: string }> {
  const env = {
    ...process.env,
    REDIS_URL: inject("redisUrl"),
    SLUICE_WEBHOOK_KEYS: `k1:${Buffer.alloc(32, 7).toString("base64")}`,
    STRIPE_URL: downstream.url,
    OPENAI_URL: downstream.url,
    API_URL: downstream.url,
    WEBHOOK_URL: `${downstream.url}/hook`,
    API_KEY: "secret-of-the-api",
  };
  const child = spawn(process.execPath, [file], { cwd: dir, env });
  let out = "";
  child.stdout.on("data", (chunk: Buffer) => (out += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (out += chunk.toString()));
  const [code] = (await once(child, "close")) as [number];
  return { code, out };
}

const TRIALS = [
  ["stripe", "stripe: 200 200 200", "/v1/balance"],
  ["openai", "gpt: 200 200 200", "/v1/models"],
  ["api", "api: 200 200 200", "/"],
  ["webhooks", "webhook: 200", "/hook"],
] as const;

describe("sluice init", () => {
  it.each(TRIALS)("writes a file for %s that runs", async (call, printed, path) => {
    const dir = await makeProject();

    const result = await init(["--call", call, "--yes", "--dir", dir]);
    const tried = await runFile(dir, "sluice.js");

    expect(result).toMatchObject({ code: 0, err: "" });
    expect(tried.out).toContain(printed);
    expect(tried.code).toBe(0);
    expect(new Set(downstream.arrivals.map((arrival) => arrival.path))).toEqual(new Set([path]));
  });

  it("writes CommonJS with a queue and rules, and a compose file", async () => {
    const dir = await makeProject({ type: "commonjs" });

    const flags = ["--queue", "--rules", "--compose", "--yes", "--dir", dir];
    const result = await init(["--call", "api", ...flags]);
    const tried = await runFile(dir, "sluice.js");

    expect(result).toMatchObject({ code: 0, err: "" });
    expect((await readdir(dir)).sort()).toEqual([
      "compose.sluice.yaml",
      "node_modules",
      "package.json",
      "sluice.js",
      "sluice.yaml",
    ]);
    expect(tried.out).toContain("api: 200 200 200");
    expect(tried.out).toContain("job: 200");
    expect(tried.code).toBe(0);
    expect(downstream.arrivals[0]!.headers["authorization"]).toBe("Bearer secret-of-the-api");
  });

  it("writes a queue without an API", async () => {
    const dir = await makeProject();

    await init(["--call", "webhooks", "--queue", "--yes", "--dir", dir]);
    const tried = await runFile(dir, "sluice.js");

    expect(tried.out).toContain("job: 200");
    expect(tried.code).toBe(0);
  });

  it("writes TypeScript that compiles and runs, in projects of both kinds of modules", async () => {
    const types = ["module", "commonjs"] as const;
    const dirs = await Promise.all(
      types.map(async (type) => makeProject({ type, isTypeScript: true })),
    );
    const files = dirs.map((dir) => join(dir, "src/sluice.ts"));

    const calls = "stripe,openai,api,webhooks";
    const results = await Promise.all(
      dirs.map(async (dir) => init(["--call", calls, "--queue", "--rules", "--yes", "--dir", dir])),
    );
    const messages = await compile(files);
    const tried = await Promise.all(
      dirs.map(async (dir, at) => {
        const format = types[at] === "module" ? "esm" : "cjs";
        const typed = await readFile(files[at]!, "utf8");
        const { code } = await transform(typed, { loader: "ts", target: "node20", format });
        await writeFile(join(dir, "src/sluice.js"), code);
        return runFile(dir, "src/sluice.js");
      }),
    );

    for (const result of results) expect(result).toMatchObject({ code: 0, err: "" });
    expect(messages).toBe("");
    for (const { out, code } of tried) {
      for (const [, printed] of TRIALS) expect(out).toContain(printed);
      expect(out).toContain("job: 200");
      expect(code).toBe(0);
    }
  });

  it("asks for what the options do not say", async () => {
    const dir = await makeProject();
    const questions: string[] = [];

    const { code } = await init(["--dir", dir, "--queue"], async (question) => {
      questions.push(question);
      return question.startsWith("What") ? "Stripe, api" : question.includes("limits") ? "yes" : "";
    });

    const text = await readFile(join(dir, "sluice.js"), "utf8");
    expect(code).toBe(0);
    expect(questions).toHaveLength(3);
    expect(text).toContain('sluice.bucket("stripe")');
    expect(text).toContain('sluice.bucket("api")');
    expect(text).toContain("sluice.queue(");
    expect((await readdir(dir)).sort()).toEqual([
      "node_modules",
      "package.json",
      "sluice.js",
      "sluice.yaml",
    ]);
  });

  it("replaces no file, and then writes none", async () => {
    const dir = await makeProject();
    await writeFile(join(dir, "sluice.yaml"), "mine");

    const { code, err } = await init(["--call", "api", "--rules", "--yes", "--dir", dir]);

    expect(code).toBe(2);
    expect(err).toContain("sluice.yaml, which is never replaced");
    expect(await readFile(join(dir, "sluice.yaml"), "utf8")).toBe("mine");
    expect(await readdir(dir)).not.toContain("sluice.js");
  });

  it("prints the files and writes none with --dry-run", async () => {
    const dir = await makeProject();

    const { code, out } = await init(["--call", "api", "--yes", "--dry-run", "--dir", dir]);

    expect(code).toBe(0);
    expect(out).toContain('sluice.bucket("api", { rate: "10/s" })');
    expect((await readdir(dir)).sort()).toEqual(["node_modules", "package.json"]);
  });

  it.each([
    [["--call", "paypal", "--yes"], '"paypal"'],
    [["--call", " , ", "--yes"], "--call"],
    [["--yes"], "give what you call"],
    [[], "give what you call"],
    [["--call", "api", "--dir", "/nonexistent"], "package.json"],
  ])("refuses %j by name", async (args, why) => {
    const dir = await makeProject();
    const { code, err } = await init(args.includes("--dir") ? args : [...args, "--dir", dir]);

    expect(code).toBe(2);
    expect(err).toContain(why);
    expect(await readdir(dir)).not.toContain("sluice.js");
  });
});
