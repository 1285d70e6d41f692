/** Changes by hand and by rules files, of buckets, queues and endpoints: what they are called, what each notes, how users see it. */
import { withForever } from "../../describe.ts";
import { isWithin, decodeKey, namedOf, type Key, type NamedKeys } from "../../key-path.ts";
import type { PolicySource } from "../../store.ts";

/** Of a bucket: `"expire"` is the end of an override whose time is over, `"rules"` what a rules file has changed. */
export type BucketAction = "configure" | "pause" | "resume" | "undo" | "expire" | "rules";
export type QueueAction =
  | "pause"
  | "resume"
  | "drain"
  | "remove"
  | "reschedule"
  | "replay"
  | "purge"
  | "set"
  | "rules"
  | "undo";
export type EndpointAction =
  | "put"
  | "remove"
  | "disable"
  | "enable"
  | "setLimits"
  | "rotateSecret"
  | "replay"
  | "recover"
  | "undo";

/** Refuses to undo what a file set, which the file would set again. */
export function madeByRules(file: string): string {
  return `${file} made it; change that file, or set another value by hand`;
}

/** Why `undo` refuses a change of this name; null if it has an inverse. */
export const REFUSED: Readonly<Record<BucketAction | QueueAction | EndpointAction, string | null>> =
  {
    configure: null,
    pause: null,
    resume: null,
    set: null,
    disable: null,
    enable: null,
    drain: "the jobs are gone; who has their data can enqueue them again",
    remove: "what was removed is gone",
    purge: "the dead letters are gone",
    replay: "what it put back may have run since",
    reschedule: "the times that the jobs had are not kept; reschedule them again",
    put: "not all that the endpoint was is kept; put it again",
    setLimits: "set the limits again; the change says what they were",
    recover: "the messages may have been sent since",
    rotateSecret: "the old secret is not put back; rotate it again",
    rules: madeByRules("a rules file"),
    expire: "the time of another change was over; make that one again",
    undo: "it took another change back; make that one again",
  };

/** Why `undo` refuses a change that has an inverse. */
export const NOT_NOW = {
  unknown: "there is no such change in the log; sluice.changes() lists them",
  undone: (by: string): string => `it was taken back before, by ${by}`,
  failed: "it was not made",
  later: (id: string): string => `${id} came after it; take that one back first`,
  pauseOver: "the pause has ended by itself",
  settingOver: "it has ended by itself",
  unknownBefore: "it is not known what was there before",
  noPauseLeft: "the pause that it ended would be over",
  endpointRemoved: "the endpoint was removed",
  endpointIs: (state: string): string => `the endpoint is ${state} by now`,
} as const;

/** Facts by their names: `{ pausedForMs: 60000 }`, `{ waiting: 12, failed: 3 }`, `{ url: "https://…" }`. Never a secret. */
export type ChangeFacts = Readonly<Record<string, string | number | boolean>>;

export interface EndpointOfTenant {
  readonly tenant: string;
  /** Undefined for the limits of all endpoints of the tenant, and for what was sent again to several. */
  readonly id: string | undefined;
}

interface NotedChange {
  /** The text of the key that it is about; undefined is all of it, or a filter without a key. */
  readonly key: string | undefined;
  readonly by: string;
  readonly reason: string | undefined;
  /** How long it holds; undefined: until it is changed again. */
  readonly forMs: number | undefined;
  /** The change that this one takes back. */
  readonly undoes: string | undefined;
}

/** What can be set by hand of a bucket. A pause without an end has `pausedForMs` Infinity. */
export interface SteeredState {
  /** As users read it: `"100/s"`. */
  readonly policy: string;
  /** As the store has it. */
  readonly text: string;
  readonly source: PolicySource;
  readonly pausedForMs: number;
}

export interface NewBucketChange extends NotedChange {
  readonly bucket: string;
  readonly queue?: undefined;
  readonly subject: "policy" | "pause";
  readonly action: BucketAction;
  readonly before: SteeredState;
  readonly after: SteeredState;
}

