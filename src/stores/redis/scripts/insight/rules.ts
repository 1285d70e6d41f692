import { INDEX_KEPT_MS } from "../../../../core/stores/insight/store.ts";
import {
  RULES_CLAIM_MS,
  RULES_DONE_MS,
  RULES_KEPT_MS,
  type RuledPolicy,
  type RulesAnswer,
  type RulesInForce,
  type RulesNote,
  type RulesOffer,
} from "../../../../core/stores/insight/rules.ts";
import { defineScript, type Script } from "../script.ts";
import { fleetBase } from "./insight.ts";

interface OfPrefix {
  readonly prefix: string;
}

export const rulesOffer: Script<RulesOffer & OfPrefix, RulesAnswer> = defineScript({
  name: "insight/rules-offer",
  keys: (input) => [fleetBase(input)],
  args: ({ version, changedAtMs, digest, file, by, replica }) => [
    version,
    changedAtMs,
    digest,
    JSON.stringify({ file, by }),
    replica,
    RULES_CLAIM_MS,
    RULES_KEPT_MS,
  ],
  decode(reply) {
    const [verdict, before] = reply as [RulesAnswer["verdict"], string];
    return { verdict, before: before === "" ? undefined : readRules(before) };
  },
});

type Earlier = readonly (string | undefined)[];

export const rulesNote: Script<RulesNote & OfPrefix, Earlier | undefined> = defineScript({
  name: "insight/rules-note",
  keys: (input) => [fleetBase(input)],
  args: ({ digest, version, policies }) => [
    digest,
    version,
    RULES_KEPT_MS,
    INDEX_KEPT_MS,
    ...policies.flatMap(([bucket, text = ""]) => [bucket, text]),
  ],
  decode(reply) {
    const earlier = reply as readonly string[] | null;
    return earlier?.map((text) => (text === "" ? undefined : readRuled(text).text));
  },
});

export const rulesDone: Script<Pick<RulesInForce, "digest"> & OfPrefix, void> = defineScript({
  name: "insight/rules-done",
  keys: (input) => [fleetBase(input)],
  args: ({ digest }) => [digest, RULES_DONE_MS],
  decode: () => undefined,
});

/** `<version>|<when the file was changed, in ms>|<digest>|<JSON>` */
export function readRules(head: string): RulesInForce {
  const [version = "", changedAtMs = "", digest = ""] = head.split("|", 3);
  const text = head.slice(`${version}|${changedAtMs}|${digest}|`.length);
  const about = JSON.parse(text) as Pick<RulesInForce, "file" | "by">;
  return { ...about, version: Number(version), changedAtMs: Number(changedAtMs), digest };
}

/** `<version>|<text of the policy>` */
export function readRuled(text: string): RuledPolicy {
  const at = text.indexOf("|");
  return { version: Number(text.slice(0, at)), text: text.slice(at + 1) };
}
