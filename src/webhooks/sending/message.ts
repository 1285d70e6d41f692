/** The body of a message: written once, and the same on each attempt. */
import { InvalidOptionError } from "../../core/errors.ts";
import { asJson } from "../../queue/enqueue/data.ts";

/** The most bytes that the JSON of a message's data may have. */
const MOST_BYTES = 256 * 1_024;
/** More than what Standard Webhooks advise. */
export const ADVISED_BYTES: number = 20_000;

/** A body, as Standard Webhooks advise it: `{ type, timestamp, data }`. */
export function bodyOf(type: string, atMs: number, dataJson: string): string {
  return `${headOf(type, new Date(atMs).toISOString())}${dataJson}}`;
}

/** The data alone, byte for byte, as receivers want it that know nothing of Standard Webhooks. */
export function dataOf(type: string, body: string): string {
  // Each time has as many characters.
  return body.slice(headOf(type, new Date(0).toISOString()).length, -1);
}

/** Several messages as one, in their order: `{ type, timestamp, data: [{ id, type, timestamp, data }, …] }`, or the data of each. */
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

/** @throws {@link InvalidOptionError} for what JSON has no text of, and for too much of it. */
export function jsonOf(where: string, data: unknown): string {
  const json = asJson(where, data);
  const bytes = Buffer.byteLength(json);
  if (bytes <= MOST_BYTES) return json;
  const remedy = `give at most ${MOST_BYTES} bytes of JSON, and a link to what is more`;
  throw new InvalidOptionError({ where, option: "data", value: `${bytes} bytes`, remedy });
}
