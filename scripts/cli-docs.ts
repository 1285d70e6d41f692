/**
 * Writes `docs/reference/cli.md` from the output of `sluice --help`. A test compares the two. `tsx scripts/cli-docs.ts`
 */
import { writeFileSync } from "node:fs";
import { resolve } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import type { Command } from "commander";
import { run, createProgram } from "../src/cli/program.ts";

const DOCS = resolve(import.meta.dirname, "../docs/reference/cli.md");
const WIDTH = 80;

const INTRODUCTION = `# Command line

\`npx sluice\` shows and changes the buckets and queues of all processes that share a Redis. Give it the Redis with \`--redis redis://host:6379\` or \`$REDIS_URL\`, and \`--prefix\` if your services set one. The guides show [what to ask](../guides/operate/what-is-stuck.md) and [how to change and undo](../guides/operate/change-live.md).

With \`--json\`, each command prints one line of JSON; times without an end are \`"forever"\`. Errors go to standard error. \`$SLUICE_BY\` names the author of a change; the default is the user.

| exit code | meaning                                        |
| --------- | ---------------------------------------------- |
| 0         | done                                           |
| 1         | failed; a rules file has problems              |
| 2         | wrong usage                                    |
| 3         | no such bucket, queue, job or endpoint         |
| 4         | Redis does not answer                          |
| 5         | somebody else changed it, has newer rules, or it cannot be undone |
| 6         | \`worker --until-empty\`: jobs became dead letters |
| 7         | \`worker --until-empty\`: due jobs are left that cannot run |
| 130, 143  | \`worker --until-empty\`: stopped by SIGINT, by SIGTERM |
`;

/** What help says, in a terminal of 80 columns. */
async function helpOf(args: readonly string[]): Promise<string> {
  let text = "";
  const out = (more: string): void => void (text += more);
  await run([...args, "--help"], { out, err: out, isTty: false, env: {}, width: WIDTH });
  return text.trim();
}

export async function cliDocs(): Promise<string> {
  const silent = { out: () => {}, err: () => {}, isTty: false, env: {} };
  const paths = pathsOf(createProgram(silent));
  const sections = paths.map(
    async (path) => `## ${path.join(" ")}\n\n${fenced(await helpOf(path))}`,
  );
  const all = [fenced(await helpOf([])), ...(await Promise.all(sections))];
  return `${INTRODUCTION}\n${all.join("\n\n")}\n`;
}

/** Commands, each followed by those below it. */
function pathsOf({ commands }: Command, above: readonly string[] = []): (readonly string[])[] {
  return commands.flatMap((command: Command) => {
    const path = [...above, command.name()];
    return [path, ...pathsOf(command, path)];
  });
}

function fenced(text: string): string {
  return `\`\`\`text\n${text}\n\`\`\``;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(DOCS, await cliDocs());
