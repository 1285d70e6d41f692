import { SluiceError } from "../errors.ts";

/** Why a webhook is not what it seems, for {@link WebhookVerificationError}. */
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
  "not-json": "it is signed, but its body is not JSON",
};

/** Thrown when a webhook was not signed with one of the secrets, or not lately. Answer it with 400, and do nothing of what it says. */
export class WebhookVerificationError extends SluiceError {
  override readonly name = "WebhookVerificationError";
  readonly code = "ERR_WEBHOOK_NOT_VERIFIED";
  /** What is wrong with it: `"no-match"`. */
  readonly reason: VerificationFailure;

  constructor(reason: VerificationFailure) {
    super(`The webhook is not to be trusted: ${FAILURES[reason]}.`);
    this.reason = reason;
  }
}
