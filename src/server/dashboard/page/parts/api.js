/** Asks the server. A problem that it answers is thrown, with its `status`, `code`, `detail` and `remedy`. */
export class Problem extends Error {
  constructor(said) {
    super(said.detail);
    Object.assign(this, said);
  }
}

/** `path` is relative to the page, which may lie below any path: `"api/v1/overview"`. */
export async function ask(path, { method = "GET", body, signal } = {}) {
  let answer;
  try {
    const headers = body === undefined ? {} : { "content-type": "application/json" };
    const text = body === undefined ? undefined : JSON.stringify(body);
    answer = await fetch(path, { method, headers, body: text, signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ status: 0, code: "ERR_AWAY", detail: "The server does not answer." });
  }
  const said = answer.status === 204 ? undefined : await answer.json().catch(() => undefined);
  if (answer.ok) return said;
  throw new Problem(
    said ?? { status: answer.status, detail: `The server answered ${answer.status}.` },
  );
}

export const bucketPath = (name) => `api/v1/buckets/${encodeURIComponent(name)}`;