export interface NewQueueChange extends NotedChange {
  readonly bucket?: undefined;
  /** The queue; that of a sender of webhooks has the name of the sender. */
  readonly queue: string;
  /** The endpoint that was changed; undefined for a change of the queue. */
  readonly endpoint: EndpointOfTenant | undefined;
  readonly action: QueueAction | EndpointAction;
  /** Which jobs were meant, besides the key. */
  readonly filter: ChangeFacts | undefined;
  /** True if the caller gave no `by`: then `by` names the process. */
  readonly isByCode?: boolean | undefined;
  readonly before: ChangeFacts | undefined;
  /** Undefined if it is known only once the change was made. */
  readonly after: ChangeFacts | undefined;
  /** What `undo` puts back where `before` does not say it whole; users do not see it. */
  readonly was?: unknown;
}

export type NewChange = NewBucketChange | NewQueueChange;

/** What the store knows of a change that was noted. */
interface Kept {
  readonly id: string;
  /** Ms since 1970, by the store's clock. */
  readonly atMs: number;
  /** The change that took this one back. */
  readonly undoneBy: string | undefined;
  /** Why it was not made after all. */
  readonly failed: string | undefined;
}

export type KeptBucketChange = NewBucketChange & Kept;
export type KeptQueueChange = NewQueueChange & Kept & { readonly jobs: number | undefined };
export type KeptChange = KeptBucketChange | KeptQueueChange;

/** What became of a change that was noted. */
export interface ChangeFate {
  readonly jobs?: number | undefined;
  readonly after?: ChangeFacts | undefined;
  readonly undoneBy?: string | undefined;
  readonly failed?: string | undefined;
}

/** A change that has been made, in the generation that it gave the bucket. */
export interface MadeChange {
  readonly id: string;
  readonly change: Pick<NewBucketChange, "bucket" | "subject" | "after">;
  readonly generation: number;
}

/** Changes of a bucket, of a queue (endpoints included), or of all, older than `before`. */
export interface ChangesPage {
  readonly bucket?: string | undefined;
  readonly queue?: string | undefined;
  readonly before?: string | undefined;
  readonly limit: number;
}

/** A change that was noted, where its note lies. */
export type ChangeRef = Pick<Kept, "id"> &
  ({ readonly bucket: string } | { readonly queue: string; readonly bucket?: undefined });

/** As the store of queues has it. */
interface SettingsByHand {
  readonly generation: number;
  readonly settings: readonly {
    readonly name: string;
    readonly text: string;
    readonly forMs: number;
    readonly atMs: number;
  }[];
}

export interface ChangeStore {
  /** Notes a change before it is made, in the log and as the override that it may begin; answers its id. */
  noteChange(change: NewChange): Promise<string>;
  /** A change that was noted has been made: what it took the place of is forgotten. */
  confirmChange(made: MadeChange): Promise<void>;
  /** Says what became of a change that was noted. */
  amendChange(change: ChangeRef, fate: ChangeFate): Promise<void>;
  /** The newest changes first. */
  changes(page: ChangesPage & { readonly bucket: string }): Promise<readonly KeptBucketChange[]>;
  changes(page: ChangesPage & { readonly queue: string }): Promise<readonly KeptQueueChange[]>;
  changes(page: ChangesPage): Promise<readonly KeptChange[]>;
  /** Removes from the log what names a tenant of a sender of webhooks. */
  forgetTenant(of: TenantOfSender): Promise<void>;
  /** What was set by hand of a queue, read where processes without a connection of the queue's own can. */
  settingsByHand(queue: string): Promise<SettingsByHand>;
}

export interface TenantOfSender {
  /** The sender's queue. */
  readonly queue: string;
  readonly tenant: string;
}

/**
 * The logs, each of which keeps as many changes: of buckets by hand; of buckets by rules; of queues; of endpoints, with a
 * `by`; of queues and endpoints by rules; of endpoints, without a `by`. Applications change endpoints for their tenants
 * without a `by`, and these changes must not push out those of a person.
 */
export const LOGS = [
  "",
  ":rules",
  ":queues",
  ":endpoints",
  ":settings",
  ":endpoints:code",
] as const;
/** How many of them are of buckets. */
const OF_BUCKETS = 2;

