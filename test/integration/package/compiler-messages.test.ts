import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";

const root = join(import.meta.dirname, "../../..");
const FORM = String.raw`whole calls per time, such as \"100/s\"`;

/** What the compiler says of a program. */
async function messagesOf(program: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "sluice-types-"));
  try {
    const compilerOptions = {
      rootDir: "/",
      paths: { sluice: [join(root, "src/sluice/index.ts")] },
      typeRoots: [join(root, "node_modules/@types")],
    };
    const config = {
      extends: join(root, "tsconfig.check.json"),
      compilerOptions,
      include: ["*.mts"],
    };
    await writeFile(join(folder, "tsconfig.json"), JSON.stringify(config));
    await writeFile(join(folder, "program.mts"), program);
    const tsc = join(root, "node_modules/typescript/bin/tsc");
    return await new Promise((resolve) => {
      execFile(process.execPath, [tsc, "-p", folder, "--noEmit"], (_error, out) => resolve(out));
    });
  } finally {
    await rm(folder, { recursive: true });
  }
}

it("shows the form of a rate for an invalid text", { timeout: 120_000 }, async () => {
  const messages = await messagesOf(`
    import { createSluice, leakyBucket, slidingLog } from "sluice";
    const sluice = createSluice();
    sluice.bucket("a", { rate: "100" });
    sluice.bucket("a", { rate: "100 per second" });
    sluice.bucket("a", { perKey: { rate: "fast" } });
    leakyBucket("5");
    slidingLog(5, "1 fortnight");
    sluice.bucket("a", { rate: "100/s" });
  `);

  const lines = messages.split("\n").filter((line) => /program\.mts\(\d+,\d+\): error/.test(line));
  expect(lines).toHaveLength(5);
  expect(messages.split(FORM).length - 1).toBeGreaterThanOrEqual(4);
  expect(messages).toContain("a time such as");
  expect(messages).not.toContain("type 'undefined'");
});
