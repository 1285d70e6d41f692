/** Writes `sluice.schema.json`, by which editors check a rules file. A test holds it equal. `tsx scripts/rules-schema.ts` */
import { writeFileSync } from "node:fs";
import { resolve } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import * as z from "zod";
import { rulesSchema } from "../src/rules/schema.ts";

/** Where editors find the schema of the latest release: a mirror of npm serves the files of each package. */
const ID = "https://unpkg.com/sluice/sluice.schema.json";
const FILE = resolve(import.meta.dirname, "../sluice.schema.json");

/** Draft 7 is the latest that all common editors read, and the latest that their catalog accepts without an exception. */
export function rulesJsonSchema(target: "draft-7" | "draft-2020-12" = "draft-7"): string {
  const schema = z.toJSONSchema(rulesSchema(), {
    target,
    io: "input",
    unrepresentable: "any",
    reused: "ref",
  });
  return `${JSON.stringify({ $id: ID, title: "Sluice rules", ...schema }, null, 2)}\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(FILE, rulesJsonSchema());
