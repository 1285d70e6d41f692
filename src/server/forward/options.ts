import type { IncomingHttpHeaders } from "node:http";
import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";
import { isBaseUrl, LONGEST_MS, NAME, readOptions, wholeNumber } from "../../core/input/options.ts";
import type { Key } from "../../core/key-path.ts";
import { assertMemberNames, unknownMember } from "../../core/policy/pool.ts";
import type { Bucket } from "../../throttle/bucket.ts";
import type { Pool } from "../../throttle/bucket/pool.ts";

/** A request that will be forwarded. */
export interface ForwardedRequest {
  readonly method: string;
  /** The path below the forward, including the query: `"/v1/chat/completions"`. */
  readonly path: string;
  readonly headers: Readonly<IncomingHttpHeaders>;
}

/**
 * Selects the tenant of a request. `{ header }` selects the value of that header, which is then
 * required. `"path"` selects the first path segment, which is then not forwarded. A function returns
 * the tenant. Values of headers with credentials are hashed.
 */
export type ForwardKey =
  | "path"
  | { readonly header: string }
  | ((request: ForwardedRequest) => Key | undefined);

/** The destination of requests, and the bucket of the destination. */
export interface Upstream {
  /** The URL below which requests are sent: `"https://api.openai.com"`. */
  readonly to: string;
  /**
   * The bucket or pool that each request draws from, or its name. It sets the costs: with a preset
   * of `sluice/llm`, costs are tokens. Defaults to the bucket with the name of the forward.
   */
  readonly bucket?: Bucket | Pool | string | undefined;
  /**
   * Headers that replace the client's headers, for example the credentials of the upstream. They
   * are never logged.
   */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /**
   * The longest wait for a slot. A client may ask for a shorter wait with `x-sluice-max-wait`.
   * Defaults to no limit.
   */
  readonly maxWaitMs?: number | undefined;
  /**
   * How long the upstream may send nothing, before and during its response. The client then gets a
   * 504. Raise this limit for models that think longer. The wait for a slot does not count.
   * Defaults to 600000 (10 minutes).
   */
  readonly timeoutMs?: number | undefined;
}

/** A reverse proxy that holds each request until its slot. */
export interface ForwardOptions extends Omit<Upstream, "to"> {
  /**
   * The URL below which requests are sent. In a list, each upstream is used when all upstreams
   * before it reject a request or do not respond.
   */
  readonly to: string | readonly (string | Upstream)[];
  /**
   * The path below which clients send requests. Defaults to `"/"` followed by the name of the
   * forward.
   */
  readonly at?: string | undefined;
  /** The key that each request draws with. Defaults to no key. */
  readonly key?: ForwardKey | undefined;
  /**
   * The addresses of the members, if the bucket is a pool: each request goes to the member of its
   * slot. Headers here are added to those of the forward. Members without an address get their
   * requests at `to`. A name that a pool of this process does not have is rejected.
   */
  readonly members?:
    | Readonly<Record<string, string | Pick<Upstream, "to" | "headers">>>
    | undefined;
  /**
   * How often a rejected request is sent in total, if its body has at most 1 MiB. Defaults to 3.
   */
  readonly tries?: number | undefined;
}

/** The options of a forward, with all defaults filled in. */
export interface ReadForward {
  readonly name: string;
  readonly at: string;
  readonly key: ForwardKey | undefined;
  readonly tries: number;
  readonly upstreams: readonly ReadUpstream[];
}

/** Where requests are sent. */
export interface ReadAddress {
  readonly origin: string;
  /** The prefix of each request's path, without a trailing slash. */
  readonly base: string;
  readonly headers: readonly (readonly [string, string])[];
}

export interface ReadUpstream extends ReadAddress {
  readonly bucket: Bucket | string;
  /** The addresses of the members of a pool, by name. */
  readonly members: ReadonlyMap<string, ReadAddress>;
  /** The members with separate headers, and so with separate credentials. */
  readonly accounts: ReadonlySet<string>;
  readonly maxWaitMs: number | undefined;
  readonly timeoutMs: number;
}

/** The default timeout. It is long, because a model may think for minutes. */
const TIMEOUT_MS = 600_000;

const A_URL = {
  error: 'give a URL with http or https and without a user, such as "https://api.openai.com"',
};
const A_BUCKET = { error: "give a bucket of this sluice, or its name" };
const A_KEY = { error: 'give "path", { header: "x-tenant" }, or a function of the request' };
const HEADERS = { error: "give the headers as texts of ASCII, by name" };
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** Matches paths that other parts of the server use. */
const TAKEN =
  /^\/(?:$|(?:api|jobs|healthz|readyz|metrics|assets|v1\/(?:buckets|slots|queues|draw))(?:\/|$))/;

const URL_TEXT = z.string(A_URL).refine(isBaseUrl, A_URL);
const OWN = {
  bucket: z
    .union(
      [
        NAME,
        z.custom<Bucket>(
          (value) => typeof (value as Partial<Bucket> | null)?.tryDraw === "function",
          A_BUCKET,
        ),
      ],
      A_BUCKET,
    )
    .optional(),
  headers: z
    .record(
      z.string().regex(HEADER_NAME, HEADERS),
      z.string(HEADERS).regex(/^[\t\x20-\x7e]*$/, HEADERS),
      HEADERS,
    )
    .optional(),
  maxWaitMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional(),
  timeoutMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional(),
};
const UPSTREAM = z.strictObject({ to: URL_TEXT, ...OWN });
const MEMBER = z.strictObject({ to: URL_TEXT, headers: OWN.headers });
const FORWARD = z.strictObject({
  to: z.union([URL_TEXT, z.array(z.union([URL_TEXT, UPSTREAM])).min(1, A_URL)], A_URL),
  at: z
    .string()
    .regex(/^(?:\/[\w.~-]+)+$/, { error: 'give a path such as "/openai"' })
    .refine((path) => !TAKEN.test(path) && !/\/\.\.?(?:\/|$)/.test(path), {
      error: "give another path: the server itself answers below this one",
    })
    .optional(),
  key: z
    .union(
      [
        z.literal("path"),
        z.strictObject({ header: z.string().regex(HEADER_NAME, A_KEY) }),
        z.custom<Exclude<ForwardKey, string | object>>(
          (value) => typeof value === "function",
          A_KEY,
        ),
      ],
      A_KEY,
    )
    .optional(),
  tries: wholeNumber(1, 100, "tries").optional(),
  members: z.record(z.string(), z.union([URL_TEXT, MEMBER], A_URL)).optional(),
  ...OWN,
});

