/** Starts the server processes of the parts about HTTP. */
import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Answers } from "./service-process.ts";

const PROCESS = fileURLToPath(new URL("./service-process.ts", import.meta.url));

export interface Servers {
  readonly ready: Answers["ready"];
  ask<Name extends keyof Answers>(name: Name): Promise<Answers[Name]>;
  end(): Promise<void>;
}

/**
 * `role` is "upstream", or, for the compared servers, the URL of their upstream. `build` is the folder of the built
 * package that serves, and defaults to this working tree.
 */
export async function start(redisUrl: string, role: string, build?: string): Promise<Servers> {
  const args = build === undefined ? [redisUrl, role] : [redisUrl, role, build];
  const child = fork(PROCESS, args, { execArgv: [...process.execArgv, "--expose-gc"] });
  const died = once(child, "exit").then(([code]) => {
    throw new Error(`A process of the bench ended with ${String(code)}`);
  });
  const answerOf = async (name: keyof Answers): Promise<Partial<Answers>> => {
    for (;;) {
      const [message] = (await Promise.race([once(child, "message"), died])) as [Partial<Answers>];
      if (name in message) return message;
    }
  };
  const { ready } = (await answerOf("ready")) as Pick<Answers, "ready">;
  return {
    ready,
    async ask(name) {
      const answer = answerOf(name);
      child.send(name);
      return (await answer)[name] as never;
    },
    async end() {
      const ended = once(child, "exit");
      child.disconnect();
      await ended;
    },
  };
}
