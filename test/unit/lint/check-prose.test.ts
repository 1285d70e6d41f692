import { describe, expect, it } from "vitest";
import { checkProse, EVERYTHING, filesUnder } from "../../../scripts/check-prose.ts";

const LONG = `${words(41)}.`;

/** As many words, none of which follows itself. */
function words(count: number): string {
  return Array.from({ length: count }, (_, at) => (at % 2 === 0 ? "one" : "word")).join(" ");
}

/** The findings of a file, as "line rule". */
function findingsIn(path: string, source: string): readonly string[] {
  return checkProse(path, source).map(({ line, rule }) => `${line} ${rule}`);
}

describe("the check of all files", () => {
  const visited = EVERYTHING.flatMap(filesUnder);

  it.each([
    /^README\.md$/,
    /^skills\/.*\.md$/,
    /^ops\/.*\.md$/,
    /^src\/.*\.ts$/,
    /^lua\/.*\.lua$/,
    /^test\/unit\/lint\/check-prose\.test\.ts$/,
    /^test\/integration\/.*\.test\.ts$/,
  ])("visits %s", (pattern) => {
    expect(visited.filter((path) => pattern.test(path))).not.toEqual([]);
  });

  it("visits changesets, of which a release leaves none", () => {
    expect(EVERYTHING).toContain(".changeset");
  });

  it("visits no code that tests share", () => {
    expect(visited.filter((path) => path.startsWith("test/support/"))).toEqual([]);
  });
});

describe("Markdown", () => {
  it("accepts plain sentences, code and tables", () => {
    const page = `# Pause one tenant

The worker skips the tenant until \`untilMs\`. Other tenants are not affected.

| option | meaning |
| --- | --- |
| \`told\` | A name in code may be any word. |

\`\`\`ts
const told = "nobody tells whoever"; // ${LONG}
\`\`\`
`;

    expect(findingsIn("docs/pause.md", page)).toEqual([]);
  });

  it("reports a banned word with its line and what to write", () => {
    const page = "# Title\n\nThe job waits until\nRedis is away.\n";

    expect(checkProse("docs/page.md", page)).toEqual([
      {
        line: 3,
        severity: "error",
        rule: "banned-words",
        message: '"is away": unreachable',
      },
    ]);
  });

  it("reports a banned word in a cell of a table", () => {
    const page = "| a | b |\n| --- | --- |\n| x | Nobody calls. |\n";

    expect(findingsIn("docs/page.md", page)).toEqual(["3 banned-words"]);
  });

  it("accepts a banned word that is quoted, and one inside of another word", () => {
    const page = 'The label was "Told". The satellite newsletter was retold, right away.\n';

    expect(findingsIn("docs/page.md", page)).toEqual([]);
  });

  it("reports a sentence of 41 words as an error, and one of 31 as a warning", () => {
    const page = `${LONG}\n\n${words(31)}.\n`;

    expect(checkProse("docs/page.md", page)).toMatchObject([
      { line: 1, severity: "error", rule: "sentence-length" },
      { line: 3, severity: "warning", rule: "sentence-length" },
    ]);
  });

  it("reports a paragraph of more than 90 words on a page, but not in code", () => {
    const sentences = "One short sentence has six words. ".repeat(16);

    expect(findingsIn("README.md", sentences)).toEqual(["1 paragraph-length"]);
    expect(findingsIn("src/a.ts", `/** ${sentences} */`)).toEqual([]);
  });

  it("reports a cell of more than 200 characters outside of the reference", () => {
    const cell = "A short sentence of six words. ".repeat(8).trim();
    const page = `| a |\n| --- |\n| ${cell} |\n`;

    expect(findingsIn("docs/guides/page.md", page)).toEqual(["3 cell-length"]);
    expect(findingsIn("docs/reference/page.md", page)).toEqual([]);
  });

  it("reports a repeated word", () => {
    expect(findingsIn("docs/page.md", "The the job waits.\n")).toEqual(["1 repeated-words"]);
  });

  it("warns of a page in which most sentences are passive", () => {
    const page = "The job is taken by the queue. ".repeat(10);

    expect(checkProse("docs/page.md", page)).toMatchObject([
      { line: 1, severity: "warning", rule: "passive" },
    ]);
  });
});

describe("TypeScript", () => {
  it("reports comments and messages, and no names, types or short strings", () => {
    const source = `import { told } from "./news.ts";
/** Returns what {@link told} was told. */
export function tell(news: "nobody"): string {
  // Nobody
  // listens.
  if (news !== "nobody") throw new Error(\`\${news} is away, so that it fails\`);
  return "told " + told;
}
`;

    expect(findingsIn("src/a.ts", source)).toEqual([
      "2 banned-words",
      "4 banned-words",
      "6 banned-words",
    ]);
  });

  it("reads a message that is put together as one sentence", () => {
    const half = words(21);

    expect(findingsIn("src/a.ts", `f("${half}, " + "${half}");`)).toEqual(["1 sentence-length"]);
  });

  it("does not read SQL as a sentence", () => {
    const sql = `SELECT ${words(40)} FROM nobody`;

    expect(findingsIn("src/a.ts", `query("${sql}");`)).toEqual([]);
  });

  it("counts a tag as a paragraph of its own, and skips directives", () => {
    const half = words(25);
    const source = `/**
 * ${half}
 * @throws {@link Error} ${half}
 */
// oxlint-disable-next-line no-console -- whoever tells
export const a = 1;
`;

    expect(findingsIn("src/a.ts", source)).toEqual([]);
  });
});

describe("a test", () => {
  it("reports its titles, and neither its placeholders nor its other strings", () => {
    const source = `describe("a job that is told", () => {
  it.each(["nobody listens to this"])("sends %s s and $keys keys, meanwhile", () => {
    // Nobody listens to this.
    expect(told()).toBe("nobody listens to this");
  });
});
`;

    expect(findingsIn("test/unit/a.test.ts", source)).toEqual(["1 banned-words", "2 banned-words"]);
  });
});

describe("Lua", () => {
  it("reports comments, and reads each line of a header by itself", () => {
    const source = `--[[
  jobs-take: takes jobs of whoever asks.

  KEYS  [1] ${words(20)}
        [2] ${words(20)}
  ARGV  ${words(20)}
  Reply ${words(20)}
]]
-- @include lib/tell
local news = 1 -- what it was told
return news
`;

    expect(findingsIn("lua/a.lua", source)).toEqual(["2 banned-words", "10 banned-words"]);
  });
});
