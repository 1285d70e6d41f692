import { isIP } from "node:net";
import * as z from "zod";
import type { JudgeAddress } from "./addresses.ts";

const LONGEST_URL = 2_048;
const MOST_HEADERS = 32;
const LONGEST_VALUE = 4_096;
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$/;
/**
 * A header value: visible ASCII and Latin-1, with spaces and tabs inside. A line break would start
 * another header.
 */
const VALUE = /^[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?$/;
/** The form of a host name, with an optional trailing dot. */
const HOST = /^(?=.{1,254}$)(?:[^.]{1,63}\.)*[^.]{1,63}\.?$/;
/** Headers that frame, route or sign the request. Tenants may not set them. */
const RESERVED =
  /^(?:host|content-type|content-length|content-encoding|transfer-encoding|accept-encoding|connection|keep-alive|te|trailer|upgrade|expect|via|forwarded|x-forwarded-.*|webhook-.*|proxy-.*|x-hub-signature.*|x-github-(?:delivery|event)|stripe-signature)$/;

/** The URLs that a sender accepts. */
export interface TargetRules {
  /** Whether `http://` URLs are allowed. */
  readonly http: boolean;
  /**
   * Decides whether an address in the URL itself is allowed. Resolved addresses are checked at each
   * attempt. Defaults to allowing all.
   */
  readonly judge?: JudgeAddress | undefined;
  /** The origin of the receiver of `sluice dev`. Its URLs are allowed. */
  readonly devReceiver?: string | undefined;
}

/**
 * The schema of an endpoint's URL. The check uses the parsed URL, in which `0x7f000001` and `127.1`
 * become `127.0.0.1`.
 *
 * @internal
 */
export function urlSchema({ http, judge, devReceiver }: TargetRules): z.ZodType<string> {
  const scheme = http ? "https:// or http://" : "https://";
  return z
    .string({ error: `give a URL that begins with ${scheme}` })
    .max(LONGEST_URL, { error: `give at most ${LONGEST_URL} characters` })
    .superRefine((text, context) => {
      const isDev = URL.canParse(text) && new URL(text).origin === devReceiver;
      const message =
        problemOf(text, { http: http || isDev, scheme }) ??
        (isDev ? undefined : problemOfAddress(text, judge));
      if (message !== undefined) context.addIssue({ code: "custom", message });
    });
}

function problemOf(
  text: string,
  { http, scheme }: { readonly http: boolean; readonly scheme: string },
): string | undefined {
  if (!URL.canParse(text)) return `give a URL that begins with ${scheme}`;
  const { protocol, username, password, hostname, port, hash } = new URL(text);
  if (protocol === "http:" && !http)
    return "give an https:// URL, or declare the sender with http: true";
  if (protocol !== "https:" && protocol !== "http:") return `give a URL that begins with ${scheme}`;
  if (username !== "" || password !== "")
    return "leave the user out of the URL; give a header instead";
  if (hash !== "") return "leave out the part after #, which is never sent";
  if (!hostname.startsWith("[") && !HOST.test(hostname)) {
    return "give a URL with a host, in parts of 1 to 63 characters, 253 in all";
  }
  if (port === "0") return "give a port from 1 to 65535";
  return undefined;
}

/** Host names that RFC 6761 reserves for the loopback interface. */
const LOCALHOST = /^(?:.*\.)?localhost\.?$/;
const LOOPBACK = ["127.0.0.1", "::1"];

function problemOfAddress(text: string, judge: JudgeAddress = () => true): string | undefined {
  const { hostname } = new URL(text);
  const host = hostname.replace(/^\[(.*)\]$/, "$1");
  const addresses = LOCALHOST.test(host) ? LOOPBACK : [host];
  const [first] = addresses as [string];
  if (isIP(first) === 0 || addresses.some(judge)) return undefined;
  return `give a host with a public address, or declare the sender with allow: ["${first}"]`;
}

/**
 * The schema of the headers that a tenant adds.
 *
 * @internal
 */
export const EXTRA_HEADERS: z.ZodType<Readonly<Record<string, string>>> = z
  .record(z.string(), z.string({ error: "give strings" }), {
    error: "give headers, a string by each name",
  })
  .superRefine((headers, context) => {
    const message = problemOfHeaders(headers);
    if (message !== undefined) context.addIssue({ code: "custom", message });
  });

function problemOfHeaders(headers: Readonly<Record<string, string>>): string | undefined {
  const names = Object.keys(headers);
  if (names.length > MOST_HEADERS) return `give at most ${MOST_HEADERS} headers`;
  if (new Set(names.map((name) => name.toLowerCase())).size < names.length) {
    return "give each header once";
  }
  const bad = names.find((name) => !TOKEN.test(name));
  if (bad !== undefined) return "give names of letters, digits and hyphens";
  const own = names.find((name) => RESERVED.test(name.toLowerCase()));
  if (own !== undefined) return `leave out ${own}, which the sender sets itself`;
  const wrong = names.find(
    (name) => headers[name]!.length > LONGEST_VALUE || !VALUE.test(headers[name]!),
  );
  if (wrong === undefined) return undefined;
  if (/[\r\n]$/.test(headers[wrong]!)) {
    return `leave out the line break at the end of ${wrong}, which a value has that was read from a file`;
  }
  return `give ${wrong} one line of 1 to ${LONGEST_VALUE} visible characters`;
}
