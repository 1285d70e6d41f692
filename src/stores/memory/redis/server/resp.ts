import type { Table, Value } from "../../lua/runtime.ts";

/** The wire protocol of Redis, version 2: https://redis.io/docs/latest/develop/reference/protocol-spec/. */

/** Reads requests from bytes that arrive in pieces. One character of a string is one byte. */
export function createRequestReader(): (bytes: string) => string[][] {
  let rest = "";

  return (bytes) => {
    rest += bytes;
    const requests: string[][] = [];
    let at = 0;
    for (;;) {
      const read = rest[at] === "*" ? readArray(rest, at) : readInline(rest, at);
      if (read === undefined) break;
      at = read.next;
      if (read.request.length > 0) requests.push(read.request);
    }
    rest = rest.slice(at);
    return requests;
  };
}

interface Read {
  readonly request: string[];
  readonly next: number;
}

function readArray(text: string, start: number): Read | undefined {
  let end = text.indexOf("\r\n", start);
  if (end < 0) return undefined;
  const count = lengthOf(text.slice(start + 1, end), "multibulk");
  const request: string[] = [];
  for (let index = 0; index < count; index++) {
    const at = end + 2;
    end = text.indexOf("\r\n", at);
    if (end < 0) return undefined;
    if (text[at] !== "$") throw new Error(`ERR Protocol error: expected '$', got '${text[at]!}'`);
    const size = lengthOf(text.slice(at + 1, end), "bulk");
    const from = end + 2;
    end = from + size;
    if (text.length < end + 2) return undefined;
    request.push(text.slice(from, end));
  }
  return { request, next: end + 2 };
}

function lengthOf(digits: string, what: string): number {
  if (/^\d{1,10}$/.test(digits)) return Number(digits);
  throw new Error(`ERR Protocol error: invalid ${what} length`);
}

/**
 * Reads a request of words in one line, as people type it. Each HTTP request has a line that begins with one of the
 * words in `HTTP`, as Redis knows, too: a page in a browser could send commands in the body of a request.
 */
function readInline(text: string, start: number): Read | undefined {
  const end = text.indexOf("\n", start);
  if (end < 0) return undefined;
  const request = text.slice(start, end).split(/\s+/).filter(Boolean);
  if (HTTP.has(request[0]?.toLowerCase() ?? "")) {
    throw new Error("ERR Protocol error: this is an HTTP request");
  }
  return { request, next: end + 1 };
}

const HTTP: ReadonlySet<string> = new Set(["post", "host:"]);

/** Writes a reply. A list ends before its first nil, and a number loses its fraction. */
export function writeReply(value: Value): string {
  switch (typeof value) {
    case "string":
      return `$${value.length}\r\n${value}\r\n`;
    case "number":
      return `:${Math.trunc(value) || 0}\r\n`;
    case "object":
      return writeTable(value);
    default:
      return value === true ? ":1\r\n" : "$-1\r\n";
  }
}

/** The reply of a blocking command or a transaction that has no result. */
export const NIL_LIST = "*-1\r\n";

function writeTable(table: Table): string {
  const { $err: error, $ok: ok } = table;
  if (error !== undefined) return writeError(error as string);
  if (ok !== undefined) return `+${ok as string}\r\n`;
  const end = table.a.indexOf(undefined);
  const items = end < 0 ? table.a : table.a.slice(0, end);
  let text = `*${items.length}\r\n`;
  for (const item of items) text += writeReply(item);
  return text;
}

export function writeError(message: string): string {
  const line = message.replaceAll(/[\r\n]+/g, " ");
  return `-${/^[A-Z]+ /.test(line) ? line : `ERR ${line}`}\r\n`;
}
