import {
  SluiceError as BaseError,
  type BudgetSpentError,
  type CannotUndoError,
  type ChangedError,
  type ClosedError,
  type CodecError,
  type CostTooLargeError,
  type InvalidOptionError,
  type LeaseLostError,
  type LineFullError,
  type RedisRequiredError,
  type StoreUnavailableError,
  type WaitTooLongError,
} from "../core/errors.ts";
import type {
  GroupClosedError,
  HandlerResponseError,
  HandlerTimeoutError,
  JobCancelledError,
  JobFailedError,
  JobLostError,
  JobMissingError,
  JobStateError,
  JobUnfinishedError,
  MiddlewareError,
  QueueFullError,
} from "../queue/errors.ts";
import type {
  EndpointDisabledError,
  EndpointMissingError,
  MessageMissingError,
  SecretUnreadableError,
  WebhookVerificationError,
} from "../webhooks/errors.ts";

/**
 * The union of all errors of this package. The `code` of an error identifies its class, and
 * therefore its fields.
 */
export type AnySluiceError =
  | BudgetSpentError
  | CannotUndoError
  | ChangedError
  | ClosedError
  | CodecError
  | CostTooLargeError
  | GroupClosedError
  | HandlerResponseError
  | HandlerTimeoutError
  | InvalidOptionError
  | JobCancelledError
  | JobFailedError
  | JobLostError
  | JobMissingError
  | JobStateError
  | JobUnfinishedError
  | LeaseLostError
  | LineFullError
  | MiddlewareError
  | QueueFullError
  | RedisRequiredError
  | StoreUnavailableError
  | WaitTooLongError
  | EndpointDisabledError
  | EndpointMissingError
  | MessageMissingError
  | SecretUnreadableError
  | WebhookVerificationError;

interface SluiceErrorClass {
  readonly name: string;
  readonly prototype: AnySluiceError;
  [Symbol.hasInstance](thrown: unknown): thrown is AnySluiceError;
}

/**
 * The base class of all errors of this package. The `code` of an instance determines its other
 * fields.
 */
export const SluiceError: SluiceErrorClass = BaseError as unknown as SluiceErrorClass;
export type SluiceError = AnySluiceError;

/**
 * True if the thrown value is an error of this package. TypeScript then infers the error's fields
 * from its `code`.
 */
export function isSluiceError(thrown: unknown): thrown is AnySluiceError {
  return thrown instanceof BaseError;
}
