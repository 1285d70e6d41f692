/**
 * Names that OpenTelemetry gives to what messaging systems do (semantic conventions of messaging, in development); a test
 * compares them with `@opentelemetry/semantic-conventions`.
 */
export const MESSAGING = {
  operationDuration: "messaging.client.operation.duration",
  processDuration: "messaging.process.duration",
  sentMessages: "messaging.client.sent.messages",
  consumedMessages: "messaging.client.consumed.messages",
  system: "messaging.system",
  destination: "messaging.destination.name",
  operationName: "messaging.operation.name",
  operationType: "messaging.operation.type",
  errorType: "error.type",
  send: "send",
  process: "process",
} as const;

/** The bounds that they give for durations. */
export const MESSAGING_BOUNDS_MS: readonly number[] = [
  5, 10, 25, 50, 75, 100, 250, 500, 750, 1_000, 2_500, 5_000, 7_500, 10_000,
];
