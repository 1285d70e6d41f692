import type { Cost } from "../../throttle/costs.ts";
import { createLru } from "../../throttle/lru.ts";
import type {
  AnsweredCall,
  CostOfCall,
  SentCall,
  SettleOfCall,
} from "../../throttle/wrap/call-defaults.ts";
import { readAnswered } from "./answer.ts";
import { counting, type CountTokens } from "./estimate.ts";

import { readBody, readRequest, type Asked } from "./request.ts";
import type { Answered } from "./tally.ts";
import type { PriceOfCall, Usage } from "./usage.ts";

/** The expected usage of a request. */
interface Expected {
  /** The tokens of the whole prompt. */
  readonly input: number;
  /** The tokens of the prompt that the provider probably reads from a cache. */
  readonly cacheRead: number;
  readonly output: number;
  /** True once answers of this model have shown their usual length. */
  readonly isOutputKnown: boolean;
}

/**
 * The usage of a call. If the answer does not state a figure, the figure is the expected one or was
 * counted here.
 */
export type Used = Required<{ readonly [Figure in keyof Usage]: number }>;

/** The amounts that a call uses, by unit, such as `tokens`. */
type Amounts = Readonly<Record<string, number>>;

/** How a provider counts tokens. */
export interface Counting {
  /**
   * Returns the amounts that the provider counts when it receives a request. If the provider counts
   * later, returns the expected amounts.
   */
  readonly before: (expected: Expected, asked: Asked) => Amounts;
  /** Returns the amounts that the provider has counted in the end. */
  readonly after: (used: Used, asked: Asked) => Amounts;
  /** True if the provider does not count cache reads in the end. */
  readonly sparesCached?: boolean;
}

export interface MeterOptions {
  readonly counting: Counting;
  /** The units that the bucket counts, and the most units of each that one call may draw. */
  readonly units: ReadonlyMap<string, number>;
  readonly countTokens: CountTokens | undefined;
  /** Computes the price of a call. Budgets count it. */
  readonly price?: PriceOfCall | undefined;
}

/** The functions in a bucket's options that compute the cost of calls. */
export interface Meter {
  readonly cost: CostOfCall;
  readonly settle: SettleOfCall;
  /** Returns the cost of a request without the ratios that were learned about its model. */
  readonly estimate: (body: unknown) => Cost | undefined;
}

/**
 * The assumed tokens of an answer if the request sets no maximum. Real answers replace this
 * assumption.
 */
const USUAL_OUTPUT = 1_000;
/**
 * The number that is added to both the counted and the estimated tokens before they are compared. A
 * short prompt can have as many tokens of structure as of text, which would distort the learned
 * factor for long prompts.
 */
const EVENED = 32;
const NOTHING_LEARNED: ReadonlyMap<string, number> = new Map();

/**
 * The most unfinished answers that are remembered. If there are more, the estimate of the oldest
 * answers is never corrected.
 */
const MOST_PENDING = 1_000;
const MOST_BOOKED = 10_000;
/**
 * The least length of an id that counts as unique. Shorter ids may repeat, such as Ollama's
 * `chatcmpl-423`.
 */
const UNIQUE_LENGTH = 20;

/** A call and its expected usage. */
interface Estimated {
  readonly asked: Asked;
  readonly expected: Expected;
  readonly mayAsk: boolean;
}

/**
 * A call whose answer the provider is still generating. A later read of the answer settles the
 * call.
 */
interface Pending {
  readonly made: Estimated;
  readonly learn: AnsweredCall["learn"];
  readonly book: AnsweredCall["book"];
}

