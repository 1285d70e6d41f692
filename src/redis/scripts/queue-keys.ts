export interface QueueName {
  readonly prefix: string;
  readonly queue: string;
}

/** What the names of all keys of a queue begin with, BullMQ's and ours: one hash tag for each queue. */
export function baseOf({ prefix, queue }: QueueName): string {
  return `${prefix}:{${queue}}:`;
}
