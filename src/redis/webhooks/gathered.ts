/** More at once would keep others from the server for long. */
const MOST = 50;

/**
 * Gathers what is asked within one turn of the event loop, and asks it together: attempts begin and end several at a time,
 * and a script for each of them took a quarter of what an attempt costs.
 */
export function gathered<Input, Output>(
  askAll: (inputs: readonly Input[]) => Promise<readonly Output[]>,
): (input: Input) => Promise<Output> {
  interface Waiting {
    readonly input: Input;
    readonly resolve: (output: Output) => void;
    readonly reject: (error: unknown) => void;
  }
  let waiting: Waiting[] = [];

  function ask(): void {
    const all = waiting;
    waiting = [];
    for (let from = 0; from < all.length; from += MOST) void askSome(all.slice(from, from + MOST));
  }

  async function askSome(some: readonly Waiting[]): Promise<void> {
    try {
      const outputs = await askAll(some.map(({ input }) => input));
      for (const [at, { resolve }] of some.entries()) resolve(outputs[at]!);
    } catch (error) {
      for (const { reject } of some) reject(error);
    }
  }

  return (input) =>
    new Promise((resolve, reject) => {
      if (waiting.length === 0) setImmediate(ask);
      waiting.push({ input, resolve, reject });
    });
}
