/** Counts what is under way, and tells when nothing is. */
export interface Running {
  begin(): void;
  end(): void;
  /** Resolves as soon as nothing is under way: true; or after `timeoutMs`: false. */
  untilNone(timeoutMs: number): Promise<boolean>;
}

export function createRunning(): Running {
  let count = 0;
  let onNone = (): void => {};

  return {
    begin() {
      count += 1;
    },
    end() {
      count -= 1;
      if (count === 0) onNone();
    },
    untilNone(timeoutMs) {
      if (count === 0) return Promise.resolve(true);
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
