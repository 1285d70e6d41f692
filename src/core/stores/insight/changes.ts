/**
 * The changes of buckets, queues and endpoints that operators and rules files make. This module has the names of the
 * changes, the fields that the log records, and the form that users see.
 */
import { withForever } from "../../describe.ts";
import { isWithin, decodeKey, namedOf, type Key, type NamedKeys } from "../../key-path.ts";
import type { PolicySource } from "../../store.ts";

/**
 * The action of a bucket change. `"expire"` is the end of a temporary override. `"rules"` is a change by a rules file.
 */
export type BucketAction =
  | "configure"
  | "pause"
  | "resume"
  | "grant"
  | "restore"
  | "undo"
  | "expire"
  | "rules";
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

/** Returns the reason why a change by a rules file cannot be undone: the file would set the same value again. */
export function madeByRules(file: string): string {
  return `${file} made it; change that file, or set another value by hand`;
}

/** For each action, the reason why `undo` rejects it. Null if the action can be undone. */
export const REFUSED: Readonly<Record<BucketAction | QueueAction | EndpointAction, string | null>> =
  {
    configure: null,
    pause: null,
    resume: null,
    grant: null,
    restore: "the balances before it are not kept; restore other balances",
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

/** The reasons why `undo` rejects a change even though its action can be undone. */
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

/**
 * Values that describe a change, by name: `{ pausedForMs: 60000 }`, `{ waiting: 12, failed: 3 }`. They never contain a
 * secret.
 */
export type ChangeFacts = Readonly<Record<string, string | number | boolean>>;

export interface EndpointOfTenant {
  readonly tenant: string;
  /**
   * The endpoint id. Undefined for the limits that all endpoints of the tenant share, and for messages that were sent
   * again to several endpoints.
   */
  readonly id: string | undefined;
}

interface NotedChange {
  /**
   * The encoded key that the change affects. Undefined if the change affects the whole bucket or queue, or has a filter
   * without a key.
   */
  readonly key: string | undefined;
  readonly by: string;
  readonly reason: string | undefined;
  /** How long the change is active, in ms. Undefined if it is active until the next change. */
  readonly forMs: number | undefined;
  /** The id of the change that this change undoes. */
  readonly undoes: string | undefined;
}

/** The state of a bucket that operators can set. An endless pause has `pausedForMs` Infinity. */
export interface SteeredState {
  /** The policy in the form that users see: `"100/s"`. */
  readonly policy: string;
  /** The policy as the store's JSON text. */
  readonly text: string;
  readonly source: PolicySource;
  readonly pausedForMs: number;
  /** What is granted in addition to budgets. Only for changes of budgets. */
  readonly grants?: readonly Grant[] | undefined;
}

/** What is granted in addition to the amount of one budget, in one period. */
export interface Grant {
  /** The unit and the period of the budget: `"usd:month"`. */
  readonly budget: string;
  readonly granted: number;
  /** The start of the period, in µs since 1970. */
  readonly startUs: number;
}

export interface NewBucketChange extends NotedChange {
  readonly bucket: string;
  readonly queue?: undefined;
  readonly subject: "policy" | "pause" | "budget";
  readonly action: BucketAction;
  readonly before: SteeredState;
  readonly after: SteeredState;
}

export interface NewQueueChange extends NotedChange {
  readonly bucket?: undefined;
  /** The name of the queue. The queue of a webhook sender has the name of the sender. */
  readonly queue: string;
  /** The endpoint that was changed. Undefined for a change of the queue itself. */
  readonly endpoint: EndpointOfTenant | undefined;
  readonly action: QueueAction | EndpointAction;
  /** The filter that selected the jobs, besides the key. */
  readonly filter: ChangeFacts | undefined;
  /** True if the caller passed no `by`. `by` is then the name of the process. */
  readonly isByCode?: boolean | undefined;
  readonly before: ChangeFacts | undefined;
  /** The state after the change. Undefined if the result is known only after the change was made. */
  readonly after: ChangeFacts | undefined;
  /** The value that `undo` restores if `before` does not contain it completely. Users do not see this field. */
  readonly was?: unknown;
}

export type NewChange = NewBucketChange | NewQueueChange;

/** The fields that the store adds to a recorded change. */
interface Kept {
  readonly id: string;
  /** The time of the change, in ms since 1970 on the store's clock. */
  readonly atMs: number;
  /** The id of the change that undid this change. */
  readonly undoneBy: string | undefined;
  /** The reason why the recorded change was not made. Undefined if it was made. */
  readonly failed: string | undefined;
}

export type KeptBucketChange = NewBucketChange & Kept;
export type KeptQueueChange = NewQueueChange & Kept & { readonly jobs: number | undefined };
export type KeptChange = KeptBucketChange | KeptQueueChange;

/** The result of a recorded change. */
export interface ChangeFate {
  readonly jobs?: number | undefined;
  readonly after?: ChangeFacts | undefined;
  readonly undoneBy?: string | undefined;
  readonly failed?: string | undefined;
}

/** A change that was made, and the bucket's generation after the change. */
export interface MadeChange {
  readonly id: string;
  readonly change: Pick<NewBucketChange, "bucket" | "subject" | "after">;
  readonly generation: number;
}

/**
 * Selects recorded changes that are older than `before`: of a bucket, of a queue and its endpoints, or of all buckets
 * and queues.
 */
export interface ChangesPage {
  readonly bucket?: string | undefined;
  readonly queue?: string | undefined;
  readonly before?: string | undefined;
  readonly limit: number;
}

/** Identifies a recorded change and the log that contains it. */
export type ChangeRef = Pick<Kept, "id"> &
  ({ readonly bucket: string } | { readonly queue: string; readonly bucket?: undefined });

/** The settings of a queue that operators set, as stored in Redis. */
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
  /**
   * Records a change before it is made: in the log, and as a new override if it starts one. Returns the id of the
   * change.
   */
  noteChange(change: NewChange): Promise<string>;
  /** Records that a change was made. The store then removes the override that the change replaced. */
  confirmChange(made: MadeChange): Promise<void>;
  /** Adds the result to a recorded change. */
  amendChange(change: ChangeRef, fate: ChangeFate): Promise<void>;
  /** Returns recorded changes, the newest first. */
  changes(page: ChangesPage & { readonly bucket: string }): Promise<readonly KeptBucketChange[]>;
  changes(page: ChangesPage & { readonly queue: string }): Promise<readonly KeptQueueChange[]>;
  changes(page: ChangesPage): Promise<readonly KeptChange[]>;
  /** Removes from the log all changes that name a tenant of a webhook sender. */
  forgetTenant(of: TenantOfSender): Promise<void>;
  /** Returns the queue settings that operators set. Works in processes without a connection of the queue. */
  settingsByHand(queue: string): Promise<SettingsByHand>;
}

