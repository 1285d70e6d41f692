/** Counts what is under way, and tells when nothing is. */
export interface Running {
  track<T>(work: Promise<T>): Promise<T>;
  /** Resolves as soon as nothing is under way: true; or after `timeoutMs`: false. */
  untilNone(timeoutMs: number): Promise<boolean>;
}

export function createRunning(): Running {
  const works = new Set<Promise<unknown>>();
  let onNone = (): void => {};

  return {
    async track(work) {
      works.add(work);
      try {
        return await work;
      } finally {
        works.delete(work);
        if (works.size === 0) onNone();
      }
    },
    untilNone(timeoutMs) {
      if (works.size === 0) return Promise.resolve(true);
      return new Promise((resolve) => {
        const timer = setTimeout(() => resolve(false), timeoutMs);
        onNone = () => {
          clearTimeout(timer);
          resolve(true);
        };
      });
    },
  };
}
