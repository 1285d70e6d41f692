/** An error that the server returned, with its `status`, `code`, `detail` and `remedy`. */
export class Problem extends Error {
  constructor(problem) {
    super(problem.detail);
    Object.assign(this, problem);
  }
}

/**
 * Sends a request and returns the JSON of the response. Throws a {@link Problem} if it fails.
 * `path` is relative to the page, because a proxy can serve the board below any path: `"api/v1/overview"`.
 */
export async function ask(path, { method = "GET", body, signal } = {}) {
  let response;
  try {
    const headers = body === undefined ? {} : { "content-type": "application/json" };
    const text = body === undefined ? undefined : JSON.stringify(body);
    response = await fetch(path, { method, headers, body: text, signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ status: 0, code: "ERR_AWAY", detail: "The server is unreachable." });
  }
  const { status } = response;
  const result = status === 204 ? undefined : await response.json().catch(() => undefined);
  if (response.ok) return result;
  throw new Problem(result ?? { status, detail: `The server returned status ${status}.` });
}

export const bucketPath = (name) => `api/v1/buckets/${encodeURIComponent(name)}`;
