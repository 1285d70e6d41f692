/** The rules from files for the buckets of a fleet. */
export interface RulesStore {
  /** Offers the rules of a file. They become active unless newer ones are active. */
  offerRules(offer: RulesOffer): Promise<RulesAnswer>;
  /** Returns the active rules. */
  rules(): Promise<RulesInForce | undefined>;
  /**
   * Stores the policies that the rules define for some buckets. Returns the earlier texts. Stores nothing and returns
   * undefined if other rules are active.
   */
  noteRules(note: RulesNote): Promise<readonly (string | undefined)[] | undefined>;
  /**
   * Notes that all buckets except for the unreached ones have the rules. If other rules are active by now, those are
   * applied again. The servers of unreached buckets still have to apply the rules.
   */
  rulesApplied(rules: Pick<RulesInForce, "digest">, unreached?: ReadonlySet<string>): Promise<void>;
  /** Returns the names in current and earlier rules: buckets, and names of `settingName`. */
  ruledNames(): Promise<readonly string[]>;
  /** Returns the rules for these names. */
  ruledOf(names: readonly string[]): Promise<readonly (RuledPolicy | undefined)[]>;
  /** Groups buckets by their servers, of which some may be unreachable. Missing if there is only one server. */
  byServer?(buckets: readonly string[]): readonly (readonly string[])[];
  /** Returns the texts of the policies in the code of these buckets. */
  declaredOf(buckets: readonly string[]): Promise<readonly (string | undefined)[]>;
}

/** The rules of a file. The file with the higher version wins; with equal versions, the one that was changed later. */
export interface RulesInForce {
  /** The version in the file. Defaults to the time of its last change, in ms since 1970. */
  readonly version: number;
  readonly changedAtMs: number;
  /** Identifies the content of the file. */
  readonly digest: string;
  /** The path of the file, and the process that read it: `"web-7:4321"`. */
  readonly file: string;
  readonly by: string;
}

export interface RulesOffer extends RulesInForce {
  readonly replica: string;
}

export interface RulesAnswer {
  /**
   * What the caller has to do: `"apply"` the rules to all buckets, or `"wait"` while another process applies them. Nothing if
   * that is `"done"`, or the file is `"older"` than the active rules.
   */
  readonly verdict: "apply" | "wait" | "done" | "older";
  /** The rules that were active before. */
  readonly before: RulesInForce | undefined;
}

export interface RulesNote {
  readonly digest: string;
  readonly version: number;
  /** The text of each policy; undefined if the rules no longer name the bucket. */
  readonly policies: readonly (readonly [bucket: string, text: string | undefined])[];
}

/** The rules for one bucket, as the text of its policy, or for a queue or endpoints, as JSON. */
export interface RuledPolicy {
  readonly text: string;
  /** The version of the rules. */
  readonly version: number;
}

/** Rules can also set a queue, or the endpoints of a sender of webhooks. */
export type RulesSection = "queue" | "endpoints";

/** The name of a queue or of endpoints in the rules. Names of buckets have no colon. */
export function settingName(section: RulesSection, name: string): string {
  return `${section}:${name}`;
}

/** Undefined for the name of a bucket. */
export function settingOf(
  name: string,
): { readonly section: RulesSection; readonly name: string } | undefined {
  const at = name.indexOf(":");
  return at < 0
    ? undefined
    : { section: name.slice(0, at) as RulesSection, name: name.slice(at + 1) };
}

/** How long a process may take to apply rules before another one does it. */
export const RULES_CLAIM_MS = 10_000;
/** How often unchanged rules are applied again, because the state of unused buckets expires. */
export const RULES_DONE_MS = 86_400_000;
/** How long rules are kept without a process that has the file. */
export const RULES_KEPT_MS = 2_592_000_000;

/** True if the rules take precedence over the others. */
export function areNewer(
  { version, changedAtMs }: Pick<RulesInForce, "version" | "changedAtMs">,
  than: Pick<RulesInForce, "version" | "changedAtMs">,
): boolean {
  return version > than.version || (version === than.version && changedAtMs > than.changedAtMs);
}
