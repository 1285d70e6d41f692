/** Stores the rules from rules files for all processes that share the Redis. */
export interface RulesStore {
  /** Offers the rules of a file. The rules become active unless newer rules are active. */
  offerRules(offer: RulesOffer): Promise<RulesAnswer>;
  /** Returns the active rules. */
  rules(): Promise<RulesInForce | undefined>;
  /**
   * Stores the policies that the rules define for some buckets. Returns the earlier texts. Stores nothing and returns
   * undefined if other rules are active.
   */
  noteRules(note: RulesNote): Promise<readonly (string | undefined)[] | undefined>;
  /**
   * Records that the rules were applied to all buckets except those in `unreached`, whose servers were unreachable.
   * Those servers still have to apply the rules. If other rules have become active in the meantime, those rules are
   * applied again.
   */
  rulesApplied(rules: Pick<RulesInForce, "digest">, unreached?: ReadonlySet<string>): Promise<void>;
  /** Returns all names in current and earlier rules: bucket names, and names created by `settingName`. */
  ruledNames(): Promise<readonly string[]>;
  /** Returns the rules for these names. */
  ruledOf(names: readonly string[]): Promise<readonly (RuledPolicy | undefined)[]>;
  /** Groups buckets by their servers. Some servers may be unreachable. Undefined if there is only one server. */
  byServer?(buckets: readonly string[]): readonly (readonly string[])[];
  /** Returns the policy text that the code declares for each of these buckets. */
  declaredOf(buckets: readonly string[]): Promise<readonly (string | undefined)[]>;
}

/**
 * Identifies the rules of a file. The file with the higher version wins. If the versions are equal, the file that was
 * changed later wins.
 */
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
   * What the caller must do. `"apply"`: apply the rules to all buckets. `"wait"`: wait until another process has
   * applied them. `"done"`: nothing, because the rules are applied. `"older"`: nothing, because newer rules are active.
   */
  readonly verdict: "apply" | "wait" | "done" | "older";
  /** The rules that were active before. */
  readonly before: RulesInForce | undefined;
}

export interface RulesNote {
  readonly digest: string;
  readonly version: number;
  /** The text of each policy. Undefined if the rules no longer mention the bucket. */
  readonly policies: readonly (readonly [bucket: string, text: string | undefined])[];
}

/**
 * The rules for one bucket, queue or webhook sender. The text is a policy for a bucket, and JSON for a queue or
 * endpoints.
 */
export interface RuledPolicy {
  readonly text: string;
  /** The version of the rules. */
  readonly version: number;
}

/** The sections of the rules besides buckets: settings of queues, and limits of the endpoints of webhook senders. */
export type RulesSection = "queue" | "endpoints";

/**
 * Returns the stored name of a queue or of a sender's endpoints in the rules. The colon distinguishes it from a bucket
 * name.
 */
export function settingName(section: RulesSection, name: string): string {
  return `${section}:${name}`;
}

/** Reverses {@link settingName}. Returns undefined for the name of a bucket. */
export function settingOf(
  name: string,
): { readonly section: RulesSection; readonly name: string } | undefined {
  const at = name.indexOf(":");
  return at < 0
    ? undefined
    : { section: name.slice(0, at) as RulesSection, name: name.slice(at + 1) };
}

/** How long a process may take to apply rules before another process takes over, in ms. */
export const RULES_CLAIM_MS = 10_000;
/** How often unchanged rules are applied again, in ms, because the state of unused buckets expires. */
export const RULES_DONE_MS = 86_400_000;
/** How long the store keeps rules after the last process with their file has stopped, in ms. */
export const RULES_KEPT_MS = 2_592_000_000;

/** True if the first rules take precedence over the second ones. */
export function areNewer(
  { version, changedAtMs }: Pick<RulesInForce, "version" | "changedAtMs">,
  than: Pick<RulesInForce, "version" | "changedAtMs">,
): boolean {
  return version > than.version || (version === than.version && changedAtMs > than.changedAtMs);
}