export interface TenantOfSender {
  /** The name of the sender's queue. */
  readonly queue: string;
  readonly tenant: string;
}

/**
 * The suffixes of the separate change logs, each with its own limit. In this order: buckets by operators, buckets by
 * rules, queues, endpoints with a `by`, queues and endpoints by rules, and endpoints without a `by`. Applications
 * change endpoints for their tenants without a `by`, and these changes must not displace the changes by a person.
 */
export const LOGS = [
  "",
  ":rules",
  ":queues",
  ":endpoints",
  ":settings",
  ":endpoints:code",
] as const;
/** The number of logs, from the first, that contain changes of buckets. */
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

/** Compares two change ids of the form `<ms>-<number>`, so that the newest change is first. */
export function newestFirst(one: string, other: string): number {
  const [ms, number] = one.split("-").map(Number) as [number, number];
  const [otherMs, otherNumber] = other.split("-").map(Number) as [number, number];
  return otherMs - ms || otherNumber - number;
}

/** True if a change of a queue or its bucket names a tenant. */
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

/** The most characters of a text that the log stores. */
export const MOST_OF_TEXT = 200;

/** Converts a filter of jobs to the form that the change log stores. Returns undefined for an empty filter. */
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

/** The most values that the log shows for one change of settings. */
const MOST_SHOWN = 20;

type Values = ReadonlyMap<string, unknown>;

/**
 * Returns the values before and after a change as the log shows them. `more` is the number of values that are not
 * shown.
 */
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

/**
 * Returns the values that differ before and after a change. With `few` set to `"all"`, returns all values if the log
 * can show that many.
 */
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

/** The state of a bucket that operators can set, before or after a change. */
export interface SteeredFacts {
  /** The active policy: `"100/s"`. */
  readonly policy: string;
  /** The origin of the policy: an operator's override, the rules, or the code. */
  readonly source: PolicySource;
  /**
   * How long no call starts, in ms. For a change of a key, only the key's own pause counts. Infinity for a pause
   * without an end, which is `"forever"` in JSON.
   */
  readonly pausedForMs: number;
  /** For a grant: what is granted in addition, by budget: `{ "usd:month": 50 }`. */
  readonly granted?: Readonly<Record<string, number>> | undefined;
}

