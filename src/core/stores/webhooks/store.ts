/** One endpoint of one tenant. */
export interface EndpointName {
  readonly tenant: string;
  readonly endpoint: string;
}

export interface MessageName {
  readonly tenant: string;
  readonly message: string;
}

/** One message. An id may come again once its message is no longer kept: `copy` distinguishes the two. */
export interface MessageCopy extends MessageName {
  /** Undefined for a message that an older version has stored. */
  readonly copy: string | undefined;
}

/** Of a tenant's endpoints, as text: when they were changed last, their records, and why some are disabled. */
export interface StoredEndpoints {
  readonly version: string;
  readonly records: ReadonlyMap<string, string>;
  readonly disabled: ReadonlyMap<string, Disabled>;
}

export interface Disabled {
  readonly atMs: number;
  /** `"failing"`, `"gone"`, or what an operator wrote. */
  readonly why: string;
}

export interface PutRequest extends EndpointName {
  readonly record: string;
  /** The record that was read; undefined for a new endpoint. */
  readonly before: string | undefined;
  readonly most: number;
  /** The text of its key, and the limits that it has of its own, as JSON. */
  readonly key: string;
  readonly limits: string | undefined;
}

/** A message that is to be stored. */
export interface NewMessage extends MessageName {
  /** A name that no other message has; kept if the message is new. */
  readonly copy: string;
  readonly type: string;
  readonly body: string;
  readonly endpoints: readonly string[];
  /** Those of them that get their messages in order. */
  readonly ordered: readonly string[];
  readonly keepMs: number;
}

export interface MessageStored {
  readonly atMs: number;
  readonly isNew: boolean;
  /** That of the message that is stored. */
  readonly copy: string | undefined;
  readonly endpoints: readonly string[];
  /** Whether all of its jobs were stored before. */
  readonly isSent: boolean;
  /** In whose lines it was put when it was new. */
  readonly ordered: readonly string[];
}

/** What waits in the line of an ordered endpoint. */
export interface LineEntry {
  readonly purpose: "send" | "replay";
  readonly message: string;
  /** Who asked for a replay. */
  readonly by?: string | undefined;
}

/** A message at the head of a line. */
export interface LineMessage {
  readonly message: string;
  readonly atMs: number;
  readonly type: string;
  /** Undefined if the message is no longer there. */
  readonly body: string | undefined;
  readonly state: string;
  readonly copy: string | undefined;
}

/** What an attempt at an ordered endpoint needs. */
export interface BegunLine {
  readonly record: string;
  readonly disabled: Disabled | undefined;
  /** How long the endpoint is to be left alone: 0 if the attempt may begin. */
  readonly waitMs: number;
  readonly nowMs: number;
  readonly attempt: number;
  readonly purpose: LineEntry["purpose"];
  readonly by: string | undefined;
  /** Those that go together. */
  readonly messages: readonly LineMessage[];
}

/** A step of a line that is over. */
export interface EndedStep extends EndpointName {
  readonly step: string;
  /** How many messages leave the line. */
  readonly leaving: number;
  /** The number of the next attempt. */
  readonly attempt: number;
}

/** How far a broadcast is. */
export interface BroadcastState {
  /** The tenant up to which it is done; empty at first. */
  readonly cursor: string;
  readonly isDone: boolean;
  readonly tenants: number;
  readonly endpoints: number;
}

/** A broadcast that is to be stored. */
export interface NewBroadcast {
  readonly id: string;
  readonly type: string;
  readonly body: string;
  /** The tenants to which it goes, in their order; undefined for all. */
  readonly named: readonly string[] | undefined;
  readonly keepMs: number;
}

/** A broadcast that goes on, or begins. */
export interface BegunBroadcast
  extends BroadcastState, Pick<NewBroadcast, "type" | "body" | "named"> {
  readonly isNew: boolean;
}

/** How much of a broadcast was done since it was read. */
export interface BroadcastAdvance {
  readonly id: string;
  readonly from: string;
  readonly to: string;
  readonly isDone: boolean;
  readonly tenants: number;
  readonly endpoints: number;
}

