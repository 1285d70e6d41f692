/** What has to be undone at the end, latest first, whatever else fails. */
export interface Cleanup {
  add(undo: () => Promise<void>): void;
  [Symbol.asyncDispose](): Promise<void>;
}

export function createCleanup(): Cleanup {
  const undos: (() => Promise<void>)[] = [];
  return {
    add: (undo) => void undos.push(undo),
    async [Symbol.asyncDispose]() {
      const failures: unknown[] = [];
      for (let undo = undos.pop(); undo !== undefined; undo = undos.pop()) {
        await undo().catch((error: unknown) => failures.push(error));
      }
      if (failures.length > 0) throw failures[0];
    },
  };
}
