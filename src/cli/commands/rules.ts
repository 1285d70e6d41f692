import { readFile } from "node:fs/promises";
import { Argument, type Command } from "commander";
import { InvalidOptionError } from "../../core/errors.ts";
import { reasonOf } from "../../core/describe.ts";
import {
  settingOf,
  type RulesInForce,
  type RulesSection,
} from "../../core/stores/insight/rules.ts";
import type { ChangeFacts } from "../../core/stores/insight/changes.ts";
import { formatPolicy } from "../../core/policy/policy.ts";
import { policyUnder } from "../../rules/compile.ts";
import { describeProblem } from "../../rules/problem.ts";
import { checkRules, type Rules } from "../../rules/read.ts";
import { factsOf } from "../../rules/settings.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import { partsOf } from "../../sluice/parts.ts";
import type { OwnedBucket } from "../../throttle/bucket.ts";
import {
  BrokenFileError,
  globalsOf,
  NewerRulesError,
  onOneLine,
  print,
  table,
  withSluice,
  type Io,
} from "../io.ts";

type What = "check" | "diff" | "apply";

/** A change that a file would make to a bucket, a queue or a webhook sender. */
interface Difference {
  readonly bucket: string;
  readonly subject: "policy" | RulesSection;
  /** The active policy and its source. Undefined if no process has reported the bucket. */
  readonly before: string | undefined;
  readonly source: string | undefined;
  /**
   * The policy in the file. Undefined if the file has none, so that the policy from the code
   * applies again.
   */
  readonly after: string | undefined;
}

const AT_ONCE = 100;

/** Counts the entries of each kind. */
function countsOf({ buckets, settings }: Pick<Rules, "buckets" | "settings">) {
  const sections = [...settings.keys()].map((name) => settingOf(name)!.section);
  const queues = sections.filter((section) => section === "queue").length;
  return { buckets: buckets.size, queues, senders: sections.length - queues };
}

function countText(rules: Pick<Rules, "buckets" | "settings">): string {
  return Object.entries(countsOf(rules))
    .filter(([what, count]) => count > 0 || what === "buckets")
    .map(([what, count]) => `${count} ${count === 1 ? what.replace(/s$/, "") : what}`)
    .join(", ");
}

export function addRules(program: Command, io: Io): void {
  program
    .command("rules")
    .addArgument(new Argument("<what>", "what to do").choices(["check", "diff", "apply"]))
    .argument("<file>", "the file, YAML or JSON")
    .description("checks a rules file, shows what it would change, or applies it")
    .addHelpText(
      "after",
      "\ncheck needs no Redis; diff and apply do: --redis or $REDIS_URL. apply exits with 5 if newer rules are in force.\n\nExample: sluice rules check sluice.yaml",
    )
    .action(async (what: What, file: string, _options: object, command: Command) => {
      if (what === "apply") return apply(command, io, file);
      const rules = await check(command, io, file);
      const report = { file, version: rules.version, ...countsOf(rules) };
      if (what === "check") {
        const version = rules.version === undefined ? "" : `, version ${rules.version}`;
        return print(command, io, report, () =>
          onOneLine(`${file}: good, ${countText(rules)}${version}`),
        );
      }
      return withSluice(command, io, async (sluice) => {
        print(command, io, await differences(sluice, rules), describe);
        const inForce = await partsOf("sluice rules", sluice).insight.rules();
        if (inForce === undefined || (rules.version ?? Infinity) >= inForce.version) return;
        io.err(`${onOneLine(`But apply would fail: ${newerText(inForce)}`)}\n`);
      });
    });
}

/** @throws {@link BrokenFileError} when the file has problems, which it prints first. */
async function check(command: Command, io: Io, file: string): Promise<Rules> {
  const { rules, problems } = checkRules(file, await readText(file));
  if (rules !== undefined) return rules;
  if (globalsOf(command, io).json === true) print(command, io, { file, problems }, () => "");
  else for (const problem of problems) io.err(`${onOneLine(describeProblem(file, problem))}\n`);
  const count = problems.length === 1 ? "one problem" : `${problems.length} problems`;
  throw new BrokenFileError(`${file} has ${count}.`);
}

