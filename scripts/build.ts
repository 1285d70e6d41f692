/**
 * Builds the published files in `dist/`: a few JavaScript files with their source maps by esbuild, types by `tsc`.
 * Packages in "dependencies" are not bundled. Those in "devDependencies" that the sources import are bundled, with
 * their licenses. `tsx scripts/build.ts [folder in which dist/ is made] [--without-types]`
 */
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join, relative, resolve } from "node:path";
import { parseArgs } from "node:util";
import { build, transform, type Metafile, type Plugin } from "esbuild";
import packageJson from "../package.json" with { type: "json" };
import { translate } from "../src/stores/memory/lua/translate.ts";
import { readLuaFile } from "../src/stores/redis/scripts/lua-source.ts";
import { readLua } from "../src/stores/redis/scripts/script.ts";
import { readPageFiles } from "../src/server/dashboard/page-files.ts";

const ROOT = resolve(import.meta.dirname, "..");
const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { "without-types": { type: "boolean", default: false } },
});
const DIST = resolve(positionals[0] ?? ROOT, "dist");
/**
 * The build goes to this folder first, so that processes running from `dist/` keep their files until it is complete.
 */
const OUT = `${DIST}.new`;

/** The public entries, and the file that starts the process of a handler in a file. That file is found by its name. */
const ENTRIES = {
  index: "src/sluice/index.ts",
  testing: "src/entries/testing/index.ts",
  simulate: "src/entries/simulate/index.ts",
  llm: "src/entries/llm/index.ts",
  server: "src/server/index.ts",
  webhooks: "src/webhooks/index.ts",
  outbox: "src/queue/outbox/index.ts",
  codec: "src/stores/codec/index.ts",
  nestjs: "src/entries/nestjs/index.ts",
  bottleneck: "src/entries/bottleneck/index.ts",
  metrics: "src/insight/metrics/index.ts",
  opentelemetry: "src/insight/metrics/opentelemetry/index.ts",
  cli: "src/cli/main.ts",
  "sandbox-child": "src/queue/worker/handlers/sandbox-child.ts",
};
/**
 * The declarations of the public entries. The build keeps the declarations that they import, and removes the others.
 */
const TYPES = [
  "sluice/index.d.ts",
  "entries/testing/index.d.ts",
  "entries/simulate/index.d.ts",
  "entries/llm/index.d.ts",
  "server/index.d.ts",
  "webhooks/index.d.ts",
  "queue/outbox/index.d.ts",
  "stores/codec/index.d.ts",
  "entries/nestjs/index.d.ts",
  "entries/bottleneck/index.d.ts",
  "insight/metrics/index.d.ts",
  "insight/metrics/opentelemetry/index.d.ts",
];
/** Modules that read files. Modules with the texts replace them, because a bundle has no folder beside it. */
const LUA_SOURCE = "src/stores/redis/scripts/lua-source.ts";
const TRANSLATED_SCRIPTS = "src/stores/memory/translated-scripts.ts";
const PAGE_FILES = "src/server/dashboard/page-files.ts";
const VERSION = "src/insight/version.ts";
const LUA = "lua";
const LICENSES = "licenses.txt";
const UPLOT = "node_modules/uplot";
const TARGET = `node${/[\d.]+/.exec(packageJson.engines.node)?.[0]}`;
const DEPENDENCIES = Object.keys(packageJson.dependencies);
/** Packages that users install themselves, or that they get as our dependencies. */
const OUTSIDE = [...DEPENDENCIES, ...Object.keys(packageJson.peerDependencies)];
/** Bundled packages that `require` modules of Node, which only works in CommonJS. */
const COMMON_JS = [
  "@fastify/swagger",
  "cli-table3",
  "commander",
  "fastify",
  "prom-client",
  "undici",
  "yaml",
];
const COMMON_JS_FILTER = new RegExp(String.raw`^\..*\.cjs$|^(?:${COMMON_JS.join("|")})$`);

const textsOfFiles: Plugin = {
  name: "texts-of-files",
  setup(builder) {
    const left = new Map<string, () => string | Promise<string>>([
      [LUA_SOURCE, textsOfScripts],
      [TRANSLATED_SCRIPTS, translatedScripts],
      [PAGE_FILES, textsOfPage],
      [VERSION, textOfVersion],
    ]);
    builder.onLoad({ filter: /\.ts$/ }, async ({ path }) => {
      const name = relative(ROOT, path).replaceAll("\\", "/");
      const contents = await left.get(name)?.();
      left.delete(name);
      return contents === undefined ? undefined : { contents };
    });
    builder.onEnd(() => {
      const [missed] = left.keys();
      if (missed !== undefined) throw new Error(`Nothing imports ${missed}: it has moved`);
    });
  },
};

