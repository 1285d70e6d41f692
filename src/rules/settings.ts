import { listLeaves } from "../core/describe.ts";
import { InvalidOptionError, StoreUnavailableError } from "../core/errors.ts";
import { settingOf } from "../core/stores/insight/rules.ts";
import { changedFacts, type ChangeFacts } from "../core/stores/insight/changes.ts";
import type { InsightStore } from "../core/stores/insight/store.ts";
import { noteRuledSettings, type LogParts } from "./log.ts";
import { versionOf } from "./replacement-log.ts";
import type { DatedRules } from "./watch.ts";

/**
 * Stores the settings from the rules, and records the changes in the change log. If the rules no
 * longer set a setting, the code's value applies again. Returns false if newer rules exist.
 */
export async function noteSettings(
  of: DatedRules,
  names: readonly string[],
  parts: LogParts & { readonly by: string },
): Promise<boolean> {
  const version = versionOf(of);
  const texts = names.map((name) => {
    const said = of.settings.get(name);
    return said === undefined ? undefined : JSON.stringify(said);
  });
  const policies = names.map((name, at) => [name, texts[at]] as const);
  const earlier = await parts.insight.noteRules({ digest: of.digest, version, policies });
  if (earlier === undefined) return false;
  const changes = names.flatMap((name, at) => {
    if (earlier[at] === texts[at]) return [];
    return [{ queue: settingOf(name)!.name, ...factsOf(earlier[at], texts[at]) }];
  });
  await noteRuledSettings(changes, `version ${version} of ${of.file}, by ${parts.by}`, parts);
  return true;
}

/**
 * Rejects rules for the queue of a webhook sender. The sender stores each retry as a job, and a job
 * that the queue rejects would be lost.
 *
 * @throws {@link InvalidOptionError} when the rules contain an entry for such a queue.
 */
export async function assertNoSenders(of: DatedRules, insight: InsightStore): Promise<void> {
  const looking = [...of.settings.keys()].map(async (key) => {
    const { section, name } = settingOf(key)!;
    if (section !== "queue" || !(await isSender(insight, name))) return;
    const remedy = "remove the entry: the queue belongs to a webhook sender";
    throw new InvalidOptionError({ where: of.file, option: `queues.${name}`, value: name, remedy });
  });
  await Promise.all(looking);
}

async function isSender(insight: InsightStore, name: string): Promise<boolean> {
  try {
    return (await insight.queue(name))?.declared.isSender === true;
  } catch (error) {
    // If one of several servers is unreachable, the other servers still receive their rules. The
    // sender itself also rejects rules for its queue.
    if (error instanceof StoreUnavailableError && insight.byServer !== undefined) return false;
    throw error;
  }
}

function valuesOf(text: string | undefined): ReadonlyMap<string, unknown> {
  return new Map(text === undefined ? [] : listLeaves(JSON.parse(text)));
}

/** Returns the settings that differ, with their values before and after the change. */
export function factsOf(
  earlier: string | undefined,
  text: string | undefined,
): { readonly before: ChangeFacts; readonly after: ChangeFacts } {
  return changedFacts(valuesOf(earlier), valuesOf(text));
}
