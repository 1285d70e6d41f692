export { WebhookVerificationError, type VerificationFailure } from "./core/webhooks/errors.ts";

export {
  createKeyPair,
  createSecret,
  publicKeyOf,
  type SignatureStyle,
} from "./webhooks/signing/secrets.ts";

export { sign, type SignOptions } from "./webhooks/signing/sign.ts";

export {
  verify,
  type ReceivedHeaders,
  type VerifiedWebhook,
  type VerifyOptions,
} from "./webhooks/signing/verify.ts";
