import type { Handler } from "sluice";

/** A handler in a separate file, for `sluice.worker(queue, "examples/count-words.ts")`. */
const countWords: Handler<{ text: string }, number> = async (job, { log }) => {
  await log(`attempt of job ${job.id}`);
  return job.data.text.split(/\s+/).length;
};

export default countWords;