/** A message as the log has it. */
export interface LoggedMessage {
  readonly atMs: number;
  readonly type: string;
  readonly body: string;
  readonly endpoints: readonly string[];
  /** What became of it at each endpoint. */
  readonly states: ReadonlyMap<string, string>;
}

/** One attempt of a message at an endpoint. */
export interface AttemptName extends EndpointName, MessageCopy {
  /** The endpoint that is meant, of all that ever had its name. Undefined in jobs of older versions. */
  readonly born?: string | undefined;
}

export interface BegunAttempt {
  readonly record: string | undefined;
  readonly disabled: Disabled | undefined;
  readonly type: string;
  /** Undefined if the message is no longer there. */
  readonly body: string | undefined;
  readonly state: string | undefined;
  /** How long the endpoint is to be left alone: 0 if the attempt may begin. */
  readonly waitMs: number;
  readonly sentAtMs: number;
  readonly nowMs: number;
  /** That of the message that is stored now. */
  readonly copy: string | undefined;
}

/** What an attempt says of its endpoint: that it is well, that it is not, or nothing. */
export type HealthSeen = "ok" | "bad" | "same";

export interface EndedAttempt extends EndpointName, MessageCopy {
  readonly entry: string;
  readonly state: string;
  readonly health: HealthSeen;
  /** How long the endpoint asks to be left alone. */
  readonly slowMs: number;
  /** Why it is disabled at once. */
  readonly disable: string | undefined;
  /** When the endpoint that it was sent to was changed last: it says nothing of one that was changed since. */
  readonly changedAtMs: number;
}

/** How an endpoint is. */
export interface EndpointSeen {
  /** For how many ms nothing is sent to it. */
  readonly leftAloneForMs: number;
  /** In ms since 1970; 0 if it does not fail. */
  readonly failingSinceMs: number;
  /** How many attempts in a row have failed. */
  readonly failures: number;
  /** How many attempts ended in the last minute. */
  readonly inLastMinute: number;
  /** How many messages are due and wait for it. */
  readonly waiting: number;
  /** Its last attempts, the newest first, with their messages; some may be gone. */
  readonly attempts: readonly { readonly message: string; readonly entry: string | undefined }[];
}

/** What holds for all attempts of a sender. */
export interface EndRules {
  readonly keepMs: number;
  readonly most: number;
  readonly disableAfterMs: number;
  readonly failures: number;
  readonly openMs: number;
  readonly mostOpenMs: number;
}

export interface AttemptNoted {
  readonly waitMs: number;
  /** `"gone"`: the endpoint was removed during the attempt. */
  readonly event: "recovered" | "failing" | "disabled" | "gone" | undefined;
  /** Since when it fails, in ms since 1970; 0 if it does not. */
  readonly failingSinceMs: number;
}

/** A part of a list by time, the newest first unless said otherwise. */
export interface TimeSpan {
  readonly isOldestFirst?: boolean;
  readonly sinceMs: number;
  readonly untilMs: number;
  /** How many of those at its beginning are passed over. */
  readonly skip: number;
  readonly limit: number;
}

/** An entry of such a list: an id, and its time in ms since 1970. */
export type TimedId = readonly [id: string, atMs: number];

/** What a message is, and where it went. */
interface Addressed extends Pick<LoggedMessage, "type" | "endpoints"> {
  readonly copy: string | undefined;
}

