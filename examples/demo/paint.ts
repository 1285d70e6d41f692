import { stripVTControlCharacters, styleText } from "node:util";
import type { WriteStream } from "node:tty";

const ESCAPE = "\x1b";

type Colour = (text: string) => string;

/** Colours for a terminal; without any where it has none, or where NO_COLOR is set. */
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

/** Cuts a line to a width, and lets its colours end as they should. */
export function fit(line: string, width: number): string {
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
