import { createHash } from "node:crypto";
import * as libraries from "../../lua/libraries.ts";
import * as runtime from "../../lua/runtime.ts";
import { tableOf, type Commands, type Value } from "../../lua/runtime.ts";
import type { MakeScript, TranslatedScript } from "../../lua/script.ts";
import { translate } from "../../lua/translate.ts";

/** The Lua scripts that clients have sent. A script is translated to JavaScript when it is loaded. */
export interface Scripts {
  /** Returns the digest by which `run` finds the script. */
  load(source: string): string;
  has(digest: string): boolean;
  /** @throws NOSCRIPT when no client has sent this script. */
  run(digest: string, keys: string[], args: string[], commands: Commands): Value;
  clear(): void;
}

const parts = { ...runtime, ...libraries };
/** All servers of a process share the translations, because each takes some milliseconds. */
const translated = new Map<string, TranslatedScript>();

export function createScripts(): Scripts {
  const loaded = new Set<string>();

  return {
    load(source) {
      const digest = createHash("sha1").update(source, "latin1").digest("hex");
      if (!translated.has(digest)) translated.set(digest, compile(source));
      loaded.add(digest);
      return digest;
    },
    has: (digest) => loaded.has(digest),
    run(digest, keys, args, commands) {
      if (!loaded.has(digest)) throw new Error("NOSCRIPT No matching script. Please use EVAL.");
      try {
        return runtime.first(translated.get(digest)!(tableOf(keys), tableOf(args), commands));
      } catch (error) {
        throw new Error(`${messageOf(error as Error)} script: ${digest}, on @user_script:1.`, {
          cause: error,
        });
      }
    },
    clear: () => loaded.clear(),
  };
}

function compile(source: string): TranslatedScript {
  let text: string;
  try {
    text = translate(source);
  } catch (error) {
    throw new Error(`ERR Error compiling script (new function): ${(error as Error).message}`, {
      cause: error,
    });
  }
  // oxlint-disable-next-line no-implied-eval -- contains names and numbers of the script, and its texts as literals
  return (new Function(`return ${text}`)() as MakeScript)(parts);
}

function messageOf({ message }: Error): string {
  if (/^\$c\.\w+ is not a function/.test(message))
    return "ERR Unknown Redis command called from script";
  return /^[A-Z]+ /.test(message) ? message : `ERR user_script:1: ${message}`;
}