/** A change of a bucket by an operator or a rules file, as the log shows it. */
export interface BucketChange {
  /** The id of the change: `"1764166000000-0"`. Later changes have greater ids. */
  readonly id: string;
  readonly bucket: string;
  readonly queue?: undefined;
  /**
   * `"undo"` undoes another change. `"expire"` is the end of a temporary policy. `"rules"` is a change by a rules file:
   * `by` is `"rules"`, and `reason` names the file. The log lists such a change even if an operator's override takes
   * precedence.
   */
  readonly action: BucketAction;
  /** The part of the bucket that was changed. For an `"undo"`, it is the part that the undone change affected. */
  readonly subject: "policy" | "pause" | "budget";
  /** The time of the change, in ms since 1970 on the clock of Redis. */
  readonly atMs: number;
  readonly by: string;
  readonly reason: string | undefined;
  /** The key that was paused or resumed. Undefined for the whole bucket, and if there are `keys`. */
  readonly key: Key | undefined;
  readonly keys: NamedKeys | undefined;
  /** How long the change was meant to be active, in ms. Undefined if it was active until the next change. */
  readonly forMs: number | undefined;
  readonly before: SteeredFacts;
  readonly after: SteeredFacts;
  /** The id of the change that this change undid. */
  readonly undoes: string | undefined;
  /** The id of the change that undid this change. */
  readonly undoneBy: string | undefined;
  /** The reason why the change was not made. If the reason is a missing reply, the change may have been made. */
  readonly failed: string | undefined;
}

/** A change of a queue, or of an endpoint of a webhook sender, as `sluice.changes()` returns it. */
export interface QueueChange {
  /** The id of the change: `"1764166000000-2000000"`. Later changes have greater ids. */
  readonly id: string;
  readonly bucket?: undefined;
  /** The name of the queue. For a change of an endpoint, the name of the sender. */
  readonly queue: string;
  readonly endpoint: EndpointOfTenant | undefined;
  /**
   * The action. `"rules"` is a change by a rules file to a queue or to the endpoints of a sender. `by` is then
   * `"rules"`, and `reason` names the file.
   */
  readonly action: QueueAction | EndpointAction;
  /** The key that the change affected. Undefined for the whole queue. */
  readonly key: Key | undefined;
  /**
   * The filter that selected the jobs, besides the key: `{ reason: "timed out" }`. For a single job, the filter
   * contains its id. For webhooks, the filter selected messages.
   */
  readonly filter: ChangeFacts | undefined;
  /** The time of the change, in ms since 1970 on the clock of Redis. */
  readonly atMs: number;
  readonly by: string;
  readonly reason: string | undefined;
  /** How long a pause or a setting was meant to be active, in ms. Undefined if it was active until the next change. */
  readonly forMs: number | undefined;
  /**
   * The state before the change. For a pause, `pausedForMs`. For a change of jobs, their number by state. For an
   * endpoint, its settings, if it existed. For settings and rules, the values that differ, such as
   * `"defaults.attempts"`. A missing value is set by the code.
   */
  readonly before: ChangeFacts | undefined;
  /** The state after the change, in the same form. Undefined if the target was removed, or if the result is unknown. */
  readonly after: ChangeFacts | undefined;
  /**
   * The number of jobs that the change affected, or of messages that it sent again: `12`. Undefined if the change does
   * not affect jobs, or while the number is unknown.
   */
  readonly jobs: number | undefined;
  /** The id of the change that this change undid. */
  readonly undoes: string | undefined;
  /** The id of the change that undid this change. */
  readonly undoneBy: string | undefined;
  /**
   * The reason why the change was not made, or not completed. If the reason is a missing reply, the change may have
   * been made.
   */
  readonly failed: string | undefined;
}

/** A change of a bucket, which has a `bucket`, or a change of a queue or an endpoint, which has a `queue`. */
export type LoggedChange = BucketChange | QueueChange;

/** The form of a recorded change that users see. */
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

function factsOf({ policy, source, pausedForMs, grants }: SteeredState): SteeredFacts {
  if (grants === undefined) return { policy, source, pausedForMs };
  const granted = grants.map((each) => [each.budget, each.granted]);
  return { policy, source, pausedForMs, granted: Object.fromEntries(granted) };
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
