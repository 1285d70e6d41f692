import { expect, it, onTestFinished } from "vitest";
import { readRulesFile, watchRulesFile, type DatedRules } from "../../../src/rules/watch.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { heardLog, rulesFiles } from "../../support/rules/rules-files.ts";

const files = rulesFiles();

it("notices a file that was changed between its first reading and the watch", async () => {
  const file = files.write("sluice.yaml", "version: 1\nbuckets: {}");
  const first = readRulesFile(file);
  files.write("sluice.yaml", "version: 2\nbuckets: {}");
  const heard: DatedRules[] = [];

  const { logger } = heardLog();
  const watch = watchRulesFile(first, { logger, onChange: (rules) => void heard.push(rules) });
  onTestFinished(() => watch.close());

  await waitUntil(async () => heard.length > 0, "the change is heard of");
  expect(heard[0]).toMatchObject({ version: 2 });
});
