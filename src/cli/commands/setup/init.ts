import { existsSync, readFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import type { Command } from "commander";
import { reasonOf } from "../../../core/describe.ts";
import { InvalidOptionError } from "../../../core/errors.ts";
import { print, type Io } from "../../io.ts";
import {
  CALLS,
  codeFile,
  commandFor,
  COMPOSE_FILE,
  COMPOSE_TEXT,
  RULES_FILE,
  rulesFile,
  type Call,
  type CodeStyle,
  type InitChoices,
} from "./init-files.ts";

interface InitFlags {
  readonly call?: string;
  readonly queue?: boolean;
  readonly rules?: boolean;
  readonly compose?: boolean;
  readonly yes?: boolean;
  readonly dir: string;
  readonly dryRun?: boolean;
}

interface NewFile {
  /** Relative to the folder of the project. */
  readonly path: string;
  readonly text: string;
}

interface Result {
  readonly dir: string;
  readonly written: boolean;
  readonly files: readonly NewFile[];
  readonly next: readonly string[];
}

const WHERE = "sluice init";

/** `init`: writes the first file that uses Sluice into a project. */
export function addInit(program: Command, io: Io): void {
  program
    .command("init")
    .description("writes a file that paces the calls of your project")
    .option("--call <names>", `what you call: ${CALLS.join(",")}`)
    .option("--queue", "adds a queue with a worker")
    .option("--rules", `adds ${RULES_FILE} with the limits`)
    .option("--compose", `adds ${COMPOSE_FILE} with Redis`)
    .option("--yes", "asks nothing; options that are not given are off")
    .option("--dir <folder>", "the folder of your package.json", ".")
    .option("--dry-run", "prints the files, and writes none")
    .addHelpText(
      "after",
      `
Asks for what the options do not say. Writes sluice.ts in a TypeScript project, and otherwise
sluice.js, as an ES module or CommonJS like the project; in src/ if there is one. Never replaces a
file. Run the new file to try it.

Example: sluice init
Example: sluice init --call stripe,openai --queue --yes`,
    )
    .action(async (flags: InitFlags, command: Command) => {
      const dir = resolve(flags.dir);
      const { name, style } = examineProject(dir, flags.dir);
      const choices = await choose(flags, io);
      const files = filesOf(choices, { name, style });
      refuseToReplace(dir, files);
      if (flags.dryRun !== true) for (const file of files) await write(dir, file);
      const written = flags.dryRun !== true;
      const result = { dir, written, files, next: nextSteps(choices, { name, dir }) };
      print<Result>(command, io, result, describe);
    });
}

interface Project {
  /** The path of the new file. */
  readonly name: string;
  readonly style: CodeStyle;
}

interface Manifest {
  readonly type?: unknown;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
}

/** @throws {@link InvalidOptionError} when the folder has no `package.json` that can be read. */
function examineProject(dir: string, given: string): Project {
  let manifest: Manifest;
  try {
    manifest = JSON.parse(readFileSync(join(dir, "package.json"), "utf8")) as Manifest;
  } catch (cause) {
    const remedy = `give a folder with a package.json, which npm init -y writes (${reasonOf(cause)})`;
    throw new InvalidOptionError({ where: WHERE, option: "--dir", value: given, remedy });
  }
  const { type, dependencies = {}, devDependencies = {} } = manifest;
  const isTypeScript =
    existsSync(join(dir, "tsconfig.json")) ||
    "typescript" in dependencies ||
    "typescript" in devDependencies;
  const file = isTypeScript ? "sluice.ts" : "sluice.js";
  const name = existsSync(join(dir, "src")) ? `src/${file}` : file;
  return { name, style: { isTypeScript, isEsm: type === "module" } };
}

interface Choices extends InitChoices {
  readonly hasCompose: boolean;
}

async function choose(flags: InitFlags, io: Io): Promise<Choices> {
  const ask = flags.yes === true ? undefined : io.ask;
  const named = flags.call ?? (await ask?.(`What do you call (${CALLS.join(", ")})? `));
  if (named === undefined) {
    const remedy = `give what you call, such as --call stripe,webhooks; there is ${CALLS.join(", ")}`;
    throw new InvalidOptionError({ where: WHERE, option: "--call", value: undefined, remedy });
  }
  const calls = readCalls(named);
  const isWanted = async (flag: boolean | undefined, question: string): Promise<boolean> =>
    flag ?? /^y/i.test((await ask?.(`${question} (y/N) `))?.trim() ?? "");
  return {
    calls,
    hasQueue: await isWanted(flags.queue, "Add a queue for work that must not get lost?"),
    hasRules: await isWanted(flags.rules, `Keep the limits in ${RULES_FILE}?`),
    hasCompose: await isWanted(flags.compose, `Add ${COMPOSE_FILE} with Redis?`),
  };
}

/** @throws {@link InvalidOptionError} when a name is unknown, or there is none. */
function readCalls(text: string): readonly Call[] {
  const names = text
    .split(/[\s,]+/)
    .map((name) => name.toLowerCase())
    .filter((name) => name !== "");
  const unknown = names.find((name) => !CALLS.some((call) => call === name));
  if (unknown === undefined && names.length > 0) {
    return CALLS.filter((call) => names.includes(call));
  }
  const remedy = `give names of ${CALLS.join(", ")}; "api" stands for any other API`;
  throw new InvalidOptionError({ where: WHERE, option: "--call", value: unknown ?? text, remedy });
}

function filesOf(choices: Choices, { name, style }: Project): readonly NewFile[] {
  return [
    { path: name, text: codeFile(choices, style, name) },
    ...(choices.hasRules ? [{ path: RULES_FILE, text: rulesFile(choices) }] : []),
    ...(choices.hasCompose ? [{ path: COMPOSE_FILE, text: COMPOSE_TEXT }] : []),
  ];
}

/** @throws {@link InvalidOptionError} when one of the files exists. Nothing was written then. */
function refuseToReplace(dir: string, files: readonly NewFile[]): void {
  const existing = files.find(({ path }) => existsSync(join(dir, path)));
  if (existing === undefined) return;
  const remedy = `it has the file ${existing.path}, which is never replaced; move it, or give another folder`;
  throw new InvalidOptionError({ where: WHERE, option: "--dir", value: dir, remedy });
}

async function write(dir: string, { path, text }: NewFile): Promise<void> {
  const file = join(dir, path);
  await mkdir(dirname(file), { recursive: true });
  // "wx" also refuses a file that was created a moment ago.
  await writeFile(file, text, { flag: "wx" });
}

function nextSteps(
  { calls, hasQueue, hasCompose }: Choices,
  { name, dir }: { readonly name: string; readonly dir: string },
): readonly string[] {
  const hasSluice = existsSync(join(dir, "node_modules", "sluice"));
  return [
    ...(hasSluice ? [] : ["Install Sluice in the project."]),
    ...(hasCompose ? [`docker compose -f ${COMPOSE_FILE} up -d`] : []),
    hasCompose || hasQueue || calls.includes("webhooks")
      ? "export REDIS_URL=redis://127.0.0.1:6379"
      : "Set $REDIS_URL, so that all processes share the limits.",
    ...(calls.includes("webhooks")
      ? ["export SLUICE_WEBHOOK_KEYS=k1:$(openssl rand -base64 32)"]
      : []),
    `${commandFor(name)}   # tries it`,
  ];
}

function describe({ written, files, next }: Result): string {
  const shown = files.map(({ path, text }) =>
    written ? `Wrote ${path}` : `--- ${path}\n${text.trimEnd()}`,
  );
  return [...shown, "", "Next:", ...next.map((step) => `  ${step}`)].join("\n");
}
