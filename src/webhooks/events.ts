/** The endpoint that an event concerns. */
export interface EndpointEvent {
  /** Undefined if the sender has only one tenant. */
  readonly tenant: string | undefined;
  readonly endpoint: string;
}

export interface FailingEvent extends EndpointEvent {
  /** The time of the first failure after the last success, in ms since 1970. */
  readonly sinceMs: number;
  /** The time at which the endpoint will be disabled if it keeps failing, in ms since 1970. */
  readonly disabledAtMs: number;
}

export interface DisabledEvent extends EndpointEvent {
  /** Why the endpoint was disabled: `"failing"`, or `"gone"` if it replied with 410. */
  readonly reason: string;
  /** @deprecated Use `reason`, which has the same value. */
  readonly why: string;
}

export interface BlockedEvent extends EndpointEvent {
  /**
   * The refused destination, for example `"hooks.example.com is at 10.0.0.7, where webhooks may not
   * go"`.
   */
  readonly detail: string;
}

export interface ExhaustedEvent extends EndpointEvent {
  /** The id of the message. The sender does not retry this message at this endpoint. */
  readonly message: string;
  /** The result of the last attempt. */
  readonly reason: string;
}

/**
 * The events of a sender, by name. Each event is emitted in the process whose worker detected it.
 */
export interface WebhookEvents {
  /** An endpoint keeps failing. Emitted after 50, 70 and 90 % of `disableAfterMs`. */
  readonly failing: FailingEvent;
  /** An endpoint was disabled because of its replies or failures. */
  readonly disabled: DisabledEvent;
  /** An endpoint works again after a warning or a pause. */
  readonly recovered: EndpointEvent;
  /**
   * The endpoint resolves to an address that webhooks may not use. The tenant does not see the
   * address.
   */
  readonly blocked: BlockedEvent;
  /** The last attempt to send a message to an endpoint failed. The message can be replayed. */
  readonly exhausted: ExhaustedEvent;
}

export const EVENT_NAMES: readonly (keyof WebhookEvents)[] = [
  "failing",
  "disabled",
  "recovered",
  "blocked",
  "exhausted",
];
