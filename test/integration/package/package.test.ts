import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { build, type BuildOptions } from "esbuild";
import bullmq from "bullmq/package.json" with { type: "json" };
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from "vitest";
import webpack from "webpack";
import packageJson from "../../../package.json" with { type: "json" };
import { installPacked, type Consumer } from "../../support/setup/packed-package.ts";

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const TSC = join(ROOT, "node_modules/.bin/tsc");
const SERVICE = join(ROOT, "test/support/processes/consumer.ts");
const HANDLER = `module.exports = async ({ data }) => \`did \${data.name} in a process of its own\`;\n`;
const STRICT = {
  strict: true,
  exactOptionalPropertyTypes: true,
  target: "es2023",
  types: ["node"],
} as const;
/** What CommonJS within ES modules needs, as esbuild's users write it. */
const BANNER =
  'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);';
/** The files and folders at the top of the package. */
const FILES = packageJson.files.flatMap((path) =>
  path.startsWith("!") ? [] : path.split("/")[0]!,
);
const MOST_BYTES = 25_000_000;
const MOST_PACKAGES = 30;
const NPM_INSTALL = ["install", "--prefer-offline", "--loglevel=error"];
const PACED = ["one, two, three", "95.24/s 2", "50/s"];

let consumer: Consumer;

beforeAll(async () => {
  consumer = await installPacked({ withTypes: true });
  await writeFile(join(consumer.folder, "handler.cjs"), HANDLER);
});
afterAll(() => consumer.remove());

/** Lines that a service prints. */
async function linesOf(service: string, cwd: string): Promise<string[]> {
  const args = [service, inject("redisUrl"), join(cwd, "handler.cjs")];
  const { stdout } = await run(process.execPath, args, { cwd });
  return stdout.trim().split("\n");
}

/** Checks and compiles the service in a folder of the consumer; what is wrong with its types ends the test. */
async function compile(name: string, compilerOptions: object): Promise<string> {
  const folder = join(consumer.folder, name.replace(".", "-"));
  await mkdir(folder);
  await cp(SERVICE, join(folder, name));
  const config = { compilerOptions: { ...STRICT, ...compilerOptions }, files: [name] };
  await writeFile(join(folder, "tsconfig.json"), JSON.stringify(config));
  const { stdout } = await run(TSC, ["-p", folder]).catch((error: { stdout: string }) => error);
  expect(stdout).toBe("");
  return folder;
}

interface Installed {
  readonly packages: number;
  readonly bytes: number;
}

