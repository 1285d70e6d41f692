import type { Cost } from "../throttle/costs.ts";
import { createLru } from "../throttle/lru.ts";
import type {
  AnsweredCall,
  CostOfCall,
  SentCall,
  SettleOfCall,
} from "../throttle/wrap/call-defaults.ts";
import { readAnswered } from "./answer.ts";
import { counting, type CountTokens } from "./estimate.ts";

import { readBody, readRequest, type Asked } from "./request.ts";
import type { Answered } from "./tally.ts";
import type { Usage } from "./usage.ts";

/** The expected usage of a request. */
interface Expected {
  /** All of the prompt. */
  readonly input: number;
  /** The part of it that is probably read from a cache. */
  readonly cacheRead: number;
  readonly output: number;
  /** True once answers of this model have shown how long they are. */
  readonly isOutputKnown: boolean;
}

/**
 * The usage of a call. A figure that the answer does not state is the expected one, or was counted
 * here.
 */
export type Used = Required<{ readonly [Figure in keyof Usage]: number }>;

/** Amounts by unit. */
type Amounts = Readonly<Record<string, number>>;

/** How a provider counts tokens. */
export interface Counting {
  /** What the provider counts when a request comes in. If it counts later, the expected result. */
  readonly before: (expected: Expected, asked: Asked) => Amounts;
  /** What the provider has counted in the end. */
  readonly after: (used: Used, asked: Asked) => Amounts;
  /** True if cache reads do not count in the end. */
  readonly sparesCached?: boolean;
}

export interface MeterOptions {
  readonly counting: Counting;
  /** The units that the bucket counts, and the most of each that one call may draw. */
  readonly units: ReadonlyMap<string, number>;
  readonly countTokens: CountTokens | undefined;
}

/** The part of a bucket's options that knows what its calls cost. */
export interface Meter {
  readonly cost: CostOfCall;
  readonly settle: SettleOfCall;
  /** The cost of a request before anything was learned about its model. */
  readonly estimate: (body: unknown) => Cost | undefined;
}

/** The assumed tokens of an answer whose request sets no maximum, until real answers show more. */
const USUAL_OUTPUT = 1_000;
/**
 * Added to both the counted and the estimated tokens before they are compared. A short prompt can
 * have as many tokens of structure as of text, which would distort the factor for long prompts.
 */
const EVENED = 32;
const NOTHING_LEARNED: ReadonlyMap<string, number> = new Map();

/** The most unfinished answers that are remembered. Beyond that, the estimate stays. */
const MOST_PENDING = 1_000;
const MOST_BOOKED = 10_000;
/** Shorter ids may repeat, such as Ollama's `chatcmpl-423`. */
const UNIQUE_LENGTH = 20;

/** A call and its expected usage. */
interface Estimated {
  readonly asked: Asked;
  readonly expected: Expected;
  readonly mayAsk: boolean;
}

/** A call whose answer is still being generated. A later read of the answer settles it. */
interface Pending {
  readonly made: Estimated;
  readonly learn: AnsweredCall["learn"];
  readonly book: AnsweredCall["book"];
}

export function createMeter({ counting: by, units, countTokens }: MeterOptions): Meter {
  const count = counting(countTokens);
  /** The estimate of each call, by its arguments, until the call is settled. */
  const estimated = new WeakMap<object, Estimated>();
  /** Unfinished calls, by the id of their answer. */
  const pending = createLru<Pending>(MOST_PENDING);
  /** The ids of answers whose usage is already booked. */
  const booked = createLru<object>(MOST_BOOKED);

  function costOf({ asked, expected }: Estimated): Cost | undefined {
    const amounts = Object.entries(by.before(expected, asked)).flatMap(([unit, amount]) => {
      const most = units.get(unit);
      if (most === undefined) return [];
      // An estimate must not fail a call that the provider would accept. The difference is settled
      // later.
      const drawn = Math.min(Math.ceil(amount), most);
      return drawn >= 1 ? [[unit, drawn] as const] : [];
    });
    return amounts.length === 0 ? undefined : Object.fromEntries(amounts);
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
    return by.after(used, asked);
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

  /** The usage in the units that the bucket counts. */
  function counted(amounts: Amounts): Readonly<Record<string, number>> {
    const known = Object.entries(amounts).filter(([unit]) => units.has(unit));
    return Object.fromEntries(known.map(([unit, amount]) => [unit, Math.ceil(amount)]));
  }

  /**
   * True if an answer was seen before. This is the only way to recognize a read that has no
   * arguments.
   */
  function isKnown(id: string | undefined): boolean {
    return id !== undefined && (pending.has(id) || booked.has(id));
  }

  function noteBooked(id: string | undefined): void {
    if (id !== undefined && id.length >= UNIQUE_LENGTH) booked.set(id, NOTHING_LEARNED);
  }

  const none = (): Readonly<Record<string, number>> =>
    Object.fromEntries([...units.keys()].map((unit) => [unit, 0]));

  /** Settles the call that made an answer, once a later read states the usage. */
  function settleMaker(answered: Answered): void {
    const { id } = answered;
    const maker = id === undefined ? undefined : pending.get(id);
    if (id === undefined || maker === undefined || answered.isPending === true) return;
    pending.delete(id);
    noteBooked(id);
    learn(answered, maker.made, maker);
    const used = amountsUsed(answered, maker.made);
    if (used !== undefined) maker.book?.(counted(used));
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
      if (answered.isTokenCount === true) return none();
      // The function was given the id of its answer, as in `retrieve(id)`: the call is a read.
      if (answered.id !== undefined && isGivenTo(args, answered.id)) {
        settleMaker(answered);
        return none();
      }
      if (answered.isPending === true && answered.id !== undefined) {
        pending.set(answered.id, { made, learn: call.learn, book });
        return undefined;
      }
      if (args.length === 0 && isKnown(answered.id)) {
        settleMaker(answered);
        return none();
      }
      noteBooked(answered.id);
      if (made.asked !== NO_PROMPT) learn(answered, made, call);
      const used = amountsUsed(answered, made);
      return used === undefined ? undefined : counted(used);
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

/** The longest possible answer. The learned length is a share of it. */
function mostOutput({ maxOutput = USUAL_OUTPUT, answers }: Asked): number {
  return maxOutput * answers;
}

/** The tokens that may be cached: the marked ones, or all where caching needs no marks. */
function cacheableOf({ marked, prompt }: Asked): number {
  return marked ?? prompt;
}

interface LearnedNames {
  readonly input: string;
  readonly cacheRead: string;
  readonly output: string;
}

/**
 * The names under which facts about a model are learned. Requests with and without an output limit
 * are separate, as are those with and without cache marks.
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
