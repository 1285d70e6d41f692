/** Of which endpoint an event is. */
export interface EndpointEvent {
  /** Undefined where the sender has only one tenant. */
  readonly tenant: string | undefined;
  readonly endpoint: string;
}

export interface FailingEvent extends EndpointEvent {
  /** Since when no attempt succeeds, in ms since 1970. */
  readonly sinceMs: number;
  /** When it is disabled if that goes on, in ms since 1970. */
  readonly disabledAtMs: number;
}

export interface DisabledEvent extends EndpointEvent {
  /** `"failing"`, or `"gone"`: it answered 410. */
  readonly why: string;
}

export interface BlockedEvent extends EndpointEvent {
  /** Where it would have gone: `"hooks.example.com is at 10.0.0.7, where webhooks may not go"`. */
  readonly detail: string;
}

export interface ExhaustedEvent extends EndpointEvent {
  /** The message that is not tried there again. */
  readonly message: string;
  /** Why: what the last attempt met. */
  readonly reason: string;
}

/** The events of a sender, by name, in the process whose worker met them. */
export interface WebhookEvents {
  /** An endpoint fails for half of the time after which it is disabled; then for 70 and for 90 % of it. */
  readonly failing: FailingEvent;
  /** An endpoint was disabled by what it answered, or did not answer. */
  readonly disabled: DisabledEvent;
  /** An endpoint that was warned of or left alone is well again. */
  readonly recovered: EndpointEvent;
  /** An endpoint has an address that webhooks may not go to. Its tenant is not told where that is. */
  readonly blocked: BlockedEvent;
  /** A message was tried at an endpoint for the last time, and failed; it can be replayed. */
  readonly exhausted: ExhaustedEvent;
}

export const EVENT_NAMES: readonly (keyof WebhookEvents)[] = [
  "failing",
  "disabled",
  "recovered",
  "blocked",
  "exhausted",
];
