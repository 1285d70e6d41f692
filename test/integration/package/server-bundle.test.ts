import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { promisify } from "node:util";
import { build, type BuildOptions } from "esbuild";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import webpack from "webpack";
import { installPacked, type Consumer } from "../../support/setup/packed-package.ts";

const run = promisify(execFile);
const SERVICE = `
import { createSluice } from "sluice";
import { createServer } from "sluice/server";

async function main() {
  const sluice = createSluice({ redis: "memory" });
  const server = await createServer(sluice, { port: 0, insecureLocal: true, logger: false });
  const { url } = await server.listen();
  for (const path of ["/", "/app.js", "/parts/dom.js", "/uplot.js", "/readyz"]) {
    console.log(path, (await fetch(url + path)).status);
  }
  const jobs = await fetch(url + "/jobs");
  console.log("/jobs", jobs.status, JSON.stringify(await jobs.text()));
  await server.close();
  await sluice.close();
}
void main();
`;
/** As users of esbuild write it for CommonJS within ES modules. */
const BANNER =
  'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);';
const WORKS = ["/ 200", "/app.js 200", "/parts/dom.js 200", "/uplot.js 200", "/readyz 200"];
const LACKS_BULL_BOARD = expect.stringMatching(
  /^\/jobs 503 .*npm install @bull-board\/api@9.10 @bull-board\/ui@9.10.*ERR_PACKAGE_MISSING/,
) as string;

let consumer: Consumer;
let elsewhere: string;

beforeAll(async () => {
  consumer = await installPacked();
  // Nothing is beside what is bundled.
  elsewhere = await mkdtemp(join(tmpdir(), "sluice-bundle-"));
  await writeFile(join(consumer.folder, "service.mjs"), SERVICE);
});
afterAll(async () => {
  await rm(elsewhere, { recursive: true });
  await consumer.remove();
});

async function linesOf(file: string): Promise<string[]> {
  const { stdout, stderr } = await run(process.execPath, [file], { cwd: dirname(file) });
  expect(stderr).toBe("");
  return stdout.trim().split("\n");
}

describe("a bundle that includes the server", () => {
  it.each([
    ["cjs", {}],
    ["esm", { banner: { js: BANNER } }],
  ] as const)(
    "of esbuild, in %s, shows the board and says what /jobs needs",
    async (format, more) => {
      const outfile = join(elsewhere, `service.${format === "cjs" ? "cjs" : "mjs"}`);
      const entryPoints = [join(consumer.folder, "service.mjs")];
      const options: BuildOptions = {
        bundle: true,
        platform: "node",
        external: ["@grpc/grpc-js"],
      };
      await build({ ...options, entryPoints, outfile, format, logLevel: "error", ...more });

      const lines = await linesOf(outfile);

      expect(lines).toEqual([...WORKS, LACKS_BULL_BOARD]);
    },
  );

  it("of webpack shows the board", async () => {
    const compiler = webpack({
      mode: "production",
      target: "node20",
      entry: join(consumer.folder, "service.mjs"),
      output: { path: elsewhere, filename: "webpack.cjs" },
      optimization: { minimize: false },
      externals: { "@grpc/grpc-js": "commonjs @grpc/grpc-js" },
    });
    const stats = await promisify(compiler.run.bind(compiler))();
    await promisify(compiler.close.bind(compiler))();
    expect(stats?.toJson({ all: false, errors: true }).errors).toEqual([]);

    const lines = await linesOf(join(elsewhere, "webpack.cjs"));

    expect(lines).toEqual([...WORKS, LACKS_BULL_BOARD]);
  });
});

describe("/jobs of a server that is not bundled", () => {
  it("says what to install if bull-board is partly missing", async () => {
    await consumer.link("@bull-board/api");

    const lines = await linesOf(join(consumer.folder, "service.mjs"));

    expect(lines).toEqual([...WORKS, LACKS_BULL_BOARD]);
  });

  it("names the needed version if another is installed", async () => {
    const ui = join(consumer.folder, "node_modules/@bull-board/ui");
    await mkdir(ui);
    await writeFile(join(ui, "package.json"), '{ "version": "9.11.0" }');

    const lines = await linesOf(join(consumer.folder, "service.mjs"));

    await rm(ui, { recursive: true });
    expect(lines).toEqual([
      ...WORKS,
      expect.stringMatching(/^\/jobs 503 .*needs bull-board 9.10.*version 9.11.0 is installed/),
    ]);
  });

  it("shows bull-board once both of its packages are installed", async () => {
    await consumer.link("@bull-board/ui");

    const lines = await linesOf(join(consumer.folder, "service.mjs"));

    expect(lines).toEqual([...WORKS, expect.stringMatching(/^\/jobs 200 .*Sluice jobs/)]);
  });
});