/** Replaces the modules that read files for browsers. No browser sends the text of a script to Redis. */
const textsInBrowsers: Plugin = {
  name: "texts-in-browsers",
  setup(builder) {
    builder.onLoad({ filter: /lua-source\.ts$/ }, () => ({
      contents: 'export const readLuaFile = () => "";',
    }));
    builder.onLoad({ filter: /translated-scripts\.ts$/ }, async () => ({
      contents: await translatedScripts(),
    }));
  },
};

/** Replaces the modules of Node. Scripts compute their digest when they are loaded, but in memory it has no use. */
const withoutNode: Plugin = {
  name: "without-node",
  setup(builder) {
    builder.onResolve({ filter: /^node:/ }, ({ path }) => ({ path, namespace: "none" }));
    builder.onLoad({ filter: /.*/, namespace: "none" }, () => ({
      contents:
        "const hash = { update: () => hash, digest: () => '' }; module.exports = { createHash: () => hash };",
    }));
  },
};

/** The files of the board, as browsers get them, with uPlot. */
function textsOfPage(): string {
  return `const FILES = ${JSON.stringify(readPageFiles())};\nexport const readPageFiles = () => FILES;\n`;
}

function textOfVersion(): string {
  return `export const readVersion = () => ${JSON.stringify(packageJson.version)};\n`;
}

function textsOfScripts(): string {
  const names = readdirSync(join(ROOT, LUA), { recursive: true, encoding: "utf8" })
    .filter((path) => path.endsWith(".lua"))
    .map((path) => path.replaceAll("\\", "/").slice(0, -".lua".length));
  const texts = Object.fromEntries(names.sort().map((name) => [name, readLuaFile(name)]));
  return `const TEXTS = ${JSON.stringify(texts)};\nexport const readLuaFile = (name) => TEXTS[name];\n`;
}

/** The scripts of buckets in JavaScript, for buckets in memory. */
async function translatedScripts(): Promise<string> {
  const names = readdirSync(join(ROOT, LUA, "bucket")).map(
    (file) => `bucket/${file.slice(0, -".lua".length)}`,
  );
  const scripts = names
    .sort()
    .map((name) => `${JSON.stringify(name)}: ${translate(readLua(name))}`);
  const text = `const SCRIPTS = { ${scripts.join(",\n")} };\nexport const translatedScript = (name) => SCRIPTS[name];\n`;
  // Users load all of them, and run few.
  const { code } = await transform(text, { minify: true, target: TARGET });
  return code;
}

/** Makes a file of CommonJS beside the others of each of `COMMON_JS`, and of each `.cjs` file of the sources. */
const commonJsBeside: Plugin = {
  name: "common-js-beside",
  setup(builder) {
    builder.onResolve({ filter: COMMON_JS_FILTER }, async ({ path, resolveDir }) => {
      const isRelative = path.startsWith(".");
      if (isRelative && resolveDir.includes("node_modules")) return undefined;
      const file = createRequire(join(resolveDir, "importer.js")).resolve(path);
      const name = isRelative ? basename(path) : `${path.replace("@", "").replace("/", "-")}.cjs`;
      if (!commonJsFiles.has(name))
        commonJsFiles.set(name, bundleCommonJs(file, name, isRelative ? OUTSIDE : []));
      await commonJsFiles.get(name);
      return { path: `./${name}`, external: true };
    });
  },
};

const commonJsFiles = new Map<string, Promise<void>>();
const inputsOfCommonJs: Metafile["inputs"] = {};

async function bundleCommonJs(file: string, name: string, external: string[]): Promise<void> {
  const names = Object.keys(createRequire(file)(file) as object);
  const { metafile } = await build({
    entryPoints: [file],
    outfile: join(OUT, name),
    absWorkingDir: ROOT,
    bundle: true,
    format: "cjs",
    platform: "node",
    target: TARGET,
    external,
    metafile: true,
    logLevel: "warning",
    plugins: [commonJsBeside],
    // Node finds the names that a bundle of CommonJS exports only where they are listed like this.
    footer: { js: `0 && (module.exports = { ${names.filter(isIdentifier).join(", ")} });` },
  });
  Object.assign(inputsOfCommonJs, metafile.inputs);
}

