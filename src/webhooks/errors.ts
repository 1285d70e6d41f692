import { SluiceError } from "../core/errors.ts";

/**
 * Why the verification of a webhook failed. {@link WebhookVerificationError} contains this reason.
 */
export type VerificationFailure =
  | "headers-missing"
  | "too-old"
  | "too-new"
  | "no-match"
  | "not-json";

const FAILURES: Readonly<Record<VerificationFailure, string>> = {
  "headers-missing": "a header of its signature is missing or malformed",
  "too-old": "its timestamp is too old; it may be a replay, or a clock is wrong",
  "too-new": "its timestamp lies in the future; a clock is wrong",
  "no-match":
    "no signature fits; check the secret, and that the body is the raw one, byte for byte",
  "not-json":
    "it is signed, but its body is neither JSON nor a form with JSON in its field payload; set the webhook's content type to application/json",
};

/**
 * Thrown when a webhook has no valid signature for the secrets, or its timestamp is not recent. Respond with 400, and do not
 * process the webhook.
 */
export class WebhookVerificationError extends SluiceError<WebhookVerificationError> {
  override readonly name = "WebhookVerificationError";
  readonly code = "ERR_WEBHOOK_NOT_VERIFIED";
  /** The reason why the verification failed, for example `"no-match"`. */
  declare readonly reason: VerificationFailure;

  constructor(reason: VerificationFailure) {
    super(`The webhook is not to be trusted: ${FAILURES[reason]}.`, { reason });
  }
}

/** Thrown when a tenant has no endpoint with this id. Other tenants' endpoints do not count. */
export class EndpointMissingError extends SluiceError<EndpointMissingError> {
  override readonly name = "EndpointMissingError";
  readonly code = "ERR_ENDPOINT_MISSING";
  declare readonly endpoint: string;

  constructor({ endpoint }: { endpoint: string }) {
    super(`The tenant has no endpoint "${endpoint}"; it was never put there, or was removed.`, {
      endpoint,
    });
  }
}

/** Thrown when a tenant has no message with this id. The message was never sent, or is no longer kept. */
export class MessageMissingError extends SluiceError<MessageMissingError> {
  override readonly name = "MessageMissingError";
  readonly code = "ERR_MESSAGE_MISSING";
  declare readonly messageId: string;

  constructor({ messageId }: { messageId: string }) {
    super(`The tenant has no message "${messageId}"; it was never sent, or is no longer kept.`, {
      messageId,
    });
  }
}

/** Thrown when something is sent to an endpoint that is disabled. */
export class EndpointDisabledError extends SluiceError<EndpointDisabledError> {
  override readonly name = "EndpointDisabledError";
  readonly code = "ERR_ENDPOINT_DISABLED";
  declare readonly endpoint: string;
  /** Why the endpoint is disabled: `"failing"`, `"gone"`, or the reason passed to `disable()`. */
  declare readonly reason: string;
  /** @deprecated Use `reason`, which has the same value. */
  declare readonly why: string;

  constructor({ endpoint, reason }: { endpoint: string; reason: string }) {
    super(`Endpoint "${endpoint}" is disabled (${reason}); enable it first.`, {
      endpoint,
      reason,
      why: reason,
    });
  }
}

/** Thrown when an encrypted secret in Redis cannot be read. The sender lacks the key, or the stored value was changed. */
export class SecretUnreadableError extends SluiceError<SecretUnreadableError> {
  override readonly name = "SecretUnreadableError";
  readonly code = "ERR_SECRET_UNREADABLE";
  declare readonly endpoint: string;
  /** The id of the key that encrypted the secret. */
  declare readonly keyId: string;

  constructor({ endpoint, keyId }: { endpoint: string; keyId: string }) {
    super(
      `The secret of endpoint "${endpoint}" cannot be read with key "${keyId}"; ` +
        `give that key again, behind the one in use, or make a new secret with rotateSecret({ graceMs: 0 }).`,
      { endpoint, keyId },
    );
  }
}
