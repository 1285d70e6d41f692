import { createRequire } from "node:module";

/** One webhook as GitHub sends it. */
export interface GithubEvent {
  /** As in `x-github-event`: `"push"`. */
  readonly name: string;
  readonly payload: unknown;
}

interface Definition {
  readonly name: string;
  readonly examples: readonly unknown[];
}

/** All example webhooks that GitHub's community has collected: 329 of them, of 10 kB on average. */
export function githubEvents(): readonly GithubEvent[] {
  // The package is one JSON file, which its types take for a module.
  const require = createRequire(import.meta.url);
  const definitions = require("@octokit/webhooks-examples") as readonly Definition[];
  return definitions.flatMap(({ name, examples }) =>
    examples.map((payload) => ({ name, payload })),
  );
}