/** What a service gets that installs this alone. */
async function install(what: string): Promise<Installed> {
  const folder = await mkdtemp(join(tmpdir(), "sluice-size-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await writeFile(join(folder, "package.json"), '{ "private": true }');
  await run("npm", [...NPM_INSTALL, what], { cwd: folder });

  const modules = join(folder, "node_modules");
  const lock = JSON.parse(await readFile(join(modules, ".package-lock.json"), "utf8")) as {
    readonly packages: object;
  };
  const entries = await readdir(modules, { recursive: true, withFileTypes: true });
  const sizes = await Promise.all(
    entries
      .filter((entry) => entry.isFile())
      .map(async ({ parentPath, name }) => (await stat(join(parentPath, name))).size),
  );
  return {
    packages: Object.keys(lock.packages).length,
    bytes: sizes.reduce((sum, bytes) => sum + bytes, 0),
  };
}

describe("the tarball", () => {
  it("contains the build, and neither scripts nor other sources", () => {
    const folders = new Set(consumer.files.map((path) => path.split("/")[0]));

    expect(folders).toEqual(new Set(["package.json", ...FILES]));
    expect(consumer.files.filter((path) => /\.lua$|(?<!\.d)\.ts$/.test(path))).toEqual([]);
  });

  it("contains the licenses of bundled packages, and source maps without sources", async () => {
    const dist = join(consumer.folder, "node_modules/sluice/dist");

    const licenses = await readFile(join(dist, "licenses.txt"), "utf8");
    const map = JSON.parse(await readFile(join(dist, "index.js.map"), "utf8")) as {
      readonly sourcesContent?: readonly unknown[];
    };

    expect(licenses).toMatch(/^zod \d\S+\n\nMIT License$/m);
    expect(licenses).toMatch(/^undici \d\S+\n\nMIT License$/m);
    expect(map.sourcesContent).toBeUndefined();
  });

  it("loads BullMQ only when a queue is used, and only what a bucket needs", async () => {
    const coverage = join(consumer.folder, "coverage");
    const code = 'import "sluice"';
    const env = { ...process.env, NODE_V8_COVERAGE: coverage };
    const args = ["--input-type=module", "--eval", code];

    await run(process.execPath, args, { cwd: consumer.folder, env });

    const [report] = await readdir(coverage);
    const { result } = JSON.parse(await readFile(join(coverage, report!), "utf8")) as {
      readonly result: readonly { readonly url: string }[];
    };
    const packages = new Set(
      result.map(({ url }) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(url)?.[1]),
    );
    expect(packages).toContain("sluice");
    expect(packages).toContain("ioredis");
    expect(packages).not.toContain("bullmq");
    expect(packages).not.toContain("pg");
    const files = result.flatMap(({ url }) => /\/sluice\/dist\/(.*)/.exec(url)?.[1] ?? []);
    expect(files).not.toContain("llm.js");
    expect(files).not.toContain("outbox.js");
    // They load a package each when they are first called.
    expect(files.filter((file) => file.endsWith(".cjs")).sort()).toEqual([
      "load-bullmq.cjs",
      "load-yaml.cjs",
    ]);
  });
});

it("installs at most 30 packages and 25 MB", async ({ annotate }) => {
  const [ours, ofBullmq] = await Promise.all([
    install(consumer.tarball),
    install(`bullmq@${bullmq.version}`),
  ]);

  for (const [name, { packages, bytes }] of Object.entries({ sluice: ours, bullmq: ofBullmq })) {
    await annotate(
      `npm install ${name}: ${packages} packages, ${bytes.toLocaleString("en")} bytes`,
    );
  }
  expect(ours.packages).toBeLessThanOrEqual(MOST_PACKAGES);
  expect(ours.bytes).toBeLessThanOrEqual(MOST_BYTES);
});

it("installs under the promised Node version, without the overrides of this repository", async () => {
  const { overrides } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as {
    readonly overrides: Readonly<Record<string, string>>;
  };
  const { packages } = JSON.parse(await readFile(join(ROOT, "package-lock.json"), "utf8")) as {
    readonly packages: Readonly<
      Record<string, { readonly dev?: boolean; readonly devOptional?: boolean }>
    >;
  };

  const installed = Object.entries(packages)
    .filter(([, { dev, devOptional }]) => dev !== true && devOptional !== true)
    .map(([path]) => path.split("node_modules/").at(-1)!);

  expect(installed).toContain("bullmq");
  expect(Object.keys(overrides).filter((name) => installed.includes(name))).toEqual([]);
});

describe("a service that installs the package", () => {
  it("has the command line", async () => {
    const installed = join(consumer.folder, "node_modules/sluice");
    const { bin } = JSON.parse(await readFile(join(installed, "package.json"), "utf8")) as {
      readonly bin: { readonly sluice: string };
    };

    const { stdout } = await run(join(installed, bin.sluice), ["--help"]);

    expect(stdout).toContain("Usage: sluice [options] [command]");
  });

  it("gets from each entry what its source exports, also the default export", async () => {
    const peers = ["@nestjs/common", "@nestjs/core", "@opentelemetry/api"];
    for (const name of peers) await consumer.link(name);
    const entries = Object.entries(packageJson.exports);
    const specifiers = entries.map(([entry]) => entry.replace(/^\./, "sluice"));
    const code = `
      for (const specifier of ${JSON.stringify(specifiers)})
        console.log(JSON.stringify(Object.keys(await import(specifier)).sort()));`;
    const args = ["--input-type=module", "--eval", code];

    const { stdout } = await run(process.execPath, args, { cwd: consumer.folder });

    const sources = await Promise.all(
      entries.map(([, { "@sluice/source": source }]) => import(join(ROOT, source))),
    );
    const exported = stdout.trim().split("\n");
    expect(exported.map((names) => JSON.parse(names) as string[])).toEqual(
      sources.map((source: object) => Object.keys(source).sort()),
    );
  });

  it.each([
    ["ES modules", "--input-type=module", 'import Bottleneck from "sluice/bottleneck";'],
    [
      "CommonJS",
      "--input-type=commonjs",
      'const { default: Bottleneck } = require("sluice/bottleneck");',
    ],
  ])("gets the drop-in for Bottleneck as the guide loads it, in %s", async (_what, type, load) => {
    const code = `${load}
      const limiter = new Bottleneck({ maxConcurrent: 1 });
      limiter.schedule(async () => "first").then(async (value) => {
        console.log(value, new Bottleneck.Group() instanceof Bottleneck.Group);
        await limiter.disconnect();
      });`;

    const { stdout, stderr } = await run(process.execPath, [type, "--eval", code], {
      cwd: consumer.folder,
    });

    expect({ stdout, stderr }).toEqual({ stdout: "first true\n", stderr: "" });
  });

  it("keeps metrics in a register of its own prom-client", async () => {
    await consumer.link("prom-client");
    const code = `
      import { Counter, Registry } from "prom-client";
      import { createSluice } from "sluice";
      const register = new Registry();
      new Counter({ name: "orders_total", help: "Orders", registers: [register] }).inc(3);
      const sluice = createSluice({ redis: "memory" });
      await sluice.metrics({ register });
      await sluice.bucket("mails", { rate: "100/s" }).throttled(async () => {})();
      console.log(await register.metrics());
      register.setContentType(Registry.OPENMETRICS_CONTENT_TYPE);
      console.log(await register.metrics());
      await sluice.close();`;
    const args = ["--input-type=module", "--eval", code];

    const { stdout } = await run(process.execPath, args, { cwd: consumer.folder });

    expect(stdout.match(/^orders_total 3$/gm)).toHaveLength(2);
    const granted = /^sluice_bucket_slots_total\{bucket="mails",outcome="granted"\} 1$/gm;
    expect(stdout.match(granted)).toHaveLength(2);
    expect(stdout).toContain("# EOF");
  });

  it("draws in memory where Node makes no code from strings", async () => {
    const code = `
      import { createSluice } from "sluice";
      const sluice = createSluice({ redis: "memory" });
      const bucket = sluice.bucket("mails", { rate: "100/s", burst: 9, concurrency: 2 });
      const slot = await bucket.draw();
      console.log(slot.hasLease, (await bucket.tryDraw()).allowed);
      slot.release();
      await sluice.close();`;
    const args = ["--disallow-code-generation-from-strings", "--input-type=module", "--eval", code];

    const { stdout } = await run(process.execPath, args, { cwd: consumer.folder });

    expect(stdout).toBe("true true\n");
  });

  it("gets an error that names the package for gRPC, if it is not installed", async () => {
    const code = `
      import { createSluice } from "sluice";
      import { createServer } from "sluice/server";
      await createServer(createSluice(), { insecureLocal: true, grpc: {} }).catch(
        ({ code, option, message }) => console.log(code, option, message),
      );`;
    const args = ["--input-type=module", "--eval", code];

    const { stdout } = await run(process.execPath, args, { cwd: consumer.folder });

    expect(stdout).toMatch(/^ERR_INVALID_OPTION grpc .*npm install @grpc\/grpc-js\.$/m);
  });

  it("gets an error that names the package for Postgres, if it is not installed", async () => {
    const code = `
      import { createSluice } from "sluice";
      import { createOutbox } from "sluice/outbox";
      const database = "postgres://user:secret@127.0.0.1:1/app";
      const outbox = createOutbox({ sluice: createSluice({ redis: "memory" }), database });
      await outbox.migrate().catch(({ code, option, message }) => console.log(code, option, message));`;
    const args = ["--input-type=module", "--eval", code];

    const { stdout } = await run(process.execPath, args, { cwd: consumer.folder });

    expect(stdout).toMatch(/^ERR_INVALID_OPTION database .*npm install pg\.$/m);
    expect(stdout).not.toContain("secret");
  });

  it.each([
    ["ES modules", "service.mts", "service.mjs"],
    ["CommonJS, by require()", "service.cts", "service.cjs"],
  ])("works in %s, in TypeScript for Node", async (_what, source, output) => {
    const folder = await compile(source, { module: "nodenext", skipLibCheck: true });
    await cp(join(consumer.folder, "handler.cjs"), join(folder, "handler.cjs"));

    const lines = await linesOf(join(folder, output), folder);

    expect(lines).toEqual([...PACED, "did this in a process of its own"]);
  });

  it("has its types checked for a bundler, including those of the package", async () => {
    const options = { module: "esnext", moduleResolution: "bundler", noEmit: true };

    const folder = await compile("service.ts", options);

    expect(await readdir(folder)).not.toContain("service.js");
  });

  it("has its types checked for ES2022, which has no using", async () => {
    const language = { target: "es2022", lib: ["es2022"] };
    const options = { module: "esnext", moduleResolution: "bundler", noEmit: true, ...language };

    const folder = await compile("service-2022.ts", options);

    expect(await readdir(folder)).not.toContain("service-2022.js");
  });
});

describe("a service in one file", () => {
  let home: string;
  let elsewhere: string;

  beforeAll(async () => {
    home = await mkdtemp(join(tmpdir(), "sluice-bundling-"));
    elsewhere = await mkdtemp(join(tmpdir(), "sluice-service-"));
    await cp(consumer.folder, home, { recursive: true, verbatimSymlinks: true });
    await cp(SERVICE, join(home, "service.ts"));
    await cp(join(home, "handler.cjs"), join(elsewhere, "handler.cjs"));
    const builds: Readonly<Record<string, BuildOptions>> = {
      "service.cjs": { format: "cjs" },
      "small.cjs": { format: "cjs", minify: true },
      "service.mjs": { format: "esm", banner: { js: BANNER } },
    };
    for (const [name, options] of Object.entries(builds)) {
      await build({
        ...options,
        entryPoints: [join(home, "service.ts")],
        outfile: join(elsewhere, name),
        bundle: true,
        platform: "node",
        logLevel: "error",
      });
    }
    await bundleWithWebpack();
    await rm(home, { recursive: true });
  });
  afterAll(() => rm(elsewhere, { recursive: true }));

  /** Webpack reads no TypeScript: it is given what esbuild made of the service alone. */
  async function bundleWithWebpack(): Promise<void> {
    const entry = join(home, "service.mjs");
    const entryPoints = [join(home, "service.ts")];
    await build({ entryPoints, outfile: entry, format: "esm", logLevel: "error" });
    const output = { path: elsewhere, filename: "webpack.cjs" };
    // To make it small takes webpack half a minute, and esbuild has done so above.
    const optimization = { minimize: false };
    const compiler = webpack({ mode: "production", target: "node20", entry, output, optimization });
    const stats = await promisify(compiler.run.bind(compiler))();
    await promisify(compiler.close.bind(compiler))();
    expect(stats?.toJson({ all: false, errors: true }).errors).toEqual([]);
  }

  it.each([
    ["CommonJS by esbuild", "service.cjs"],
    ["CommonJS by esbuild, made small", "small.cjs"],
    ["ES modules by esbuild", "service.mjs"],
    ["CommonJS by webpack", "webpack.cjs"],
  ])("contains everything that it needs: %s", async (_what, name) => {
    const lines = await linesOf(join(elsewhere, name), elsewhere);

    expect(lines).toEqual([
      ...PACED,
      expect.stringMatching(/^InvalidOptionError: .* mark "sluice" as external in the bundler/),
      "did this",
    ]);
  });
});