function isIdentifier(name: string): boolean {
  return /^[A-Za-z_$][\w$]*$/.test(name) && name !== "default";
}

async function bundle(): Promise<Metafile> {
  const { metafile } = await build({
    entryPoints: ENTRIES,
    outdir: OUT,
    absWorkingDir: ROOT,
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: TARGET,
    external: OUTSIDE,
    sourcemap: true,
    sourcesContent: false,
    metafile: true,
    logLevel: "warning",
    plugins: [textsOfFiles, commonJsBeside],
  });
  return metafile;
}

/**
 * The simulation for browsers, in one file. Parts of the stores and of waiting calls use modules of Node, but the
 * simulation never calls them, so the bundle has none of these modules.
 */
async function bundleForBrowsers(): Promise<void> {
  await build({
    entryPoints: { "simulate.browser": ENTRIES.simulate },
    outdir: OUT,
    absWorkingDir: ROOT,
    bundle: true,
    minify: true,
    format: "esm",
    platform: "browser",
    target: "es2022",
    sourcemap: false,
    logLevel: "warning",
    inject: [join(ROOT, "src/entries/simulate/browser/buffer.ts")],
    plugins: [textsInBrowsers, withoutNode],
  });
}

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly license?: string;
  readonly author?: string | { readonly name: string };
}

/** Bundled packages may be copied if their licenses come with them. The versions show users which fixes they have. */
function writeLicenses({ inputs }: Metafile): void {
  const folders = new Set(
    [...Object.keys(inputs), ...Object.keys(inputsOfCommonJs), `${UPLOT}/dist`].flatMap(
      (path) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0] ?? [],
    ),
  );
  const texts = [...folders].sort().map((path) => {
    const folder = join(ROOT, path);
    const manifest = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Manifest;
    const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
    const text =
      file === undefined ? licenseInManifest(manifest) : readFileSync(join(folder, file), "utf8");
    return `${manifest.name} ${manifest.version}\n\n${text.trim()}\n`;
  });
  writeFileSync(join(OUT, LICENSES), texts.join(`\n${"-".repeat(72)}\n\n`));
}

/** @throws when the package says nothing of its license. */
function licenseInManifest({ name, license, author }: Manifest): string {
  if (license === undefined) throw new Error(`${name} has no license beside it`);
  const by = typeof author === "object" ? author.name : author;
  return by === undefined ? `License: ${license}` : `License: ${license}. Author: ${by}`;
}

function writeTypes(): void {
  const args = ["-p", ROOT, "--emitDeclarationOnly", "--outDir", OUT];
  execFileSync(join(ROOT, "node_modules/.bin/tsc"), args, { stdio: "inherit" });
  const kept = new Set<string>();
  for (const path of TYPES) keepTypes(join(OUT, path), kept);
  for (const path of readdirSync(OUT, { recursive: true, encoding: "utf8" })) {
    if (path.endsWith(".d.ts") && !kept.has(join(OUT, path))) rmSync(join(OUT, path));
  }
}

/** @throws when a declaration imports a package that users do not have. */
function keepTypes(path: string, kept: Set<string>): void {
  if (kept.has(path)) return;
  kept.add(path);
  const text = readFileSync(path, "utf8").replaceAll(/\/\*[^]*?\*\//g, "");
  for (const match of text.matchAll(/\b(?:from|import) ?\(?"([^"]+)"/g)) {
    const imported = match[1]!;
    if (imported.startsWith(".")) {
      keepTypes(resolve(dirname(path), imported.replace(/\.ts$/, ".d.ts")), kept);
    } else if (
      !imported.startsWith("node:") &&
      !DEPENDENCIES.includes(imported) &&
      !(imported.startsWith("@nestjs/") && path.includes("/nestjs/"))
    ) {
      const what = `${relative(OUT, path)} imports "${imported}", which users do not have`;
      throw new Error(`${what}: mark what needs it as @internal`);
    }
  }
}

rmSync(OUT, { recursive: true, force: true });
writeLicenses(await bundle());
await bundleForBrowsers();
if (!options["without-types"]) writeTypes();
rmSync(DIST, { recursive: true, force: true });
renameSync(OUT, DIST);
