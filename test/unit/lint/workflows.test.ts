import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { parse } from "yaml";
import docsJson from "../../../docs/package.json" with { type: "json" };
import packageJson from "../../../package.json" with { type: "json" };

interface Step {
  readonly uses?: string;
  readonly run?: string;
  readonly with?: Readonly<Record<string, string | boolean>>;
}

interface Job {
  readonly uses?: string;
  readonly needs?: string;
  readonly permissions?: Readonly<Record<string, string>>;
  readonly strategy?: { readonly matrix: Readonly<Record<string, readonly string[]>> };
  readonly steps?: readonly Step[];
}

interface Workflow {
  readonly on: Readonly<Record<string, unknown>>;
  readonly permissions?: Readonly<Record<string, string>>;
  readonly jobs: Readonly<Record<string, Job>>;
}

const ROOT = join(import.meta.dirname, "../../..");
const FOLDER = join(ROOT, ".github/workflows");
/** Programs of the runners, and the commands of npm that need no script. */
const PROGRAMS = ["apt-get", "awk", "gh", "mkdir", "npm", "test"];
const NPM_COMMANDS = ["ci", "pack", "pkg", "publish"];

const workflows = readdirSync(FOLDER).map((name): [string, Workflow] => {
  return [name, parse(readFileSync(join(FOLDER, name), "utf8")) as Workflow];
});
const jobs = workflows.flatMap(([name, workflow]) =>
  Object.entries(workflow.jobs).map(([id, job]): [string, Job, Workflow] => {
    return [`${name}, ${id}`, job, workflow];
  }),
);
const steps = jobs.flatMap(([, { steps: ofJob = [] }]) => ofJob);
const commands = steps
  .flatMap(({ run }) => run ?? [])
  .flatMap((run) => run.split(/&&|\n/))
  .map((command) => command.trim())
  .filter((command) => command !== "");
const actions = [...steps, ...jobs.map(([, job]) => job)].flatMap(({ uses }) => uses ?? []);

/** What is wrong with a command; undefined if all that it runs exists. */
function problemOf(command: string): string | undefined {
  const [program = "", ...words] = command.split(/\s+/);
  if (program.includes("/")) return existsSync(join(ROOT, program)) ? undefined : "no such file";
  if (!PROGRAMS.includes(program)) return "no such program";
  if (program !== "npm") return undefined;
  const prefixed = words[0] === "--prefix";
  const [verb = "", ...rest] = prefixed ? words.slice(2) : words;
  if (prefixed && words[1] !== "docs") return "no such folder";
  if (verb !== "run") return NPM_COMMANDS.includes(verb) ? undefined : "no such command of npm";
  const script = rest.find((word) => !word.startsWith("-")) ?? "";
  const { scripts } = prefixed ? docsJson : packageJson;
  return script in scripts ? undefined : "no such script";
}

describe("the workflows of GitHub", () => {
  it("are those that run tests, publish the site and publish the package", () => {
    expect(workflows.map(([name]) => name)).toEqual(["release.yml", "site.yml", "test.yml"]);
    expect(commands).toEqual(expect.arrayContaining([".ci/run", "npm run docs:build"]));
  });

  it.each(commands)("run only commands that exist: %s", (command) => {
    expect(problemOf(command)).toBeUndefined();
  });

  it.each([
    ["npm run no-such-script", "no such script"],
    ["npm --prefix docs run docs:build", "no such script"],
    ["npm --prefix site ci", "no such folder"],
    ["npm instal", "no such command of npm"],
    [".ci/ruin", "no such file"],
    ["yarn test", "no such program"],
  ])("would not pass with %s", (command, problem) => {
    expect(problemOf(command)).toBe(problem);
  });

  it.each(actions)("name the version of each action, and no branch: %s", (action) => {
    const isFile = action.startsWith("./") && existsSync(join(ROOT, action));

    expect(isFile || /^actions\/[\w-]+@v\d+$/.test(action)).toBe(true);
  });

  it.each(jobs)("need only jobs that exist: %s", (_name, { needs }, workflow) => {
    expect(Object.keys(workflow.jobs)).toEqual(
      expect.arrayContaining(needs === undefined ? [] : [needs]),
    );
  });

  it.each(workflows)("may only read, unless a job asks for more: %s", (_name, { permissions }) => {
    expect(permissions).toEqual({ contents: "read" });
  });

  it("let a job write only what it publishes", () => {
    const writes = jobs.flatMap(([name, { permissions = {} }]) => {
      const written = Object.keys(permissions).filter((each) => permissions[each] === "write");
      return written.length === 0 ? [] : [[name, written]];
    });

    expect(writes).toEqual([
      ["release.yml, publish", ["id-token"]],
      ["release.yml, announce", ["contents"]],
      ["site.yml, publish", ["pages", "id-token"]],
    ]);
  });

  it("publish only after all tests of the same commit", () => {
    const before = (workflow: Workflow, id: string): readonly string[] => {
      const { needs } = workflow.jobs[id]!;
      return needs === undefined ? [id] : [id, ...before(workflow, needs)];
    };

    for (const [, workflow] of workflows.filter(([name]) => name !== "test.yml")) {
      expect(before(workflow, "publish")).toContain("test");
      expect(workflow.jobs["test"]!.uses).toBe("./.github/workflows/test.yml");
    }
  });

  it("test the oldest supported version of Node, and three kinds of servers", () => {
    const [[, { strategy }]] = jobs.filter(([name]) => name === "test.yml, test") as [
      [string, Job, Workflow],
    ];
    const { node = [], server = [] } = strategy!.matrix;

    expect(packageJson.engines.node).toBe(`>=${node[0]}.19`);
    expect(node).toEqual(["20", "22", "24"]);
    expect(server).toEqual(["redis:7", "redis:8", "valkey/valkey:8"]);
  });
});

describe("a release", () => {
  const changelog = readFileSync(join(ROOT, "CHANGELOG.md"), "utf8");

  it("has notes in the changelog, which begins with the version of the package", () => {
    expect(/^## (.+)$/m.exec(changelog)?.[1]).toBe(packageJson.version);
  });

  it("has the same version in the lock file", () => {
    const lock = JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8")) as {
      readonly version: string;
      readonly packages: Readonly<Record<string, { readonly version: string }>>;
    };

    expect([lock.version, lock.packages[""]!.version]).toEqual([
      packageJson.version,
      packageJson.version,
    ]);
  });

  it("publishes with provenance, and names no repository before the workflow does", () => {
    expect(packageJson.publishConfig).toEqual({ access: "public", provenance: true });
    expect(packageJson).not.toHaveProperty("repository");
  });
});