/** All of one sender, on the server that holds its queue. */
export interface WebhookStore {
  /** When the endpoints of a tenant were changed last: another text after each change. */
  version(tenant: string): Promise<string>;
  endpoints(tenant: string): Promise<StoredEndpoints>;
  endpoint(name: EndpointName): Promise<{ record?: string; disabled?: Disabled }>;
  /** How an endpoint is, whose jobs have this key, with so many of its last attempts. */
  look(name: EndpointName, key: string, most: number): Promise<EndpointSeen>;
  /** Ids in their order, after one of them. */
  ids(tenant: string, after: string, limit: number): Promise<readonly string[]>;
  /** Tenants that have endpoints, in their order, after one of them. */
  tenants(after: string, limit: number): Promise<readonly string[]>;
  countEndpoints(tenant: string): Promise<number>;
  /** The limits that a tenant or an endpoint has of its own, as JSON, by the text of its key. */
  limits(key: string): Promise<string | undefined>;
  /** Has the sender's workers end what a key was made to wait for. */
  wake(key: string): Promise<void>;
  setLimits(key: string, limits: string | undefined): Promise<void>;
  put(request: PutRequest): Promise<"stored" | "changed" | "too-many">;
  remove(name: EndpointName, key: string): Promise<boolean>;
  /** Disables an endpoint for a reason, or enables it without one; undefined if there is none. */
  setDisabled(name: EndpointName, why: string | undefined): Promise<boolean | undefined>;
  storeMessage(message: NewMessage): Promise<MessageStored>;
  /** Notes that all jobs of a message are stored. False if the message is no longer stored. */
  noteSent(message: MessageCopy): Promise<boolean>;
  /** Stores a broadcast, unless there is one of this id. */
  beginBroadcast(broadcast: NewBroadcast): Promise<BegunBroadcast>;
  /** Notes how far it is, unless somebody else has noted more since. */
  advanceBroadcast(advance: BroadcastAdvance): Promise<BroadcastState>;
  message(name: MessageName): Promise<LoggedMessage | undefined>;
  /** What an attempt needs. `timeoutMs` is the sender's, for endpoints with none of their own; with 0, no breaker is asked. */
  begin(name: AttemptName, timeoutMs: number): Promise<BegunAttempt>;
  /** What records the attempts of a sender. */
  recorder(rules: EndRules): (attempt: EndedAttempt) => Promise<AttemptNoted>;
  /**
   * Has messages wait in the line of an ordered endpoint, behind all that wait there; the step that is next. Undefined if the
   * endpoint was removed.
   */
  joinLine(name: EndpointName, entries: readonly LineEntry[]): Promise<string | undefined>;
  /** The step of a line that is next; undefined while nothing waits. */
  lineStep(name: EndpointName): Promise<string | undefined>;
  lineLength(name: EndpointName): Promise<number>;
  /** What a step sends; undefined if another is next, or the endpoint is gone. */
  beginStep(
    step: EndpointName & { readonly step: string; readonly most: number },
    timeoutMs: number,
  ): Promise<BegunLine | undefined>;
  /** Ends a step; the one that is next, if anything waits and nobody else had ended it. */
  endStep(ended: EndedStep): Promise<string | undefined>;
  /** The type of a message, and the endpoints that it was sent to; undefined if it is not there. */
  addressed(name: MessageName): Promise<Addressed | undefined>;
  /** The messages of a tenant, by when they came. */
  messages(tenant: string, span: TimeSpan): Promise<readonly TimedId[]>;
  /** The messages that failed for good at an endpoint, by when that was. */
  failed(name: EndpointName, span: TimeSpan): Promise<readonly TimedId[]>;
  /** The attempts of a message, as they were written, in their order. */
  attempts(name: MessageName): Promise<readonly string[]>;
  /** The attempts at an endpoint with their messages, by when they ended; some may be gone. */
  attemptsAt(
    name: EndpointName,
    span: TimeSpan,
  ): Promise<
    readonly {
      readonly message: string;
      readonly atMs: number;
      readonly entry: string | undefined;
    }[]
  >;
  /** Removes a message with all that is kept of it, in one step; whether it was there. */
  expungeMessage(name: MessageName): Promise<boolean>;
  /** Removes some messages of a tenant, and what is left of the tenant once it has none; how many, and whether that is all. */
  expungeTenant(tenant: string): Promise<{ readonly removed: number; readonly isDone: boolean }>;
  /** Removes the names of a tenant and its endpoints from the list of changed limits, and puts the tenant's digest there. */
  forgetLimits(tenant: string, digest: string): Promise<void>;
  /** Removes a tenant's jobs from the queue's stream of events. */
  forgetEvents(tenant: string): Promise<void>;
  /**
   * The limits that changed after a change of this number, by the texts of keys; and the number now. All of them if it is
   * lower by now: then all was lost meanwhile.
   */
  limitsSince(version: number): Promise<{
    readonly version: number;
    readonly limits: ReadonlyMap<string, string | undefined>;
    /** Keys that were woken since. */
    readonly woken: readonly string[];
    /** The digests of tenants that were expunged since: their limits and those of their endpoints have ended. */
    readonly forgotten?: readonly string[];
  }>;
}
