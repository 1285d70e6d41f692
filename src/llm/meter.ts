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

/** What a request is estimated to use. */
interface Expected {
  /** All of the prompt. */
  readonly input: number;
  /** What of it is likely read from a cache. */
  readonly cacheRead: number;
  readonly output: number;
  /** Whether answers of this model have shown how long they are. */
  readonly isOutputKnown: boolean;
}

/** What a call used; what its answer did not state is as expected, or as counted here. */
export type Used = Required<{ readonly [Figure in keyof Usage]: number }>;

/** Amounts by unit. */
type Amounts = Readonly<Record<string, number>>;

/** How a provider counts. */
export interface Counting {
  /** What it counts when a request comes in, or what the call is expected to come to if it counts then. */
  readonly before: (expected: Expected, asked: Asked) => Amounts;
  /** What it has counted in the end. */
  readonly after: (used: Used, asked: Asked) => Amounts;
  /** Whether what is read from a cache does not count in the end. */
  readonly sparesCached?: boolean;
}

export interface MeterOptions {
  readonly counting: Counting;
  /** The units that the bucket counts, and the most that one call may draw of each. */
  readonly units: ReadonlyMap<string, number>;
  readonly countTokens: CountTokens | undefined;
}

/** The part of a bucket's options that knows what its calls cost. */
export interface Meter {
  readonly cost: CostOfCall;
  readonly settle: SettleOfCall;
  /** The cost of a request, before anything was learned of its model. */
  readonly estimate: (body: unknown) => Cost | undefined;
}

/** The tokens of an answer whose length a request does not bound, until answers have shown more. */
const USUAL_OUTPUT = 1_000;
/**
 * Tokens that are added to what was counted and to what was estimated, before the two are compared: the form of a short
 * prompt can take as much as its text, and would otherwise be taken for a factor of long ones.
 */
const EVENED = 32;
const NOTHING_LEARNED: ReadonlyMap<string, number> = new Map();

/** How many answers that are still being made are known at once; of more, the estimate stays. */
const MOST_PENDING = 1_000;
const MOST_BOOKED = 10_000;
/** Servers that repeat ids, such as Ollama's `chatcmpl-423`, have shorter ones. */
const UNIQUE_LENGTH = 20;

/** A call, and what it is expected to use. */
interface Estimated {
  readonly asked: Asked;
  readonly expected: Expected;
  readonly mayAsk: boolean;
}

/** A call whose answer is still being made: a later read of the answer settles it. */
interface Pending {
  readonly made: Estimated;
  readonly learn: AnsweredCall["learn"];
  readonly book: AnsweredCall["book"];
}

export function createMeter({ counting: by, units, countTokens }: MeterOptions): Meter {
  const count = counting(countTokens);
  /** By the arguments of each call, until it is settled. */
  const estimated = new WeakMap<object, Estimated>();
  /** By the id of the answer. */
  const pending = createLru<Pending>(MOST_PENDING);
  /** The ids of answers that were booked. */
  const booked = createLru<object>(MOST_BOOKED);

  function costOf({ asked, expected }: Estimated): Cost | undefined {
    const amounts = Object.entries(by.before(expected, asked)).flatMap(([unit, amount]) => {
      const most = units.get(unit);
      if (most === undefined) return [];
      // An estimate may not make a call fail that the provider would let pass; what is missing is settled.
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

  /** What the tokens of a call come to, of the units that the bucket counts. */
  function counted(amounts: Amounts): Readonly<Record<string, number>> {
    const known = Object.entries(amounts).filter(([unit]) => units.has(unit));
    return Object.fromEntries(known.map(([unit, amount]) => [unit, Math.ceil(amount)]));
  }

  /** Whether an answer was seen before. For a call without arguments, only this shows that it is a read. */
  function isKnown(id: string | undefined): boolean {
    return id !== undefined && (pending.has(id) || booked.has(id));
  }

  function noteBooked(id: string | undefined): void {
    if (id !== undefined && id.length >= UNIQUE_LENGTH) booked.set(id, NOTHING_LEARNED);
  }

  const none = (): Readonly<Record<string, number>> =>
    Object.fromEntries([...units.keys()].map((unit) => [unit, 0]));

  /** Settles the call that made an answer, once a read of the answer states what it used. */
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
      // A function that got the id of its answer, such as `retrieve(id)`, has read it.
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

/** Whether the arguments of a call name the id. */
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

/** How long an answer may be; what is learned of its true length is a part of that. */
function mostOutput({ maxOutput = USUAL_OUTPUT, answers }: Asked): number {
  return maxOutput * answers;
}

/** What a cache may hold: what is marked, or all where caches need no marks. */
function cacheableOf({ marked, prompt }: Asked): number {
  return marked ?? prompt;
}

interface LearnedNames {
  readonly input: string;
  readonly cacheRead: string;
  readonly output: string;
}

/** What is learned of a model: apart, where requests bound their answers and mark what to cache, and where they do not. */
function namesOf({ model, marked, maxOutput }: Asked): LearnedNames {
  const cacheRead = marked === undefined ? "cached" : "marked";
  const output = maxOutput === undefined ? "answer" : "output";
  return {
    input: `${model} input`,
    cacheRead: `${model} ${cacheRead}`,
    output: `${model} ${output}`,
  };
}
