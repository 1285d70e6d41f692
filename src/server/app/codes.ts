import type { ErrorCode } from "../../core/errors.ts";

/** The HTTP status of each Sluice error. `docs/reference/errors.md` explains each code. */
const OF_SLUICE: Readonly<Record<ErrorCode, number>> = {
  ERR_INVALID_OPTION: 400,
  ERR_CODEC: 500,
  ERR_BUDGET_SPENT: 429,
  ERR_COST_TOO_LARGE: 422,
  ERR_WAIT_TOO_LONG: 429,
  ERR_LINE_FULL: 429,
  ERR_MIDDLEWARE: 500,
  ERR_QUEUE_FULL: 429,
  ERR_GROUP_CLOSED: 409,
  ERR_CHANGED: 409,
  ERR_CANNOT_UNDO: 409,
  ERR_JOB_CANCELLED: 409,
  ERR_JOB_FAILED: 409,
  ERR_JOB_LOST: 409,
  ERR_JOB_MISSING: 404,
  ERR_JOB_STATE: 409,
  ERR_JOB_UNFINISHED: 409,
  ERR_LEASE_LOST: 410,
  ERR_HANDLER_RESPONSE: 502,
  ERR_HANDLER_TIMEOUT: 500,
  ERR_ENDPOINT_MISSING: 404,
  ERR_ENDPOINT_DISABLED: 409,
  ERR_MESSAGE_MISSING: 404,
  ERR_SECRET_UNREADABLE: 500,
  ERR_WEBHOOK_NOT_VERIFIED: 400,
  ERR_STORE_UNAVAILABLE: 503,
  ERR_CLOSED: 503,
  ERR_REDIS_REQUIRED: 503,
};

/** The HTTP status of each error that exists only over HTTP. */
const OF_HTTP = {
  ERR_BAD_REQUEST: 400,
  ERR_UNAUTHENTICATED: 401,
  ERR_FORBIDDEN: 403,
  ERR_CROSS_SITE: 403,
  ERR_BUCKET_MISSING: 404,
  ERR_QUEUE_MISSING: 404,
  ERR_SENDER_MISSING: 404,
  ERR_SLOT_MISSING: 404,
  ERR_ROUTE_MISSING: 404,
  ERR_METHOD_NOT_ALLOWED: 405,
  ERR_REQUEST_TIMEOUT: 408,
  ERR_NOT_SUPPORTED: 409,
  ERR_BODY_TOO_LARGE: 413,
  ERR_PATH_TOO_LONG: 414,
  ERR_MEDIA_TYPE: 415,
  ERR_EXPECTATION_FAILED: 417,
  ERR_IDEMPOTENCY_KEY_USED: 422,
  ERR_NO_ROOM: 429,
  ERR_HEADERS_TOO_LARGE: 431,
  ERR_CLIENT_GONE: 499,
  ERR_INTERNAL: 500,
  ERR_UPGRADE_REFUSED: 501,
  ERR_UPSTREAM_UNREACHABLE: 502,
  ERR_PACKAGE_MISSING: 503,
  ERR_UPSTREAM_TIMEOUT: 504,
} as const;

export const STATUS_OF_CODE: Readonly<Record<ProblemCode, number>> = { ...OF_SLUICE, ...OF_HTTP };

/** Every value of `code` in this server's error responses. */
export type ProblemCode = ErrorCode | keyof typeof OF_HTTP;

/** The body of an error response. */
export interface Problem {
  readonly type: "about:blank";
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  /** The error code. `docs/reference/errors.md` explains each code. */
  readonly code: ProblemCode;
  readonly option?: string;
  readonly value?: unknown;
  readonly remedy?: string;
  readonly retryAfterMs?: number;
  /** The facts about a spent budget: its name, unit, amounts and the time of its next period. */
  readonly limitedBy?: string;
  readonly unit?: string;
  readonly amount?: number;
  readonly spent?: number;
  readonly resetsAt?: string;
  /** A copy of `detail`, because pages of other tools read the name `error`. */
  readonly error?: string;
}