export function logOf(change: NewChange): (typeof LOGS)[number] {
  const isRuled = change.action === "rules";
  if (change.bucket !== undefined) return isRuled ? ":rules" : "";
  if (isRuled) return ":settings";
  if (change.endpoint === undefined) return ":queues";
  return change.isByCode === true ? ":endpoints:code" : ":endpoints";
}

export function logsOf({
  bucket,
  queue,
}: Pick<ChangesPage, "bucket" | "queue">): readonly string[] {
  if (bucket !== undefined) return LOGS.slice(0, OF_BUCKETS);
  return queue === undefined ? LOGS : LOGS.slice(OF_BUCKETS);
}

/** Ids are `<ms>-<number>`: the newest first. */
export function newestFirst(one: string, other: string): number {
  const [ms, number] = one.split("-").map(Number) as [number, number];
  const [otherMs, otherNumber] = other.split("-").map(Number) as [number, number];
  return otherMs - ms || otherNumber - number;
}

/** Whether a change, of a queue or of its bucket, names a tenant. */
export function namesTenant(
  {
    endpoint,
    key,
    filter,
  }: Partial<Pick<NewQueueChange, "endpoint" | "filter"> & Pick<NewChange, "key">>,
  tenant: string,
): boolean {
  const keys = [key, filter?.["key"]].filter((each) => typeof each === "string");
  return endpoint?.tenant === tenant || keys.some((text) => isWithin(text, tenant));
}

/** How much of a text the log keeps. */
export const MOST_OF_TEXT = 200;

/** What the log keeps of what was asked for; undefined if that is nothing. */
export function filterFacts(filter: Readonly<Record<string, unknown>>): ChangeFacts | undefined {
  const given = Object.entries(filter).filter(([, value]) => value !== undefined);
  if (given.length === 0) return undefined;
  return Object.fromEntries(
    given.map(([name, value]) => [
      name,
      typeof value === "number" ? value : String(value).slice(0, MOST_OF_TEXT),
    ]),
  );
}

/** How many values the log shows of a change of settings. */
const MOST_SHOWN = 20;

type Values = ReadonlyMap<string, unknown>;

/** What the log shows of what some values were and are; of how many more it does not, `more` says. */
export function shownFacts(
  names: readonly string[],
  before: Values,
  after: Values,
): { readonly before: ChangeFacts; readonly after: ChangeFacts } {
  const ofThose = (values: Values): ChangeFacts => {
    const said = names.slice(0, MOST_SHOWN).filter((name) => values.has(name));
    return Object.fromEntries(said.map((name) => [name, values.get(name) as ChangeFacts[string]]));
  };
  const more = names.length > MOST_SHOWN ? { more: names.length - MOST_SHOWN } : {};
  return { before: ofThose(before), after: { ...ofThose(after), ...more } };
}

/** The values that differ; with `few`, all of them where the log shows as many. */
export function changedFacts(
  before: Values,
  after: Values,
  few: "all" | "changed" = "changed",
): ReturnType<typeof shownFacts> {
  const names = [...new Set([...before.keys(), ...after.keys()])];
  const areAll = few === "all" && names.length <= MOST_SHOWN;
  const changed = names.filter((name) => areAll || before.get(name) !== after.get(name));
  return shownFacts(changed, before, after);
}

/** What could be set by hand, before or after a change. */
export interface SteeredFacts {
  /** The policy in force: `"100/s"`. */
  readonly policy: string;
  /** Where it comes from: set by hand, of the rules, or of the code. */
  readonly source: PolicySource;
  /** For how long nothing starts, in ms; of a key, by its own pause. Infinity without an end: JSON says `"forever"`. */
  readonly pausedForMs: number;
}

