/** The rules that files give the buckets of a fleet: which ones are in force, and who offered them. */
export interface RulesStore {
  /** Offers the rules of a file. They are in force from then on, unless newer ones are. */
  offerRules(offer: RulesOffer): Promise<RulesAnswer>;
  /** Those in force. */
  rules(): Promise<RulesInForce | undefined>;
  /**
   * Notes the policies that rules come to for some buckets, and answers the texts that rules came to before; undefined, and
   * nothing is noted, if other rules are in force.
   */
  noteRules(note: RulesNote): Promise<readonly (string | undefined)[] | undefined>;
  /**
   * All buckets are changed now but those that could not be reached, if these rules are still in force; otherwise those in
   * force are to be put in force again. On the servers of those that could not, they are still to be put in force.
   */
  rulesApplied(rules: Pick<RulesInForce, "digest">, unreached?: ReadonlySet<string>): Promise<void>;
  /** What rules name, or named before: buckets, and names of `settingName`. */
  ruledNames(): Promise<readonly string[]>;
  /** What rules say of these. */
  ruledOf(names: readonly string[]): Promise<readonly (RuledPolicy | undefined)[]>;
  /** The buckets apart by the servers that they lie on, of which some may be away. Left out: there is one server. */
  byServer?(buckets: readonly string[]): readonly (readonly string[])[];
  /** The texts of the policies that code declares, of these buckets. */
  declaredOf(buckets: readonly string[]): Promise<readonly (string | undefined)[]>;
}

/** Rules as a file has them. Of two files, the one of the greater version counts; of the same version, the one that was changed later. */
export interface RulesInForce {
  /** What the file says, else when it was last changed, in ms since 1970. */
  readonly version: number;
  readonly changedAtMs: number;
  /** Identifies what the file says. */
  readonly digest: string;
  /** Its path, and the process that read it: `"web-7:4321"`. */
  readonly file: string;
  readonly by: string;
}

export interface RulesOffer extends RulesInForce {
  readonly replica: string;
}

export interface RulesAnswer {
  /**
   * What the one who offers is to do: `"apply"` the rules to all buckets; `"wait"`, since another process does that now;
   * nothing, since that is `"done"`, or since its file is `"older"` than the rules in force.
   */
  readonly verdict: "apply" | "wait" | "done" | "older";
  /** The rules that were in force until then. */
  readonly before: RulesInForce | undefined;
}

export interface RulesNote {
  readonly digest: string;
  readonly version: number;
  /** The text of each policy; undefined: rules no longer say anything about the bucket. */
  readonly policies: readonly (readonly [bucket: string, text: string | undefined])[];
}

/** What rules say of one bucket: the text of its policy; or of a queue or endpoints: JSON. */
export interface RuledPolicy {
  readonly text: string;
  /** That of the rules that said it. */
  readonly version: number;
}

/** What else rules can say something of: a queue, or the endpoints of a sender of webhooks. */
export type RulesSection = "queue" | "endpoints";

/** How that is named beside the names of buckets, which have no colon. */
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

/** For how long a process has time to put rules in force before another one does it. */
export const RULES_CLAIM_MS = 10_000;
/** How often rules are put in force anew although nothing has changed: state of buckets that nobody uses expires. */
export const RULES_DONE_MS = 86_400_000;
/** How long rules are kept when no process with a file is left. */
export const RULES_KEPT_MS = 2_592_000_000;

/** Whether rules count rather than others. */
export function areNewer(
  { version, changedAtMs }: Pick<RulesInForce, "version" | "changedAtMs">,
  than: Pick<RulesInForce, "version" | "changedAtMs">,
): boolean {
  return version > than.version || (version === than.version && changedAtMs > than.changedAtMs);
}