/**
 * Rejects addresses of members that the pool of a forward does not have. Checks only buckets that this process declares,
 * because others may not be known yet.
 *
 * @throws {@link InvalidOptionError} when a forward names a member that its pool does not have.
 */
export function assertMembers(
  where: string,
  forwards: readonly ReadForward[],
  membersOf: (bucket: string) => readonly string[] | undefined,
): void {
  for (const { name: forward, upstreams } of forwards) {
    for (const { bucket, members } of upstreams) {
      const name = typeof bucket === "string" ? bucket : bucket.name;
      const known = membersOf(name);
      const value = [...members.keys()].find((each) => known?.includes(each) === false);
      if (known === undefined || value === undefined) continue;
      const remedy =
        known.length === 0
          ? `bucket "${name}" is no pool; leave the members out, or give the name of a pool`
          : unknownMember(value, known);
      throw new InvalidOptionError({
        where: whereOf(where, forward),
        option: "members",
        value,
        remedy,
      });
    }
  }
}

function whereOf(where: string, forward: string): string {
  return `${where} of forward ${JSON.stringify(forward)}`;
}

/** @throws {@link InvalidOptionError} when an option can never work. */
export function readForwards(
  where: string,
  given: Readonly<Record<string, ForwardOptions>>,
): readonly ReadForward[] {
  const read = Object.entries(given).map(([name, options]) => readForward(where, name, options));
  for (const [index, { name, at }] of read.entries()) {
    const other = read.slice(0, index).find((each) => each.at === at);
    if (other === undefined) continue;
    const remedy = `forward "${other.name}" has the same path; give each its own`;
    throw new InvalidOptionError({ where, option: `forward.${name}.at`, value: at, remedy });
  }
  return read;
}

function readForward(where: string, name: string, given: ForwardOptions): ReadForward {
  const at = whereOf(where, name);
  assertMemberNames(at, given);
  const read = readOptions(at, FORWARD, given) as ForwardOptions;
  const { to, bucket = name, headers, maxWaitMs, timeoutMs, key, tries = 3 } = read;
  const { members = {} } = read;
  const path = read.at ?? `/${name}`;
  if (read.at === undefined && (!/^[\w.~-]+$/.test(name) || TAKEN.test(path))) {
    const remedy =
      'give a path by the option "at": the name cannot be one, or the server itself has it';
    throw new InvalidOptionError({ where, option: "forward", value: name, remedy });
  }
  const all = (typeof to === "string" ? [to] : to).map((each) =>
    typeof each === "string" ? { to: each } : each,
  );
  if (all.length > 1 && read.members !== undefined) {
    const remedy =
      "the members of a pool have addresses; give `to` one address, or leave the members out";
    throw new InvalidOptionError({ where: at, option: "members", value: read.members, remedy });
  }
  const withHeaders = Object.entries(members).filter(
    ([, each]) => typeof each === "object" && Object.keys(each.headers ?? {}).length > 0,
  );
  const accounts = new Set(withHeaders.map(([member]) => member));
  const upstreams = all.map((each) => {
    const own = together(headers, each.headers);
    const given = { bucket, maxWaitMs, timeoutMs, ...each, headers: own };
    return { ...readUpstream(given, addressesOf(members, own)), accounts };
  });
  return { name, at: path, key, tries, upstreams };
}

/** Returns headers with lower-case names. Those of `own` replace those of `common`, however their names are written. */
function together(
  common: Readonly<Record<string, string>> = {},
  own: Readonly<Record<string, string>> = {},
): Readonly<Record<string, string>> {
  const all = [...Object.entries(common), ...Object.entries(own)];
  return Object.fromEntries(all.map(([name, value]) => [name.toLowerCase(), value]));
}

function addressesOf(
  members: NonNullable<ForwardOptions["members"]>,
  common: Readonly<Record<string, string>>,
): ReadonlyMap<string, ReadAddress> {
  const entries = Object.entries(members).map(([name, given]) => {
    const { to, headers } = typeof given === "string" ? { to: given } : given;
    return [name, readAddress(to, together(common, headers))] as const;
  });
  return new Map(entries);
}

function readAddress(to: string, headers: Readonly<Record<string, string>> = {}): ReadAddress {
  const { origin, pathname } = new URL(to);
  return {
    origin,
    base: pathname.replace(/\/+$/, ""),
    headers: Object.entries(headers),
  };
}

function readUpstream(
  given: Upstream,
  members: ReadUpstream["members"],
): Omit<ReadUpstream, "accounts"> {
  const { to, bucket, headers, maxWaitMs, timeoutMs = TIMEOUT_MS } = given;
  const of = typeof bucket === "object" && "member" in bucket ? bucket.name : bucket!;
  return { ...readAddress(to, headers), bucket: of, members, maxWaitMs, timeoutMs };
}