/** A change of a bucket by hand or by a rules file, as the log has it. */
export interface BucketChange {
  /** `"1764166000000-0"`. Later changes have greater ones. */
  readonly id: string;
  readonly bucket: string;
  readonly queue?: undefined;
  /**
   * `"undo"` undoes another change. `"expire"` is the end of a temporary policy. `"rules"` is a change by a rules file, even
   * if an override takes precedence: `by` is then `"rules"`, and `reason` names the file.
   */
  readonly action: BucketAction;
  /** What it is about: that of an `"undo"` is what is taken back. */
  readonly subject: "policy" | "pause";
  /** When, in ms since 1970, by the clock of Redis. */
  readonly atMs: number;
  readonly by: string;
  readonly reason: string | undefined;
  /** The key that was paused or resumed; undefined is the whole bucket, unless there are `keys`. */
  readonly key: Key | undefined;
  readonly keys: NamedKeys | undefined;
  /** For how long it was to hold, in ms; undefined: until the next change. */
  readonly forMs: number | undefined;
  readonly before: SteeredFacts;
  readonly after: SteeredFacts;
  /** The id of the change that this one took back. */
  readonly undoes: string | undefined;
  /** The id of the change that took this one back. */
  readonly undoneBy: string | undefined;
  /** Why it was not made after all; or that no reply came, and then it may have been made. */
  readonly failed: string | undefined;
}

/** A change of a queue, or of an endpoint of a sender of webhooks, as `sluice.changes()` lists it. */
export interface QueueChange {
  /** `"1764166000000-2000000"`. Later changes have greater ones. */
  readonly id: string;
  readonly bucket?: undefined;
  /** The queue; of an endpoint, the sender. */
  readonly queue: string;
  readonly endpoint: EndpointOfTenant | undefined;
  /** `"rules"` is what a rules file has changed, of a queue or of the endpoints of a sender: `by` is then `"rules"`, and `reason` says which. */
  readonly action: QueueAction | EndpointAction;
  /** The key that it is about; undefined is the whole queue. */
  readonly key: Key | undefined;
  /** Which jobs were meant, besides the key: `{ reason: "timed out" }`; of one job, its id; of webhooks which messages. */
  readonly filter: ChangeFacts | undefined;
  /** When, in ms since 1970, by the clock of Redis. */
  readonly atMs: number;
  readonly by: string;
  readonly reason: string | undefined;
  /** For how long a pause or a setting was to hold, in ms; undefined: until the next change. */
  readonly forMs: number | undefined;
  /**
   * For a pause, `pausedForMs`. For a change of jobs, their number by state. For an endpoint, its settings, if it existed.
   * For settings and rules, the values that differ, such as `"defaults.attempts"`. The code sets a missing one.
   */
  readonly before: ChangeFacts | undefined;
  /** The same afterwards; undefined of what was removed, and where it is not known what came of the change. */
  readonly after: ChangeFacts | undefined;
  /** How many jobs it has changed, or messages it has sent again: `12`. Undefined where no jobs are, or while it is not known. */
  readonly jobs: number | undefined;
  /** The id of the change that this one took back. */
  readonly undoes: string | undefined;
  /** The id of the change that took this one back. */
  readonly undoneBy: string | undefined;
  /** Why it was not made after all, or not to its end; or that no reply came, and then it may have been made. */
  readonly failed: string | undefined;
}

/** A change of a bucket, or of a queue or an endpoint: the one has a `bucket`, the other a `queue`. */
export type LoggedChange = BucketChange | QueueChange;

/** A change as users see it. */
export type Described<Of extends KeptChange> = Of extends KeptBucketChange
  ? BucketChange
  : QueueChange;

export function describeChange<Of extends KeptChange>(change: Of): Described<Of> {
  return (
    change.bucket === undefined ? describeOfQueue(change) : describeOfBucket(change)
  ) as Described<Of>;
}

function describeOfBucket({ key, before, after, ...facts }: KeptBucketChange): BucketChange {
  return { ...facts, ...namedOf(key), before: factsOf(before), after: factsOf(after) };
}

function factsOf({ policy, source, pausedForMs }: SteeredState): SteeredFacts {
  return { policy, source, pausedForMs };
}

function describeOfQueue(change: KeptQueueChange): QueueChange {
  const { key, before, after, was: _forUndo, isByCode: _forStore, ...facts } = change;
  return {
    ...facts,
    key: key === undefined ? undefined : decodeKey(key),
    before: before && withForever({ ...before }),
    after: after && withForever({ ...after }),
  };
}
