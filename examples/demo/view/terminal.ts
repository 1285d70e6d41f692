import process from "node:process";
import type { WriteStream } from "node:tty";
import { stripVTControlCharacters, styleText } from "node:util";

const ESCAPE = "\x1b";

type Colour = (text: string) => string;

/** Terminal colours, or plain text if the terminal has no colours or NO_COLOR is set. */
export interface Paint {
  readonly strong: Colour;
  readonly faint: Colour;
  readonly good: Colour;
  readonly bad: Colour;
  readonly calls: Colour;
  readonly backlog: Colour;
  readonly cap: Colour;
}

export function createPaint(output: Partial<WriteStream>): Paint {
  const hasColours = output.isTTY === true && output.hasColors?.() === true;
  const colour =
    (format: Parameters<typeof styleText>[0]): Colour =>
    (text) =>
      hasColours && text !== "" ? styleText(format, text, { validateStream: false }) : text;
  return {
    strong: colour("bold"),
    faint: colour("dim"),
    good: colour("green"),
    bad: colour(["red", "bold"]),
    calls: colour("cyan"),
    backlog: colour("blue"),
    cap: colour("yellow"),
  };
}

export function visibleLength(text: string): number {
  return stripVTControlCharacters(text).length;
}

/** Cuts a line to a width without breaking its colour codes. */
function fit(line: string, width: number): string {
  if (visibleLength(line) <= width) return line;
  let left = width - 1;
  const [start = "", ...rest] = line.split(ESCAPE);
  const head = take(start);
  const cut = rest.map((piece) => {
    const [code = ""] = /^\[[0-9;]*m/.exec(piece) ?? [];
    return ESCAPE + code + take(piece.slice(code.length));
  });
  return `${head}${cut.join("")}…`;

  function take(text: string): string {
    const taken = text.slice(0, left);
    left -= taken.length;
    return taken;
  }
}

/** An area of the terminal that is redrawn in place. */
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

  /** Clears the screen. The terminal has rewrapped the lines, so their positions are unknown. */
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
  // Shows the cursor again, however the demo ends.
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
      // Uses a single write, so that the terminal never shows a half-drawn frame.
      output.write(back + text + CLEAR_BELOW);
      drawn = lines.length;
    },
    close,
  };
}
