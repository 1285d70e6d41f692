import * as z from "zod";
import { InvalidOptionError } from "../core/errors.ts";

const REMEDY = "give the id of a job";
const JOB_ID = z.string().min(1).max(1_000);
/** BullMQ's ids: a number, or for a run of a recurring job its schedule's name and time. */
const SHAPE = /^(\d{1,20}|repeat:[^:]{1,256}:\d{1,20})$/;

/**
 * The id, or undefined if no job can have it: a job's key in Redis ends with its id, so one such as
 * `meta` would name what belongs to the queue itself.
 *
 * @throws {@link InvalidOptionError} for what is no id at all.
 */
export function readJobId(where: string, id: unknown): string | undefined {
  const read = JOB_ID.safeParse(id);
  if (read.success) return SHAPE.test(read.data) ? read.data : undefined;
  throw new InvalidOptionError({ where, option: "id", value: id, remedy: REMEDY });
}
