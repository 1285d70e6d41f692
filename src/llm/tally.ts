/** Adds up what the events of an answer say, until its end or until it is left. */
import type { CountTokens } from "./estimate.ts";
import { tokensIn } from "./texts.ts";
import { mergeUsage, usageIn, type Usage } from "./usage.ts";

/** What an answer came to. */
export interface Answered {
  readonly usage: Usage;
  /** The tokens of the texts that came, as counted here. */
  readonly text: number;
  /** Whether it came to its end. */
  readonly isWhole: boolean;
  /** Whether the usage of the output is that of all of it: the beginning of a stream states that of its own. */
  readonly isOutputStated: boolean;
}

export interface Tally {
  see(event: unknown): void;
  end(isWhole: boolean): Answered;
}

/** Parts of an event that hold text of the answer; a whole answer has its texts elsewhere too. */
const TEXTS = ["choices", "delta", "candidates", "contentBlockDelta", "content_block"] as const;

export function createTally(count: CountTokens): Tally {
  let usage: Usage = {};
  let text = 0;
  let isOutputStated = false;

  return {
    see(event) {
      const stated = usageIn(event);
      if (stated !== undefined) {
        usage = mergeUsage(usage, stated);
        if (stated.output !== undefined) isOutputStated = !isBeginning(event);
      }
      text += textIn(event, count);
    },
    end: (isWhole) => ({ usage, text, isWhole, isOutputStated }),
  };
}

/** Anthropic's first event states the whole input, and the first token of the output. */
function isBeginning(event: unknown): boolean {
  const { type } = event as { readonly type?: unknown };
  return type === "message_start" || type === "response.created" || type === "response.in_progress";
}

function textIn(event: unknown, count: CountTokens): number {
  if (typeof event === "string") return count(event);
  if (typeof event !== "object" || event === null) return 0;
  const parts = event as Readonly<Record<string, unknown>>;
  return TEXTS.reduce((tokens, name) => tokens + tokensIn(parts[name], count), 0);
}
