/** Reads the options and the tenant that a client's request contains for the proxy itself. */
import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { InvalidOptionError } from "../../core/errors.ts";
import { LONGEST_MS, PRIORITIES, type Priority } from "../../core/input/options.ts";
import type { Key } from "../../core/key-path.ts";
import { splitFirst } from "./address.ts";
import type { ForwardKey } from "./options.ts";

export interface ClientHeaders {
  readonly maxWaitMs: number | undefined;
  readonly priority: Priority | undefined;
}

const WHERE = "the headers of the request";
const CREDENTIALS = /^(?:authorization|cookie|(?:x-|x-goog-)?api-key)$/;

/** @throws {@link InvalidOptionError} when a header for this server has an invalid value. */
export function readClientHeaders({ headers }: IncomingMessage): ClientHeaders {
  const maxWait = headers["x-sluice-max-wait"];
  const priority = headers["x-sluice-priority"];
  const maxWaitMs = maxWait === undefined ? undefined : Number(maxWait);
  if (
    maxWaitMs !== undefined &&
    !(/^\d+$/.test(String(maxWait)) && maxWaitMs >= 1 && maxWaitMs <= LONGEST_MS)
  ) {
    const remedy = `give a whole number of ms from 1 to ${LONGEST_MS}`;
    throw new InvalidOptionError({
      where: WHERE,
      option: "x-sluice-max-wait",
      value: maxWait,
      remedy,
    });
  }
  if (priority !== undefined && !PRIORITIES.includes(priority as Priority)) {
    const remedy = `give one of ${PRIORITIES.join(", ")}`;
    throw new InvalidOptionError({
      where: WHERE,
      option: "x-sluice-priority",
      value: priority,
      remedy,
    });
  }
  return { maxWaitMs, priority: priority as Priority | undefined };
}

/**
 * Returns the key of a request, and the request's path without the key.
 *
 * @throws {@link InvalidOptionError} when the request contains no key.
 */
export function keyOf(
  by: ForwardKey | undefined,
  { method = "GET", headers }: IncomingMessage,
  path: string,
): { readonly key: Key | undefined; readonly path: string } {
  if (by === undefined) return { key: undefined, path };
  if (typeof by === "function") return { key: by({ method, path, headers }), path };
  if (by === "path") {
    const { first, rest } = splitFirst(path);
    if (first !== "") return { key: first, path: rest };
    const remedy = "name the key as the first part of the path";
    throw new InvalidOptionError({ where: "the request", option: "path", value: path, remedy });
  }
  const name = by.header.toLowerCase();
  const value = headers[name];
  if (value === undefined || value === "") {
    const remedy = "send it with the tenant of the request";
    throw new InvalidOptionError({ where: WHERE, option: name, value, remedy });
  }
  const text = String(value);
  // Hash credentials, because Redis must not store them.
  if (!CREDENTIALS.test(name)) return { key: text, path };
  return { key: createHash("sha256").update(text).digest("base64url"), path };
}