export function createMeter({ counting: by, units, countTokens, price }: MeterOptions): Meter {
  const count = counting(countTokens);
  /**
   * The estimates of calls that are not settled yet. The map key is the list of arguments of the
   * call.
   */
  const estimated = new WeakMap<object, Estimated>();
  /** The unfinished calls by the id of their answers. */
  const pending = createLru<Pending>(MOST_PENDING);
  /** The ids of answers whose usage is already booked. */
  const booked = createLru<object>(MOST_BOOKED);

  /** A request may set a high limit that its answer hardly ever reaches, so the usual output is reserved at first. */
  function expectedUsage({ input, cacheRead, output, isOutputKnown }: Expected): Usage {
    const usual = isOutputKnown ? output : Math.min(output, USUAL_OUTPUT);
    return { input: input - cacheRead, cacheRead, output: usual };
  }

  function costOf({ asked, expected }: Estimated): Cost | undefined {
    const amounts = Object.entries(by.before(expected, asked)).flatMap(([unit, amount]) => {
      const most = units.get(unit);
      if (most === undefined) return [];
      // An estimate must not fail a call that the provider would accept, so the amount is capped.
      // The difference is settled later.
      const drawn = Math.min(Math.ceil(amount), most);
      return drawn >= 1 ? [[unit, drawn] as const] : [];
    });
    const all = { ...Object.fromEntries(amounts), ...priceOf(asked, expectedUsage(expected)) };
    return Object.keys(all).length === 0 ? undefined : all;
  }

  function amountsUsed(answered: Answered, { asked, expected }: Estimated): Amounts | undefined {
    const { usage, text, isOutputStated, isWhole } = answered;
    const { input, output, cacheRead = 0, cacheWrite = 0 } = usage;
    const isSilent = input === undefined && output === undefined && text === 0;
    if (isSilent && isWhole) return undefined;
    const seen = Math.max(text, isOutputStated ? 0 : (output ?? 0));
    const used = {
      input: input ?? expected.input,
      cacheRead,
      cacheWrite,
      output: isOutputStated && output !== undefined ? Math.max(output, isWhole ? 0 : text) : seen,
    };
    return { ...counted(by.after(used, asked)), ...priceOf(asked, used) };
  }

  /** Returns the price of a call. A price of 0 stays in it, because it must be settled too. */
  function priceOf(asked: Asked, used: Usage): Amounts {
    return price === undefined || asked === NO_PROMPT
      ? {}
      : price({ model: asked.model, usage: used });
  }

  function learn(
    { usage, isWhole, isOutputStated }: Answered,
    { asked }: Estimated,
    call: Pick<AnsweredCall, "learn">,
  ): void {
    const { input, output, cacheRead = 0, cacheWrite = 0 } = usage;
    const names = namesOf(asked);
    if (input !== undefined && asked.prompt > 0) {
      const ratio = (input + cacheRead + cacheWrite + EVENED) / (asked.prompt + EVENED);
      call.learn(names.input, ratio);
      const cacheable = cacheableOf(asked);
      if (by.sparesCached === true && cacheable > 0)
        call.learn(names.cacheRead, cacheRead / cacheable);
    }
    if (isWhole && isOutputStated && output !== undefined && asked.hasOutput) {
      call.learn(names.output, output / mostOutput(asked));
    }
  }

  async function estimateOf(
    { args, method }: Pick<SentCall, "args" | "method">,
    means: ReadonlyMap<string, number>,
  ): Promise<Estimated> {
    const { asked = NO_PROMPT, mayAsk } = await readRequest(args, count, method);
    return { asked, mayAsk, expected: expectedOf(asked, means) };
  }

  /** Returns only the amounts whose units the bucket counts. */
  function counted(amounts: Amounts): Readonly<Record<string, number>> {
    const known = Object.entries(amounts).filter(([unit]) => units.has(unit));
    return Object.fromEntries(known.map(([unit, amount]) => [unit, Math.ceil(amount)]));
  }

  /**
   * True if an answer with this id was seen before. For a read without arguments, this is the only
   * way to recognize it.
   */
  function isKnown(id: string | undefined): boolean {
    return id !== undefined && (pending.has(id) || booked.has(id));
  }

  function noteBooked(id: string | undefined): void {
    if (id !== undefined && id.length >= UNIQUE_LENGTH) booked.set(id, NOTHING_LEARNED);
  }

  const none = ({ asked }: Estimated): Readonly<Record<string, number>> => ({
    ...Object.fromEntries([...units.keys()].map((unit) => [unit, 0])),
    ...priceOf(asked, {}),
  });

  /** Settles the call that created an answer, once a later read states the usage. */
  function settleMaker(answered: Answered): void {
    const { id } = answered;
    const maker = id === undefined ? undefined : pending.get(id);
    if (id === undefined || maker === undefined || answered.isPending === true) return;
    pending.delete(id);
    noteBooked(id);
    learn(answered, maker.made, maker);
    const used = amountsUsed(answered, maker.made);
    if (used !== undefined) maker.book?.(used);
  }

  return {
    async cost(sent) {
      const call = await estimateOf(sent, await sent.learned());
      estimated.set(sent.args, call);
      return call.asked === NO_PROMPT ? undefined : costOf(call);
    },
    async settle(result, call) {
      const { args, book } = call;
      const answered = await readAnswered(result, count);
      const made = estimated.get(args) ?? (await estimateOf(call, NOTHING_LEARNED));
      if (answered === undefined) return undefined;
      if (!made.mayAsk) {
        settleMaker(answered);
        return undefined;
      }
      if (answered.isTokenCount === true) return none(made);
      // The arguments contain the id of the answer, as in `retrieve(id)`. So the call only reads a
      // stored answer.
      if (answered.id !== undefined && isGivenTo(args, answered.id)) {
        settleMaker(answered);
        return none(made);
      }
      if (answered.isPending === true && answered.id !== undefined) {
        pending.set(answered.id, { made, learn: call.learn, book });
        return undefined;
      }
      if (args.length === 0 && isKnown(answered.id)) {
        settleMaker(answered);
        return none(made);
      }
      noteBooked(answered.id);
      if (made.asked !== NO_PROMPT) learn(answered, made, call);
      const used = amountsUsed(answered, made);
      return used;
    },
    estimate(body) {
      const asked = readBody(body, count);
      if (asked === undefined) return undefined;
      return costOf({ asked, mayAsk: true, expected: expectedOf(asked, NOTHING_LEARNED) });
    },
  };
}

