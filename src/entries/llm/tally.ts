/**
 * Adds up the usage and text in the events of an answer, until the answer ends or its caller stops
 * reading.
 */
import type { CountTokens } from "./estimate.ts";
import { tokensIn } from "./count-tokens.ts";
import { addUsageOf, isTokenCount, usageIn, type Usage } from "./usage.ts";

/** The result of reading an answer. */
export interface Answered {
  /** The id under which the provider stores the answer, such as `"resp_1"`. */
  readonly id?: string | undefined;
  /**
   * True if the provider continues to generate the answer after this call. A later read of the
   * answer states the usage.
   */
  readonly isPending?: boolean;
  /** True if the answer only states how many tokens a text has. */
  readonly isTokenCount?: boolean;
  readonly usage: Usage;
  /** The number of tokens in the received text, counted here. */
  readonly text: number;
  /** True if the answer was read to its end. */
  readonly isWhole: boolean;
  /**
   * True if the stated output tokens cover the whole answer. The first events of a stream state
   * only the output until then.
   */
  readonly isOutputStated: boolean;
}

export interface Tally {
  see(event: unknown): void;
  end(isWhole: boolean): Answered;
}

/**
 * The fields of an event that contain answer text. A complete answer also has text in other fields.
 */
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
        usage = addUsageOf(event, stated, usage);
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

/** Returns the id and the status of the answer that an event contains or belongs to. */
function storedIn(event: unknown): Stored {
  for (const name of ["response", "data", "interaction", undefined]) {
    const { id, status, background } = fieldsIn(event, name);
    if (typeof id !== "string" || id === "") continue;
    if (typeof status !== "string") return { id };
    // If the reader stops early, the last status is still "in progress".
    const isUnfinished = UNFINISHED.test(status) && background !== false;
    return { id, isUnfinished };
  }
  return {};
}

function fieldsIn(event: unknown, name: string | undefined): Readonly<Record<string, unknown>> {
  // In a result with `textStream`, reading another property would start the stream.
  if (typeof event !== "object" || event === null || "textStream" in event) return {};
  const part: unknown = name === undefined ? event : (event as Record<string, unknown>)[name];
  return typeof part === "object" && part !== null ? (part as Record<string, unknown>) : {};
}

/**
 * True for events that state only the usage at the beginning. Anthropic's first event states the
 * whole input, but only the first token of the output.
 */
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

/** Returns the text fields of an Ollama event. Every such event has a boolean `done`. */
function textsOfOllama(event: unknown): readonly unknown[] {
  const { done, response } = fieldsIn(event, undefined);
  if (typeof done !== "boolean") return [];
  return [response, fieldsIn(event, "message")["content"]];
}
