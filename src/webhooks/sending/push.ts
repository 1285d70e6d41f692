import { createHash } from "node:crypto";
import { Agent, request, type Dispatcher } from "undici";
import * as z from "zod";
import { LONGEST_MS, readOptions, wholeNumber } from "../../core/input/options.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import type { Handler, OwnedJobContext } from "../../queue/worker/context.ts";
import { HandOver } from "../../queue/worker/outcome.ts";
import { limitFrom, writeReceipt } from "../../queue/worker/held/receipt.ts";
import { markWithoutCalls } from "../../throttle/slot/job-slot.ts";
import { ALLOW, createJudge } from "../guard/addresses.ts";
import { createConnector, type Resolve } from "../guard/connector.ts";
import { EXTRA_HEADERS, urlSchema } from "../guard/target.ts";
import { readSecret, SECRETS } from "../signing/secrets.ts";
import { signWith } from "../signing/sign.ts";

export interface PushOptions {
  /** Where the jobs go: `"https://jobs.example.com/run"`. */
  readonly url: string;
  /** The secret that signs each request, or several during a rotation, the newest first. */
  readonly secret: string | readonly string[];
  /** More headers for each request. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** The time limit of each request, from the connection to the end of the response. Defaults to 30,000 ms. */
  readonly timeoutMs?: number | undefined;
  /**
   * After a 202, how long the receiver may take until it completes, fails or extends the job over HTTP. Then the job
   * runs again. Defaults to 300,000 ms.
   */
  readonly lockMs?: number | undefined;
  /** Addresses and networks that are not public, to which jobs may go: `["10.0.0.0/8"]`. Defaults to none. */
  readonly allow?: readonly string[] | undefined;
  /**
   * Returns the addresses of a host name. Each of them is checked before it is used. Defaults to the system's resolver.
   */
  readonly resolve?: Resolve | undefined;
  /** Whether the URL may be `http://`. Defaults to false. */
  readonly http?: boolean | undefined;
}

const SHAPE = {
  secret: SECRETS,
  headers: EXTRA_HEADERS.optional(),
  timeoutMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional(),
  lockMs: wholeNumber(1_000, 86_400_000, "milliseconds").optional(),
  allow: ALLOW.optional(),
  http: z.boolean({ error: "give true or false" }).optional(),
  resolve: z
    .custom<Resolve>((value) => typeof value === "function", {
      error: "give a function of a host name that resolves to a list of addresses",
    })
    .optional(),
};

/** The most bytes of a response that are read. A longer response has no result. */
const MOST_RESULT_BYTES = 1_000_000;
/** The most characters of an error response that its job's failure quotes. */
const MOST_QUOTED = 200;
const ID_LENGTH = 22;

/**
 * Returns a handler that sends each job to a URL, signed as a Standard Webhook: `sluice.worker(queue, push({ url,
 * secret }))`. The receiver checks the signature with `verify()` or a library of its language.
 *
 * The response decides what happens to the job. A 2xx ends it, with the JSON of the response as its result. A 202 means
 * that the receiver goes on with the job, and ends it later with its receipt. Any other response fails the attempt; a
 * `Retry-After` is obeyed. Redirects are not followed.
 *
 * @throws {@link InvalidOptionError} when an option can never work.
 */
export function push<Data = unknown, Result = unknown>(
  options: PushOptions,
): Handler<Data, Result> {
  const where = "push()";
  const { http = false, allow } = (options ?? {}) as Partial<PushOptions>;
  const judge = createJudge(ALLOW.safeParse(allow).data);
  const schema = z.strictObject({ ...SHAPE, url: urlSchema({ http: http === true, judge }) });
  const read = readOptions(where, schema, options, ([name]) => name === "secret") as PushOptions;
  const { url, secret, headers, resolve, timeoutMs = 30_000, lockMs = 300_000 } = read;
  const keys = [secret].flat().map((each) => readSecret(where, "secret", each, "standard"));
  if (keys.some(({ half }) => half === "public")) {
    const remedy = "a whpk_ key only verifies; sign with its whsk_ secret";
    throw new InvalidOptionError({ where, option: "secret", value: "whpk_***", remedy });
  }
  const connect = createConnector({ judge, resolve, connectMs: timeoutMs });
  const dispatcher = new Agent({ connect, allowH2: false });

  return markWithoutCalls<Handler<Data, Result>>(async (job, context) => {
    const { token, limitMs, slot } = context as OwnedJobContext;
    const { result: _result, endedAtMs: _ended, startByMs: _by, startedAtMs: _at, ...facts } = job;
    const limit = limitFrom(slot.atMs, limitMs);
    const receipt = writeReceipt({ id: job.id, token, limit });
    const { attempt } = context;
    const body = JSON.stringify({ receipt, ...facts, attempt, lockMs });
    const id = idOf(job);
    const style = "standard";
    const signing = { id, at: new Date(), body, keys, style, headerPrefix: undefined } as const;
    const signed = signWith({ ...signing, type: undefined });
    const response = await request(url, {
      method: "POST",
      headers: { ...headers, "content-type": "application/json", ...signed },
      body,
      dispatcher,
      signal: AbortSignal.any([context.signal, AbortSignal.timeout(timeoutMs)]),
      headersTimeout: timeoutMs,
      bodyTimeout: timeoutMs,
    });
    const { statusCode: status } = response;
    const text = await textOf(response);
    if (status === 202) return new HandOver({ lockMs }) as never;
    if (status >= 200 && status < 300) return resultIn(text) as Result;
    const quoted = text === undefined ? "" : `: ${text.slice(0, MOST_QUOTED)}`;
    const message = `${new URL(url).host} answered with status ${status}${quoted}`;
    throw Object.assign(new Error(message), { status, headers: response.headers });
  });
}

/** Returns an id that is the same for each attempt of a job, so that receivers recognize a repeat. */
function idOf({
  id,
  enqueuedAtMs,
}: {
  readonly id: string;
  readonly enqueuedAtMs: number;
}): string {
  const digest = createHash("sha256").update(`${enqueuedAtMs} ${id}`).digest("base64url");
  return `job_${digest.slice(0, ID_LENGTH)}`;
}

/** Reads a response. Returns undefined if it is too long. */
async function textOf({ body }: Dispatcher.ResponseData): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of body) {
    length += (chunk as Buffer).length;
    if (length > MOST_RESULT_BYTES) return undefined;
    chunks.push(chunk as Buffer);
  }
  return Buffer.concat(chunks).toString();
}

/** Returns the JSON of a response. Undefined for a response without JSON, such as "ok". */
function resultIn(text: string | undefined): unknown {
  try {
    return text === undefined || text === "" ? undefined : JSON.parse(text);
  } catch {
    return undefined;
  }
}
