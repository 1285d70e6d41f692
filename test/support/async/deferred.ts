export interface Deferred {
  readonly promise: Promise<void>;
  readonly resolve: () => void;
}

/** A promise that the test resolves. */
export function deferred(): Deferred {
  let resolve = (): void => {};
  const promise = new Promise<void>((settle) => (resolve = settle));
  return { promise, resolve: () => resolve() };
}
