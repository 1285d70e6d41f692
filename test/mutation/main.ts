import { readdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { mutantsOf, openLuaSandbox, type LuaOutcome } from "./lua.ts";
import { sampleOf } from "./sample.ts";
import { mutateTypeScript } from "./stryker.ts";

/** What is mutated unless `--files` names other globs. */
const FILES = [
  "src/core/limits/**/*.ts",
  "src/throttle/waiting/**/*.ts",
  "src/queue/lanes/**/*.ts",
  "lua/**/*.lua",
  // Only integration tests reach these.
  "!lua/**/jobs-*.lua",
  "!lua/**/runs-*.lua",
  "!lua/lib/runs/*.lua",
];
const ROOT = fileURLToPath(new URL("../../", import.meta.url));

const { values } = parseArgs({
  options: {
    files: { type: "string", multiple: true, default: FILES },
    sample: { type: "string" },
    seed: { type: "string", default: "1" },
  },
});
const size = values.sample === undefined ? undefined : Number(values.sample);
const seed = Number(values.seed);
if (!Number.isInteger(size ?? 1) || !Number.isInteger(seed)) {
  throw new Error("mutate: --sample and --seed are whole numbers");
}
const isLua = (glob: string): boolean => glob.endsWith(".lua");
const luaFiles = await filesOf(values.files.filter(isLua));
const otherFiles = values.files.filter((glob) => !isLua(glob));

if (otherFiles.length > 0) await mutateTypeScript({ files: otherFiles, sample: size, seed });
if (luaFiles.length > 0) await mutateLua(luaFiles);

async function filesOf(globs: readonly string[]): Promise<readonly string[]> {
  const isExcluding = (glob: string): boolean => glob.startsWith("!");
  const included = globs.filter((glob) => !isExcluding(glob)).map(toPattern);
  const excluded = globs.filter(isExcluding).map((glob) => toPattern(glob.slice(1)));
  const all = await readdir(`${ROOT}lua`, { recursive: true });
  return all
    .map((file) => `lua/${file.replaceAll("\\", "/")}`)
    .filter((file) => file.endsWith(".lua"))
    .filter((file) => included.some((pattern) => pattern.test(file)))
    .filter((file) => !excluded.some((pattern) => pattern.test(file)))
    .toSorted();
}

/** Node has globs from 22 on. */
function toPattern(glob: string): RegExp {
  const parts = { "**/": "(?:.*/)?", "*": "[^/]*", ".": "\\." } as const;
  const source = glob.replace(/\*\*\/|\*|\./g, (part) => parts[part as keyof typeof parts]);
  return new RegExp(`^${source}$`);
}

async function mutateLua(files: readonly string[]): Promise<void> {
  const all = await mutantsOf(files);
  const nameOf = ({ file, from, after }: (typeof all)[number]): string =>
    JSON.stringify([file, from, after]);
  const sample = sampleOf(all, nameOf, { size, seed });
  const sandbox = await openLuaSandbox();
  const counts: Record<LuaOutcome, number> = { killed: 0, survived: 0, timeout: 0 };
  try {
    if ((await sandbox.outcomeOf()) !== "survived") {
      throw new Error("mutate: the conformance tests fail without a mutant");
    }
    console.log(`lua: ${sample.length} of ${all.length} mutants in ${files.length} files`);
    for (const mutant of sample) {
      const outcome = await sandbox.outcomeOf(mutant);
      counts[outcome] += 1;
      const { file, line, before, after } = mutant;
      const change = `${file}:${line}: ${before} -> ${after || "(nothing)"}`;
      const all = `Killed ${counts.killed}, Survived ${counts.survived}, Timeout ${counts.timeout}`;
      console.log(outcome === "killed" ? all : `${all}: ${outcome}: ${change}`);
    }
  } finally {
    await sandbox.remove();
  }
  const score = (100 * (sample.length - counts.survived)) / sample.length;
  console.log(`lua: score ${score.toFixed(1)} %`);
}