async function readText(file: string): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    const remedy = `the file cannot be read (${reasonOf(error)})`;
    throw new InvalidOptionError({ where: "sluice rules", option: "file", value: file, remedy });
  }
}

function newerText({ version, file, by }: RulesInForce): string {
  return `version ${version} (${file}) of ${by} is newer. Give the file a greater version.`;
}

async function apply(command: Command, io: Io, file: string): Promise<void> {
  const { version: given } = await check(command, io, file);
  await withSluice(
    command,
    io,
    async (sluice) => {
      const { rules, insight } = partsOf("sluice rules", sluice);
      const verdict = await rules!.settle();
      const inForce = await insight.rules();
      if (verdict === "older" && inForce !== undefined) {
        throw new NewerRulesError(`${file} was not put in force: ${newerText(inForce)}`);
      }
      const report = { ...inForce, ...countsOf(rules!.rules) };
      print(command, io, report, ({ version }) =>
        onOneLine(`${file}: version ${version} is in force for ${countText(rules!.rules)}`),
      );
      if (given === undefined) {
        io.err(
          `The file states no version, so its modification time is used. A file that states a version then counts as older.\n`,
        );
      }
    },
    { rules: file },
  );
}

/**
 * Compares all entries of the file and of the active rules with the policies and settings that
 * apply now.
 */
async function differences(sluice: Sluice, rules: Rules): Promise<readonly Difference[]> {
  const { insight } = partsOf("sluice rules", sluice);
  const before = await insight.ruledNames();
  const all = [...new Set([...rules.buckets.keys(), ...rules.settings.keys(), ...before])];
  const names = all.filter((name) => settingOf(name) === undefined);
  const settings = all.filter((name) => settingOf(name) !== undefined);
  const texts = settings.length === 0 ? [] : await insight.ruledOf(settings);
  const found = settings.map((name, at) => settingDifference(rules, name, texts[at]?.text));
  for (let at = 0; at < names.length; at += AT_ONCE) {
    const looks = names
      .slice(at, at + AT_ONCE)
      .map(async (name) => differenceOf(sluice, rules, name));
    found.push(...(await Promise.all(looks)));
  }
  return found.filter(({ before, after, source }) => before !== after || source === "override");
}

function settingDifference(rules: Rules, key: string, earlier: string | undefined): Difference {
  const { section: subject, name: bucket } = settingOf(key)!;
  const said = rules.settings.get(key);
  const { before, after } = factsOf(earlier, said && JSON.stringify(said));
  const source = earlier === undefined ? "code" : "rules";
  return { bucket, subject, before: textOf(before), source, after: textOf(after) };
}

function textOf(facts: ChangeFacts): string {
  const each = Object.entries(facts).map(([name, value]) => `${name} ${value}`);
  return each.join(", ") || "as the code says";
}

async function differenceOf(sluice: Sluice, rules: Rules, name: string): Promise<Difference> {
  const bucket = (await sluice.find(name)) as OwnedBucket | undefined;
  const [declared] = await partsOf("sluice rules", sluice).insight.declaredOf([name]);
  const code = declared === undefined ? undefined : bucket?.policy;
  const options = rules.buckets.get(name);
  const where = `bucket("${name}")`;
  const policy = options === undefined ? code : policyUnder(where, options, code);
  const inForce = await bucket?.inForce();
  const { policy: before, policyFrom } = inForce?.state ?? {};
  const source = policyFrom === "configured" ? "override" : policyFrom;
  const said = policy === undefined ? undefined : formatPolicy(policy);
  // The text for people names neither the shares nor all keys.
  const isSilent = said === before && policy !== undefined && policy.text !== inForce?.policy.text;
  const after = isSilent ? `${said}; other weights, floors or shares` : said;
  return { bucket: name, subject: "policy", before, source, after };
}

function describe(found: readonly Difference[]): string {
  if (found.length === 0) return "Nothing would change.";
  const rows = found.map(({ bucket, subject, before, source, after }) => [
    subject === "policy" ? bucket : `${bucket} (${subject})`,
    before === undefined ? "-" : `${before} (${source})`,
    source === "override" ? `${after ?? "-"}, once the override ends` : (after ?? "-"),
  ]);
  return table(["bucket", "in force", "becomes"], rows);
}
