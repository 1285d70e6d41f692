import { existsSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import process from "node:process";
import type { SourceFile } from "ts-morph";
import Table from "cli-table3";
import { Argument, type Command } from "commander";
import { reasonOf } from "../../../../core/describe.ts";
import { InvalidOptionError } from "../../../../core/errors.ts";
import { globalsOf, type Io } from "../../../io.ts";
import { rewriteBottleneck } from "./bottleneck.ts";
import { readRates, rewriteBullmq, type RatesOfQueues } from "./bullmq.ts";
import { createEdits, type Edits, type FileReport } from "./edits.ts";

type Morph = typeof import("ts-morph");
type Library = "bottleneck" | "bullmq";

const CODE = /\.(?:[cm]?[jt]s|[jt]sx)$/;
const IGNORED = new Set(["node_modules", "dist", "build", "coverage"]);

export function addCodemod(program: Command, io: Io): void {
  program
    .command("codemod")
    .description("rewrites code that uses another library to the API of Sluice")
    .addArgument(new Argument("<library>", "the other library").choices(["bottleneck", "bullmq"]))
    .argument("<paths...>", "files and folders with code")
    .option("--dry-run", "show a diff, and change no file")
    .addHelpText(
      "after",
      `
Only files that import the library, or a limiter that was rewritten, are changed. A comment "TODO(sluice)" marks what a person must decide. Commit your
work before. The command needs the package ts-morph.

Example: sluice codemod bottleneck src --dry-run`,
    )
    .action(
      async (
        library: Library,
        paths: readonly string[],
        options: { readonly dryRun?: boolean },
        command: Command,
      ) => {
        const morph = await loadMorph();
        const changes = rewriteFiles(library, paths.flatMap(filesIn), morph);
        for (const { path, before, after } of changes) {
          if (options.dryRun === true) io.out(diffOf(path, before, after));
          else if (after !== before) writeFileSync(path, after);
        }
        const reports = changes.map(({ report }) => report);
        if (globalsOf(command, io).json === true) io.out(`${JSON.stringify(reports)}\n`);
        else io.out(tableOf(reports, library));
      },
    );
}

async function loadMorph(): Promise<Morph> {
  try {
    return await import("ts-morph");
  } catch (error) {
    const what = "sluice codemod needs the package ts-morph";
    throw new Error(`${what}: npm install --no-save ts-morph (${reasonOf(error)})`, {
      cause: error,
    });
  }
}

function filesIn(path: string): string[] {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined) {
    const remedy = "give a file or folder that exists";
    throw new InvalidOptionError({ where: "sluice codemod", option: "paths", value: path, remedy });
  }
  if (stats.isFile()) return [resolve(path)];
  return readdirSync(path, { withFileTypes: true })
    .filter(({ name }) => !IGNORED.has(name))
    .flatMap((entry) => {
      const each = join(path, entry.name);
      if (entry.isDirectory()) return filesIn(each);
      const isCode = entry.isFile() && CODE.test(entry.name) && !entry.name.endsWith(".d.ts");
      return isCode ? [resolve(each)] : [];
    });
}

interface Change {
  readonly path: string;
  readonly before: string;
  readonly after: string;
  readonly report: FileReport;
}

/** Returns the changes of the files that use the library. Writes nothing. */
function rewriteFiles(library: Library, paths: readonly string[], morph: Morph): readonly Change[] {
  const { Project } = morph;
  const tsConfigFilePath = configAbove(paths[0]);
  const project = new Project({
    skipAddingFilesFromTsConfig: true,
    skipFileDependencyResolution: true,
    compilerOptions: { allowJs: true, types: [], noLib: true },
    ...(tsConfigFilePath === undefined ? {} : { tsConfigFilePath }),
  });
  const files = paths.map((path) => project.addSourceFileAtPath(path));
  const edited = new Map<SourceFile, Edits>();
  const editsOf = (file: SourceFile): Edits => {
    const known = edited.get(file);
    if (known !== undefined) return known;
    const edits = createEdits(file, relative(process.cwd(), file.getFilePath()), morph);
    edited.set(file, edits);
    return edits;
  };
  const rates: RatesOfQueues = new Map();
  const names = new Set<string>();
  if (library === "bullmq") for (const file of files) readRates(file, rates, morph);
  for (const file of files) {
    if (library === "bottleneck") rewriteBottleneck(file, editsOf, names, morph);
    else rewriteBullmq(file, editsOf, rates, morph);
  }
  return [...edited].map(([file, edits]) => {
    const [path, before] = [file.getFilePath(), file.getFullText()];
    return { path, before, after: edits.result(), report: edits.report };
  });
}

/** The configuration of TypeScript that holds for a file, which says where imported modules are. */
function configAbove(path: string | undefined): string | undefined {
  if (path === undefined) return undefined;
  for (let folder = dirname(path); ; folder = dirname(folder)) {
    const config = ["tsconfig.json", "jsconfig.json"].map((name) => join(folder, name));
    const found = config.find((each) => existsSync(each));
    if (found !== undefined) return found;
    if (folder === dirname(folder)) return undefined;
  }
}

function tableOf(reports: readonly FileReport[], library: Library): string {
  if (reports.length === 0) return `No file imports ${library}.\n`;
  const table = new Table({ head: ["file", "rewritten", "left"], style: { head: [], border: [] } });
  for (const { file, rewritten, left } of reports) table.push([file, rewritten, left]);
  const left = reports.reduce((sum, each) => sum + each.left, 0);
  const end = left === 0 ? "" : `Search for "TODO(sluice)": a person has to decide there.\n`;
  return `${table.toString()}\n${end}`;
}

/** The changed lines of a file. Lines that both texts share are left out, at the start and the end of each change. */
function diffOf(path: string, before: string, after: string): string {
  const name = relative(process.cwd(), path);
  const [old, fresh] = [before.split("\n"), after.split("\n")];
  const lines: string[] = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < fresh.length) {
    if (old[i] === fresh[j] && i < old.length) {
      i += 1;
      j += 1;
      continue;
    }
    const [skipOld, skipFresh] = nextCommon(old.slice(i), fresh.slice(j));
    lines.push(`@@ ${i + 1} @@`);
    lines.push(...old.slice(i, i + skipOld).map((line) => `-${line}`));
    lines.push(...fresh.slice(j, j + skipFresh).map((line) => `+${line}`));
    i += skipOld;
    j += skipFresh;
  }
  return lines.length === 0 ? "" : `--- ${name}\n+++ ${name}\n${lines.join("\n")}\n`;
}

/** How many lines of each text come before the next line that both share. */
function nextCommon(old: readonly string[], fresh: readonly string[]): readonly [number, number] {
  for (let sum = 1; sum < old.length + fresh.length; sum += 1) {
    for (let skipOld = 0; skipOld <= sum; skipOld += 1) {
      const line = old[skipOld];
      if (line !== undefined && line.trim() !== "" && line === fresh[sum - skipOld]) {
        return [skipOld, sum - skipOld];
      }
    }
  }
  return [old.length, fresh.length];
}
