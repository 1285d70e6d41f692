import { existsSync, readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { RULES } from "../../../src/core/limits/registry.ts";

/** Where a kind may be named: its own arithmetic, and what makes limits, in code and of data. */
const OF_KINDS = [
  "src/core/limits/",
  "src/core/policy/limit-makers.ts",
  "lua/lib/limits/",
  "lua/lib/fast/",
];
const NAMES = [...RULES.keys()].filter((kind) => kind.includes("-")).join("|");
const ASKS_IN_TYPESCRIPT = new RegExp(
  `["'\`](?:${NAMES})["'\`]|\\bkind(?:\\s*[!=]==\\s*["'\`]|\\.\\w+\\()|\\.test\\(kind`,
);
const ASKS_IN_LUA = /\bcode\s*[=~]=\s*\d|RULES\[\d/;
const READS_RULES =
  /\b(?:ruleOf|isLeased|partOfLimit)\(|filter\(isLeased\)|some\(isLeased\)|RULES\[/;

const files = ["src", "lua"]
  .flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: "utf8" }).map((name) => `${folder}/${name}`),
  )
  .filter((path) => /\.(?:ts|lua)$/.test(path))
  .map((path) => ({ path, text: readFileSync(path, "utf8") }));
const others = files.filter(({ path }) => !OF_KINDS.some((home) => path.startsWith(home)));
const guide = /^## A new kind of limit\n(.*?)^## /ms.exec(
  readFileSync("CONTRIBUTING.md", "utf8"),
)![1]!;
const listed = [...guide.matchAll(/`((?:src|lua|test)\/[^`<]+\.(?:ts|lua))`/g)].map(
  ([, path]) => path!,
);

describe("the kinds of limits", () => {
  it("are named only in their own code and that of their makers", () => {
    const asking = others.filter(({ path, text }) =>
      (path.endsWith(".lua") ? ASKS_IN_LUA : ASKS_IN_TYPESCRIPT).test(text),
    );

    expect(asking.map(({ path }) => path)).toEqual([]);
  });

  it("have distinct codes", () => {
    const codes = [...RULES.values()].map(({ code }) => code);

    expect(new Set(codes).size).toBe(RULES.size);
  });

  it("have their rule read only where CONTRIBUTING says so", () => {
    const reading = others.filter(({ text }) => READS_RULES.test(text)).map(({ path }) => path);
    const unlisted = reading.filter((path) => !isListed(path));

    expect(unlisted).toEqual([]);
  });

  it("are documented with files that exist", () => {
    const gone = listed.filter((path) => !path.includes("*") && !existsSync(path));

    expect(gone).toEqual([]);
  });
});

function isListed(path: string): boolean {
  return listed.some((each) => {
    const [start, end = ""] = each.split("*");
    return each.includes("*") ? path.startsWith(start!) && path.endsWith(end) : path === each;
  });
}