const NO_PROMPT: Asked = {
  model: "",
  prompt: 0,
  marked: undefined,
  maxOutput: undefined,
  answers: 1,
  hasOutput: true,
};

/** True if the arguments of a call contain the id. */
function isGivenTo(args: readonly unknown[], id: string): boolean {
  return args.some((given) => {
    if (typeof given !== "object" || given === null) return given === id;
    const { previous_response_id: _previous, ...fields } = given as Readonly<
      Record<string, unknown>
    >;
    return Object.values(fields).includes(id);
  });
}

function expectedOf(asked: Asked, means: ReadonlyMap<string, number>): Expected {
  const names = namesOf(asked);
  const outputRatio = means.get(names.output);
  const ratio = means.get(names.input) ?? 1;
  const input = asked.prompt === 0 ? 0 : Math.max(1, (asked.prompt + EVENED) * ratio - EVENED);
  return {
    input,
    cacheRead: Math.min(input, cacheableOf(asked) * (means.get(names.cacheRead) ?? 0)),
    output: asked.hasOutput ? mostOutput(asked) * (outputRatio ?? 1) : 0,
    isOutputKnown: outputRatio !== undefined,
  };
}

/**
 * Returns the tokens of the longest expected answers. The learned length is a ratio to this number.
 */
function mostOutput({ maxOutput = USUAL_OUTPUT, answers }: Asked): number {
  return maxOutput * answers;
}

/**
 * Returns the prompt tokens that the provider may cache: the tokens before the last cache mark, or
 * all tokens if there is no mark.
 */
function cacheableOf({ marked, prompt }: Asked): number {
  return marked ?? prompt;
}

interface LearnedNames {
  readonly input: string;
  readonly cacheRead: string;
  readonly output: string;
}

/**
 * Returns the names under which ratios for a model are learned. Requests with and without an output
 * limit have different names, as do requests with and without cache marks.
 */
function namesOf({ model, marked, maxOutput }: Asked): LearnedNames {
  const cacheRead = marked === undefined ? "cached" : "marked";
  const output = maxOutput === undefined ? "answer" : "output";
  return {
    input: `${model} input`,
    cacheRead: `${model} ${cacheRead}`,
    output: `${model} ${output}`,
  };
}
