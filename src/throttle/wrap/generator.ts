/** Calls that go on after they have returned: a generator runs until its end, and so does its call. */

/** What a generator and an async one have in common. */
interface AnyGenerator {
  readonly next: (...given: unknown[]) => unknown;
  readonly return: (...given: unknown[]) => unknown;
  readonly throw: (...given: unknown[]) => unknown;
}

/** Called once, when a generator has ended. */
interface GeneratorEnds {
  /** It has run to its end. */
  readonly returned: (value: unknown) => void;
  readonly threw: (error: unknown) => void;
  /** It was left before its end, or nobody can reach it any more. */
  readonly left: () => void;
}

/** Ends the calls of generators that were collected as garbage before they had ended. */
const unreachable = new FinalizationRegistry<() => void>((end) => end());

/** Whether a value is a generator, of either kind, or all that one is: streams and cursors are not. */
export function isGenerator(value: unknown): value is AnyGenerator {
  if (typeof value !== "object" || value === null) return false;
  try {
    const { next, return: end, throw: fail } = value as Partial<AnyGenerator>;
    const isOne = [next, end, fail].every((each) => typeof each === "function");
    return isOne && (Symbol.asyncIterator in value || Symbol.iterator in value);
  } catch {
    // A proxy that throws.
    return false;
  }
}

/**
 * Tells when a generator has ended. It stays the same object, with all else that it has. If the signal is aborted, it
 * throws the signal's reason, and runs its `finally`.
 */
export function watchGenerator<Generator extends AnyGenerator>(
  generator: Generator,
  { returned, threw, left }: GeneratorEnds,
  signal: AbortSignal | undefined,
): Generator {
  const own = { next: generator.next, return: generator.return, throw: generator.throw };
  const state: State = { hasEnded: false };
  leftIfUnreachable(generator, state, left);

  function end(tell: () => void): void {
    unreachable.unregister(state);
    endOnce(state, tell);
  }

  function onStep(name: keyof AnyGenerator, step: unknown): void {
    const { done, value } = step as IteratorResult<unknown>;
    if (done === true) end(name === "next" ? () => returned(value) : left);
  }

  function onError(error: unknown): void {
    end(() => threw(error));
  }

  /** Runs its `finally`; what that throws has nobody to go to. */
  function stop(): void {
    onError(signal?.reason);
    try {
      const stopping: unknown = Reflect.apply(own.return, generator, [undefined]);
      if (stopping instanceof Promise) stopping.catch(() => {});
    } catch {
      // A sync generator that runs at this moment, or a finally that throws.
    }
  }

  function step(name: keyof AnyGenerator, given: unknown[]): unknown {
    const isAsync = Symbol.asyncIterator in generator;
    if (!state.hasEnded && signal?.aborted === true) {
      stop();
      if (isAsync) return Promise.reject(signal.reason as Error);
      throw signal.reason;
    }
    try {
      const result: unknown = Reflect.apply(own[name], generator, given);
      if (isAsync) return followed(name, result);
      onStep(name, result);
      return result;
    } catch (error) {
      onError(error);
      throw error;
    }
  }

  async function followed(name: keyof AnyGenerator, result: unknown): Promise<unknown> {
    try {
      const settled = await (signal === undefined ? result : untilAborted(signal, () => result));
      onStep(name, settled);
      return settled;
    } catch (error) {
      if (signal?.aborted === true && error === signal.reason) stop();
      else onError(error);
      throw error;
    }
  }

  for (const name of ["next", "return", "throw"] as const) {
    const value = (...given: unknown[]): unknown => step(name, given);
    Object.defineProperty(generator, name, { value, configurable: true, writable: true });
  }
  return generator;
}

interface State {
  hasEnded: boolean;
}

/** A function of its own: a closure among those of a generator would keep it, and it would never be unreachable. */
function leftIfUnreachable(generator: AnyGenerator, state: State, left: () => void): void {
  unreachable.register(generator, () => endOnce(state, left), state);
}

function endOnce(state: State, tell: () => void): void {
  if (state.hasEnded) return;
  state.hasEnded = true;
  tell();
}

/** What `run` returns; rejects with the signal's reason if it is aborted before. */
export async function untilAborted(signal: AbortSignal, run: () => unknown): Promise<unknown> {
  signal.throwIfAborted();
  let fail = (): void => {};
  const aborted = new Promise<never>((_resolve, reject) => {
    fail = () => reject(signal.reason);
    signal.addEventListener("abort", fail, { once: true });
  });
  try {
    return await Promise.race([run(), aborted]);
  } finally {
    signal.removeEventListener("abort", fail);
  }
}
