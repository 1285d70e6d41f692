import type { Tap } from "./response-stream.ts";

/** A longer line is not read. */
const LONGEST_LINE = 65_536;
/**
 * How the data of an event begins that reports an error without being named so; OpenRouter has an id and the like before
 * it.
 */
const BEGINS_AS_ERROR =
  /^\{\s*(?:"type"\s*:\s*"(?:error|response\.failed)"|"error"\s*:|[^{}[\]]{0,500},\s*"error"\s*:\s*\{)/;

/**
 * Looks for an error in a stream of server-sent events, which begins with a 200: LLM APIs report an overload so in the
 * middle of an answer. Calls back with the data of the first one.
 */
export function watchEvents(onError: (data: unknown) => void): Tap {
  const decoder = new TextDecoder();
  let rest: string | undefined = "";
  let isNamedError = false;

  function read(line: string): void {
    if (line === "") isNamedError = false;
    else if (/^event: ?error$/.test(line)) isNamedError = true;
    else if (line.startsWith("data:")) {
      const data = line.slice(5).trimStart();
      if (isNamedError || BEGINS_AS_ERROR.test(data)) report(data);
    }
  }

  function report(data: string): void {
    try {
      onError(JSON.parse(data));
      rest = undefined;
    } catch {
      // No JSON: nothing is known of it.
    }
  }

  return {
    pass(bytes) {
      if (rest === undefined) return;
      const lines = (rest + decoder.decode(bytes, { stream: true })).split(/\r?\n/);
      const last = lines.pop()!;
      for (const line of lines) if (rest !== undefined) read(line);
      if (rest !== undefined) rest = last.length > LONGEST_LINE ? "" : last;
    },
    end() {},
    cut() {},
  };
}
