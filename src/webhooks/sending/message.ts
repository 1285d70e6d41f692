/** Builds the body of a message. The body is built once, and is the same on each attempt. */
import { InvalidOptionError } from "../../core/errors.ts";
import { asJson } from "../../queue/enqueue/data.ts";

/** The most bytes of a message's data as JSON. */
const MOST_BYTES = 256 * 1_024;
/** The size limit that Standard Webhooks recommends. */
export const ADVISED_BYTES: number = 20_000;

/** Builds a body as Standard Webhooks recommends it: `{ type, timestamp, data }`. */
export function bodyOf(type: string, atMs: number, dataJson: string): string {
  return `${headOf(type, new Date(atMs).toISOString())}${dataJson}}`;
}

/**
 * Extracts the data from a body, byte for byte, for receivers that do not use Standard Webhooks.
 */
export function dataOf(type: string, body: string): string {
  // All timestamps have the same length, so any time can replace the original.
  return body.slice(headOf(type, new Date(0).toISOString()).length, -1);
}

/**
 * Combines several messages in order into one body: `{ type, timestamp, data: [{ id, type,
 * timestamp, data }, …] }`, or a list of their data.
 */
export function batchOf(
  type: string,
  messages: readonly {
    readonly id: string;
    readonly type: string;
    readonly atMs: number;
    readonly body: string;
  }[],
  isWhole: boolean,
): string {
  if (!isWhole) return `[${messages.map((each) => dataOf(each.type, each.body)).join(",")}]`;
  const list = messages.map(({ id, body }) => `{"id":${JSON.stringify(id)},${body.slice(1)}`);
  return bodyOf(type, messages[0]!.atMs, `[${list.join(",")}]`);
}

function headOf(type: string, timestamp: string): string {
  return `{"type":${JSON.stringify(type)},"timestamp":"${timestamp}","data":`;
}

/**
 * Serializes data as JSON.
 *
 * @throws {@link InvalidOptionError} for data that JSON cannot express, and for data that is too
 * large.
 */
export function jsonOf(where: string, data: unknown): string {
  const json = asJson(where, data);
  const bytes = Buffer.byteLength(json);
  if (bytes <= MOST_BYTES) return json;
  const remedy = `give at most ${MOST_BYTES} bytes of JSON, and link to anything larger`;
  throw new InvalidOptionError({ where, option: "data", value: `${bytes} bytes`, remedy });
}
