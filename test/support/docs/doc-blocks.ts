import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { transform } from "esbuild";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
/** As a reader has them, who has set them once. */
const KEYS = `k1:${randomBytes(32).toString("base64")}`;
/** Blocks in TypeScript, and those in JavaScript that are named as files: ` ```ts `, ` ```ts [a.mts] `, ` ```js [a.cjs] `. */
const BLOCK = /^```(?:ts(?: \[([^\]]+)\])?|js \[([^\]]+)\])\n([\s\S]*?)^```$/gm;
const PROMISED_OUTPUT = /\/\/ → (.+)$/gm;

export interface DocBlock {
  readonly name: string;
  readonly isCommonJs: boolean;
  readonly code: string;
  /** What the comments `// → …` say that the block prints, in order. */
  readonly promised: readonly string[];
}

/** The TypeScript blocks of a page of the documentation. */
export async function docBlocks(page: string): Promise<DocBlock[]> {
  const text = await readFile(join(ROOT, page), "utf8");
  return [...text.matchAll(BLOCK)].map(([, typed, plain, code = ""], index) => ({
    name: `${page}, block ${index + 1}`,
    isCommonJs: (typed ?? plain ?? "").endsWith(".cjs"),
    code,
    promised: [...code.matchAll(PROMISED_OUTPUT)].map(([, output = ""]) => output),
  }));
}

export interface BlockRun {
  readonly code: number | null;
  readonly output: string;
  readonly errors: string;
}

/** Runs a block as a user would who builds it: in JavaScript, in a project that has the package, and in a process of its own. */
export async function runDocBlock(
  { code, isCommonJs }: Pick<DocBlock, "code" | "isCommonJs">,
  {
    redisUrl,
    databaseUrl,
    builtRoot,
  }: { readonly redisUrl: string; readonly databaseUrl?: string; readonly builtRoot: string },
): Promise<BlockRun> {
  const folder = await mkdtemp(join(builtRoot, "test/block-"));
  const file = join(folder, isCommonJs ? "block.cjs" : "block.js");
  const built = await transform(code.replaceAll('.ts"', '.js"'), {
    loader: "ts",
    target: "node20",
    tsconfigRaw: { compilerOptions: { experimentalDecorators: true } },
  });
  await writeFile(file, built.code);
  const env = {
    ...process.env,
    // Another run may write a file of the same name.
    TMPDIR: folder,
    REDIS_URL: redisUrl,
    DATABASE_URL: databaseUrl,
    SLUICE_WEBHOOK_KEYS: KEYS,
  };
  const child = spawn(process.execPath, [file], { cwd: builtRoot, env });
  let output = "";
  let errors = "";
  child.stdout.on("data", (chunk) => (output += chunk));
  child.stderr.on("data", (chunk) => (errors += chunk));
  const [exitCode] = (await once(child, "close")) as [number | null];
  // A block may show how a job fails, and that is heard; so is a sender that may reach this machine.
  const expected = /^\[sluice\] (?:Job |The webhook sender .* may send ).*\n/gm;
  return { code: exitCode, output, errors: errors.replaceAll(expected, "") };
}
