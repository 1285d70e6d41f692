import { z } from "zod";
import { InvalidOptionError } from "../core/errors.ts";

const REMEDY = "give the id of a job";
const JOB_ID = z.string().min(1).max(1_000);

/** @throws {@link InvalidOptionError} for what can be no job's id. */
export function readJobId(where: string, id: unknown): string {
  const read = JOB_ID.safeParse(id);
  if (read.success) return read.data;
  throw new InvalidOptionError({ where, option: "id", value: id, remedy: REMEDY });
}
