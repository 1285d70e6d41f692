/** The turn of one call among the calls that use the same names. */
export interface Turn {
  /** Resolves once the turns of all earlier calls have ended. */
  readonly begun: Promise<unknown>;
  /** Lets the next call begin. Safe to call again. */
  readonly end: () => void;
}

/**
 * Keeps calls in the order in which they were made, although preparing them takes different times. Returns a function
 * that takes the next turn for some names.
 */
export function createCallOrder(): (names: readonly string[]) => Turn {
  const last = new Map<string, Promise<unknown>>();
  return (names) => {
    let end = (): void => {};
    const ended = new Promise<void>((resolve) => (end = resolve));
    const begun = Promise.all(names.map(async (name) => last.get(name)));
    const over = begun
      .then(() => ended)
      .then(() => {
        for (const name of names) if (last.get(name) === over) last.delete(name);
      });
    for (const name of names) last.set(name, over);
    return { begun, end };
  };
}
