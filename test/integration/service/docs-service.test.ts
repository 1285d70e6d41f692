import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { concurrency } from "sluice";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { rulesFiles } from "../../support/rules/rules-files.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { services } from "../../support/server/service.ts";

const run = promisify(execFile);
const sluices = realSluices();
const servers = services();
const files = rulesFiles();

const ADDRESS = "http://127.0.0.1:3010";
const INTERPRETERS: Readonly<Record<string, readonly [string, string]>> = {
  sh: ["bash", "-c"],
  python: ["python3", "-c"],
};

it.each([
  "docs/start/other-languages.md",
  "docs/guides/any-language.md",
  "docs/guides/jobs/workers-in-any-language.md",
])("%s prints what it shows", async (path) => {
  const page = await readFile(path, "utf8");
  const blocks = [...page.matchAll(/^```(sh|python)\n([^]*?)^```$/gm)].filter(([, , code]) =>
    code!.includes(ADDRESS),
  );
  const [, rules] = /^```yaml\n(buckets:\n[^]*?)^```$/m.exec(page) ?? [];
  const sluice = sluices.open({
    rules: files.write("sluice.yaml", rules ?? "buckets: { api: { rate: 1/min } }"),
  });
  await waitUntil(async () => (await sluice.find("api")) !== undefined, "the rules are in force");
  const mail = sluice.queue("mail", { bucket: sluice.bucket("mail", { rate: "100/s" }) });
  if (rules === undefined) await mail.enqueue({ to: "ann" });
  const { url } = await servers.start(sluice);

  for (const [, language, code] of blocks) {
    const [program, option] = INTERPRETERS[language!]!;
    const { stdout, stderr } = await run(program, [option, code!.replaceAll(ADDRESS, url)]);
    expect(stderr).toBe("");
    for (const [, promised] of code!.matchAll(/# → (.+)$/gm)) {
      expect(stdout.replaceAll("\r", "")).toContain(promised);
    }
  }

  expect(blocks.length).toBeGreaterThan(0);
});

it("the examples in other languages make their calls in slots", async () => {
  const sluice = sluices.open();
  sluice.bucket("api", { perKey: { rate: "3/h", burst: 3 } });
  const jobs = sluice.bucket("jobs", { limits: [concurrency(1)] });
  const { url } = await servers.start(sluice);
  const env = { ...process.env, SLUICE_URL: url };
  const python = (): Promise<string> =>
    run("python3", ["examples/other-languages/draw.py", "api"], { env }).then(
      ({ stdout }) => stdout,
      ({ stderr }: { stderr: string }) => stderr,
    );

  const [first, second] = [await python(), await python()];
  const shell = await run("examples/other-languages/draw.sh", ["jobs", "echo", "done"], { env });

  expect(first).toBe("call 0\ncall 1\ncall 2\n");
  expect(second).toContain("try again in");
  expect(shell).toEqual({ stdout: "done\n", stderr: "" });
  await waitUntil(async () => (await jobs.tryDraw()).allowed, "the slot is released");
});
