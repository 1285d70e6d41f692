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

/** The bounds, in seconds, that they give for durations. */
export const DURATION_BOUNDS: readonly number[] = [
  0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10,
];
