import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const BLOCK = /^```ts\n([\s\S]*?)^```$/gm;
const PROMISED_OUTPUT = /\/\/ → (.+)$/gm;

export interface DocBlock {
  readonly name: string;
  readonly code: string;
  /** What the comments `// → …` say that the block prints, in order. */
  readonly promised: readonly string[];
}

/** The TypeScript blocks of a page of the documentation. */
export async function docBlocks(page: string): Promise<DocBlock[]> {
  const text = await readFile(join(ROOT, page), "utf8");
  return [...text.matchAll(BLOCK)].map(([, code = ""], index) => ({
    name: `${page}, block ${index + 1}`,
    code,
    promised: [...code.matchAll(PROMISED_OUTPUT)].map(([, output = ""]) => output),
  }));
}

export interface BlockRun {
  readonly code: number | null;
  readonly output: string;
  readonly errors: string;
}

/** Runs a block as a user would: as a file of a project that has the package, in a process of its own. */
export async function runDocBlock(code: string, redisUrl: string): Promise<BlockRun> {
  const folder = await mkdtemp(join(ROOT, "test/.block-"));
  try {
    const file = join(folder, "block.ts");
    await writeFile(file, code);
    const args = ["--conditions=@sluice/source", "--import", "tsx", file];
    const child = spawn(process.execPath, args, { env: { ...process.env, REDIS_URL: redisUrl } });
    let output = "";
    let errors = "";
    child.stdout.on("data", (chunk) => (output += chunk));
    child.stderr.on("data", (chunk) => (errors += chunk));
    const [exitCode] = (await once(child, "close")) as [number | null];
    return { code: exitCode, output, errors };
  } finally {
    await rm(folder, { recursive: true });
  }
}
