import process from "node:process";
import type { WriteStream } from "node:tty";
import { fit } from "./paint.ts";

/** A part of the terminal that is drawn over in place. */
export interface Screen {
  readonly columns: number;
  readonly rows: number;
  draw(lines: readonly string[]): void;
  close(): void;
}

const HIDE_CURSOR = "\x1b[?25l";
const SHOW_CURSOR = "\x1b[?25h";
const CLEAR_ALL = "\x1b[2J\x1b[H";
const CLEAR_LINE_END = "\x1b[K";
const CLEAR_BELOW = "\x1b[J";

export function openScreen(output: WriteStream): Screen {
  let drawn = 0;
  let isOpen = true;
  output.write(HIDE_CURSOR);

  /** The terminal has wrapped the lines anew, so nobody knows where they are. */
  function onResize(): void {
    output.write(CLEAR_ALL);
    drawn = 0;
  }

  function close(): void {
    if (!isOpen) return;
    isOpen = false;
    output.off("resize", onResize);
    process.off("exit", close);
    output.write(SHOW_CURSOR);
  }

  output.on("resize", onResize);
  // However the demo ends, the user gets the cursor back.
  process.on("exit", close);

  return {
    get columns() {
      return output.columns;
    },
    get rows() {
      return output.rows;
    },
    draw(lines) {
      const back = drawn === 0 ? "" : `\x1b[${drawn}A\r`;
      const text = lines.map((line) => `${fit(line, output.columns)}${CLEAR_LINE_END}\n`).join("");
      // One write, so that no half of a picture shows.
      output.write(back + text + CLEAR_BELOW);
      drawn = lines.length;
    },
    close,
  };
}
