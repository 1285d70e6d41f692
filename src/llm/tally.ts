/** Adds up what the events of an answer say, until its end or until it is left. */
import type { CountTokens } from "./estimate.ts";
import { tokensIn } from "./texts.ts";
import { isTokenCount, mergeUsage, usageIn, type Usage } from "./usage.ts";

/** What an answer came to. */
export interface Answered {
  /** The id under which the provider stores the answer, such as `"resp_1"`. */
  readonly id?: string | undefined;
  /** Whether the provider goes on with the answer after this call: a later read states what it used. */
  readonly isPending?: boolean;
  /** Whether it only states how many tokens a text has. */
  readonly isTokenCount?: boolean;
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
  let isCount = false;
  let stored: Stored = {};

  return {
    see(event) {
      isCount ||= isTokenCount(event);
      stored = { ...stored, ...storedIn(event) };
      const stated = usageIn(event);
      if (stated !== undefined) {
        usage = mergeUsage(usage, stated);
        if (stated.output !== undefined) isOutputStated = !isBeginning(event);
      }
      text += textIn(event, count);
    },
    end: (isWhole) => ({
      usage,
      text,
      isWhole,
      isOutputStated,
      id: stored.id,
      isPending: stored.isUnfinished === true && Object.keys(usage).length === 0,
      isTokenCount: isCount && Object.keys(usage).length === 0,
    }),
  };
}

interface Stored {
  readonly id?: string;
  readonly isUnfinished?: boolean;
}

const UNFINISHED = /^(?:queued|in_progress|requires_action|cancelling)$/;

/** The id and the state of the answer that an event is, or belongs to. */
function storedIn(event: unknown): Stored {
  for (const name of ["response", "data", "interaction", undefined]) {
    const { id, status, background } = fieldsIn(event, name);
    if (typeof id !== "string" || id === "") continue;
    if (typeof status !== "string") return { id };
    // A stream that was left early says last that the answer is in progress.
    const isUnfinished = UNFINISHED.test(status) && background !== false;
    return { id, isUnfinished };
  }
  return {};
}

function fieldsIn(event: unknown, name: string | undefined): Readonly<Record<string, unknown>> {
  // To read a property of a result that streams may begin the stream.
  if (typeof event !== "object" || event === null || "textStream" in event) return {};
  const part: unknown = name === undefined ? event : (event as Record<string, unknown>)[name];
  return typeof part === "object" && part !== null ? (part as Record<string, unknown>) : {};
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
  const texts = [...TEXTS.map((name) => parts[name]), ...textsOfOllama(event)];
  return texts.reduce((tokens: number, each) => tokens + tokensIn(each, count), 0);
}

/** Each of Ollama's events says whether it is the last. */
function textsOfOllama(event: unknown): readonly unknown[] {
  const { done, response } = fieldsIn(event, undefined);
  if (typeof done !== "boolean") return [];
  return [response, fieldsIn(event, "message")["content"]];
}
