const PER_ROUND_TRIP = 1_000;
/** The number of concurrent batches. The server stores some batches while others are written; more are not faster. */
const AT_ONCE = 4;

/** Stores numbered jobs in batches of a thousand, in no particular order. */
export async function storeJobs(
  jobs: number,
  store: (data: number[]) => Promise<unknown>,
): Promise<void> {
  let next = 0;

  async function storeSome(): Promise<void> {
    while (next < jobs) {
      const first = next;
      next = Math.min(jobs, first + PER_ROUND_TRIP);
      await store(Array.from({ length: next - first }, (_, index) => first + index));
    }
  }

  await Promise.all(Array.from({ length: AT_ONCE }, storeSome));
}
