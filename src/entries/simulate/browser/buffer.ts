/** Bytes with the few methods of Node's `Buffer` that scripts in memory call. */
class Bytes extends Uint8Array {
  override toString(encoding = "utf8", from = 0, to = this.length): string {
    const bytes = this.subarray(from, to);
    if (encoding !== "latin1") return new TextDecoder().decode(bytes);
    let text = "";
    // A call takes a limited number of arguments.
    for (let at = 0; at < bytes.length; at += 4_096) {
      text += String.fromCharCode(...bytes.subarray(at, at + 4_096));
    }
    return text;
  }

  /** Writes a text with one byte for each character. */
  write(text: string, from: number, count: number): number {
    for (let at = 0; at < count; at++) this[from + at] = text.charCodeAt(at);
    return count;
  }
}

/**
 * Stands for Node's `Buffer` in browsers. The build puts it into the bundle for browsers in place of the global.
 */
export const Buffer = {
  from(given: ArrayBuffer | string, encoding: string = "utf8"): Bytes {
    if (typeof given !== "string") return new Bytes(given);
    if (encoding !== "latin1") return new Bytes(new TextEncoder().encode(given));
    const bytes = new Bytes(given.length);
    bytes.write(given, 0, given.length);
    return bytes;
  },
};
