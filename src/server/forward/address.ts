import { HttpProblem } from "../problem.ts";

/** Matches a path segment that a server may read as `.` or `..`, in any spelling. */
const DOTS = /^(?:\.|%2e){1,2}$/i;
/**
 * Matches characters that URLs do not contain, such as a backslash, which some servers read as a
 * slash.
 */
const NEVER_IN_A_PATH = /[^!$&-;=@A-Z_a-z~%[\]?|^`{}"<>]/;

/**
 * Returns the path of a request below its forward, as the client wrote it: `"/v1/models?limit=5"`.
 * The path is appended as text to the upstream's path, so the host is always the upstream's.
 *
 * @throws {@link HttpProblem} 400 for a path that could lead elsewhere: an absolute URL, `..` in
 * any spelling, a backslash.
 */
export function pathBelow(url: string, at: string): string {
  const rest = url.slice(at.length);
  const [path = "", ...query] = rest.split("?");
  const isBelow = url.startsWith(at) && (path === "" || path.startsWith("/"));
  const isPlain = !NEVER_IN_A_PATH.test(rest) && !/%(?:2f|5c|00)/i.test(path);
  // Drop the part after a ";" before the check, because some servers drop such parameters before
  // they look for dots.
  const parts = path.split("/").map((part) => part.split(/;|%3b/i)[0]!);
  if (!isBelow || !isPlain || parts.some((part) => DOTS.test(part))) {
    throw new HttpProblem(
      "ERR_BAD_REQUEST",
      "Only plain paths are forwarded: no absolute URL, no .. or . as a part, no backslash, no %2f.",
    );
  }
  const search = query.length === 0 ? "" : `?${query.join("?")}`;
  return `${path === "" ? "/" : path}${search}`;
}

/** Splits a path into its first segment and the rest. */
export function splitFirst(path: string): { readonly first: string; readonly rest: string } {
  const [, first = "", rest = ""] = /^\/([^/?]*)(.*)$/.exec(path) ?? [];
  return { first: decode(first), rest: rest.startsWith("/") ? rest : `/${rest}` };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw new HttpProblem("ERR_BAD_REQUEST", "The path holds a % that begins no character.");
  }
}
