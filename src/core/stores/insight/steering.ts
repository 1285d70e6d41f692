/** Changes of queues, and of endpoints of webhooks, as the log of changes has them. */
import { sayEndless } from "../../describe.ts";
import { isWithin, keyOfText, type Key } from "../../key-path.ts";

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

/** Facts by their names: `{ pausedForMs: 60000 }`, `{ waiting: 12, failed: 3 }`, `{ url: "https://…" }`. Never a secret. */
export type ChangeFacts = Readonly<Record<string, string | number | boolean>>;

export interface EndpointOfTenant {
  readonly tenant: string;
  /** Undefined for the limits of all endpoints of the tenant, and for what was sent again to several. */
  readonly id: string | undefined;
}

/** How much of a filter's text the log keeps. */
const MOST_OF_TEXT = 200;

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
export const MOST_SHOWN = 20;

/** What the log shows of what some values were and are; of how many more it does not, `more` says. */
export function shownFacts(
  names: readonly string[],
  before: ReadonlyMap<string, unknown>,
  after: ReadonlyMap<string, unknown>,
): { readonly before: ChangeFacts; readonly after: ChangeFacts } {
  const ofThose = (values: ReadonlyMap<string, unknown>): ChangeFacts => {
    const said = names.slice(0, MOST_SHOWN).filter((name) => values.has(name));
    return Object.fromEntries(said.map((name) => [name, values.get(name) as ChangeFacts[string]]));
  };
  const more = names.length > MOST_SHOWN ? { more: names.length - MOST_SHOWN } : {};
  return { before: ofThose(before), after: { ...ofThose(after), ...more } };
}

export interface NewSteering {
  /** The queue; that of a sender of webhooks has the name of the sender. */
  readonly queue: string;
  /** The endpoint that was changed; undefined for a change of the queue. */
  readonly endpoint: EndpointOfTenant | undefined;
  readonly action: QueueAction | EndpointAction;
  /** The text of the key that it is about; undefined is the whole queue, or a filter without a key. */
  readonly key: string | undefined;
  /** Which jobs were meant, besides the key. */
  readonly filter: ChangeFacts | undefined;
  readonly by: string;
  /** True if the caller gave no `by`: then `by` names the process. */
  readonly isByCode?: boolean | undefined;
  readonly reason: string | undefined;
  readonly forMs: number | undefined;
  readonly before: ChangeFacts | undefined;
  /** Undefined if it is known only once the change was made. */
  readonly after: ChangeFacts | undefined;
  /** The change that this one takes back. */
  readonly undoes: string | undefined;
  /** What `undo` puts back where `before` does not say it whole; users do not see it. */
  readonly was?: unknown;
}

export interface Steering extends NewSteering {
  readonly id: string;
  /** Ms since 1970, by the store's clock. */
  readonly atMs: number;
  readonly jobs: number | undefined;
  readonly undoneBy: string | undefined;
  readonly failed: string | undefined;
}

/** What came of a change that was noted. */
export interface SteeringFate {
  readonly jobs?: number | undefined;
  readonly after?: ChangeFacts | undefined;
  readonly undoneBy?: string | undefined;
  readonly failed?: string | undefined;
}

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

export interface SteeringStore {
  /** Notes a change before it is made; answers its id. */
  noteSteering(change: NewSteering): Promise<string>;
  amendSteering(change: Pick<Steering, "queue" | "id">, fate: SteeringFate): Promise<void>;
  /** What was set by hand of a queue, read where processes without a connection of the queue's own can. */
  settingsByHand(queue: string): Promise<SettingsByHand>;
  /** Removes from the log what names a tenant of a sender of webhooks. */
  forgetTenant(of: TenantOfSender): Promise<void>;
  /** The newest first, of one queue or of all, older than `before`. */
  steerings(page: SteeringsPage): Promise<readonly Steering[]>;
}

export interface TenantOfSender {
  /** The sender's queue. */
  readonly queue: string;
  readonly tenant: string;
}

/** Whether a change, of a queue or of its bucket, names a tenant. */
export function namesTenant(
  { endpoint, key, filter }: Partial<Pick<NewSteering, "endpoint" | "key" | "filter">>,
  tenant: string,
): boolean {
  const keys = [key, filter?.["key"]].filter((each) => typeof each === "string");
  return endpoint?.tenant === tenant || keys.some((text) => isWithin(text, tenant));
}

interface SteeringsPage {
  readonly queue: string | undefined;
  readonly before: string | undefined;
  readonly limit: number;
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
   * Of a pause, `pausedForMs`; of a change of jobs, how many there were by state; of an endpoint, its settings, if it was
   * there; of settings and of rules the values that differ, as `"defaults.attempts"`: one that is left out is as the code says.
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

export function describeSteering(steering: Steering): QueueChange {
  const { key, before, after, was: _forUndo, isByCode: _forStore, ...facts } = steering;
  return {
    ...facts,
    key: key === undefined ? undefined : keyOfText(key),
    before: before && sayEndless({ ...before }),
    after: after && sayEndless({ ...after }),
  };
}
