/** Draws calls as dots on a time line. Calls that start at nearly the same time are stacked. */

/** A dot on the time line. */
export interface Dot {
  readonly atMs: number;
  readonly tenant: number;
  readonly isRefused: boolean;
}

export interface Colors {
  readonly tenants: readonly string[];
  readonly refused: string;
  readonly line: string;
  readonly text: string;
}

/** The distance between dots, in CSS pixels. */
const STEP = 4;
const RADIUS = 1.6;
/** Room for the number above a stack that is cut off. */
const HEADROOM = 14;
export const HEIGHT = 92;
const SECOND_MS = 1_000;

export function drawDots(
  canvas: HTMLCanvasElement,
  dots: readonly Dot[],
  given: {
    readonly endMs: number;
    /** Dots after this time are not drawn yet. */
    readonly nowMs: number;
    readonly colors: Colors;
  },
): void {
  const { endMs, nowMs, colors } = given;
  const width = canvas.clientWidth;
  const scale = globalThis.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(HEIGHT * scale);
  const context = canvas.getContext("2d")!;
  context.scale(scale, scale);
  context.font = "11px system-ui, sans-serif";
  const xOf = (atMs: number): number => (atMs / endMs) * width;
  const base = HEIGHT - 1;

  context.strokeStyle = colors.line;
  context.lineWidth = 1;
  for (let atMs = 0; atMs <= endMs; atMs += SECOND_MS) {
    const x = Math.min(Math.round(xOf(atMs)), width - 1) + 0.5;
    line(context, x, HEADROOM, x, base);
  }
  line(context, 0, base + 0.5, width, base + 0.5);

  const most = Math.floor((base - HEADROOM) / STEP);
  for (const [column, stack] of stacksOf(dots, nowMs, (atMs) => Math.floor(xOf(atMs) / STEP))) {
    const x = column * STEP + STEP / 2;
    // Refused calls are on top, so that a stack that is cut off still shows them.
    const refused = stack.filter(({ isRefused }) => isRefused);
    const accepted = stack.filter(({ isRefused }) => !isRefused);
    const shown = [...accepted.slice(0, Math.max(0, most - refused.length)), ...refused].slice(
      0,
      most,
    );
    for (const [index, { tenant, isRefused }] of shown.entries()) {
      const y = base - index * STEP - STEP / 2;
      if (isRefused) cross(context, x, y, colors.refused);
      else disc(context, x, y, colors.tenants[tenant]!);
    }
    if (stack.length > most) {
      const text = String(stack.length);
      const half = context.measureText(text).width / 2;
      context.fillStyle = colors.text;
      context.fillText(text, Math.min(Math.max(x - half, 0), width - 2 * half), HEADROOM - 4);
    }
  }
  if (nowMs < endMs) {
    context.strokeStyle = colors.text;
    line(context, xOf(nowMs), 0, xOf(nowMs), base);
  }
}

function stacksOf(
  dots: readonly Dot[],
  nowMs: number,
  columnOf: (atMs: number) => number,
): ReadonlyMap<number, readonly Dot[]> {
  const stacks = new Map<number, Dot[]>();
  for (const dot of dots) {
    if (dot.atMs > nowMs) continue;
    const column = columnOf(dot.atMs);
    const stack = stacks.get(column);
    if (stack === undefined) stacks.set(column, [dot]);
    else stack.push(dot);
  }
  return stacks;
}

function line(
  context: CanvasRenderingContext2D,
  fromX: number,
  fromY: number,
  toX: number,
  toY: number,
): void {
  context.beginPath();
  context.moveTo(fromX, fromY);
  context.lineTo(toX, toY);
  context.stroke();
}

function disc(context: CanvasRenderingContext2D, x: number, y: number, color: string): void {
  context.fillStyle = color;
  context.beginPath();
  context.arc(x, y, RADIUS, 0, 2 * Math.PI);
  context.fill();
}

/** Has another shape than a disc, for people who see no difference between the colors. */
function cross(context: CanvasRenderingContext2D, x: number, y: number, color: string): void {
  context.strokeStyle = color;
  context.lineWidth = 1.4;
  line(context, x - 1.7, y - 1.7, x + 1.7, y + 1.7);
  line(context, x - 1.7, y + 1.7, x + 1.7, y - 1.7);
  context.lineWidth = 1;
}
