import type { WriteStream } from "node:tty";
import type { DemoArguments } from "../arguments.ts";
import { count, mostPerSecond } from "../verdict.ts";
import { drawChart, createHistory, timeAxis, drawBar } from "./charts.ts";
import type { Snapshot, View } from "./snapshot.ts";
import { createPaint, visibleLength, openScreen, type Paint } from "./terminal.ts";

const MOST_COLUMNS = 100;
const LABEL = 8;
/** The number of lines other than charts and workers. */
const OTHER_LINES = 11;

/** Creates a view that redraws charts of the run in place. */
export function createLiveView(output: WriteStream, { rate, seconds }: DemoArguments): View {
  const paint = createPaint(output);
  const screen = openScreen(output);
  const history = createHistory(seconds * 1_000);
  const most = mostPerSecond(rate);
  let peak = 1;

  function frame(snapshot: Snapshot): string[] {
    const { backlog, callsInLastSecond } = snapshot;
    const width = Math.min(screen.columns - 1, MOST_COLUMNS);
    const columns = Math.max(10, width - LABEL - 1);
    const spare = screen.rows - OTHER_LINES - 1;
    // The charts have 6 and 4 lines, or fewer if the terminal is low.
    const callsHeight = Math.max(2, Math.min(6, Math.floor(spare * 0.4)));
    const backlogHeight = Math.max(1, Math.min(4, Math.floor(spare * 0.25)));
    peak = Math.max(peak, backlog);

    const top = (rate * callsHeight) / (callsHeight - 1);
    const calls = drawChart({
      values: history.calls(columns),
      height: callsHeight,
      top,
      colour: paint.calls,
      cap: { at: rate, most },
      paint,
    });
    const waiting = drawChart({
      values: history.backlog(columns),
      height: backlogHeight,
      top: peak,
      colour: paint.backlog,
      paint,
    });
    return [
      heading("Calls a second", `${count(callsInLastSecond)} of ${count(rate)}`, width),
      ...labelled(calls, `cap ${compact(rate)}`),
      `${" ".repeat(LABEL + 1)}${paint.faint(timeAxis(seconds, columns))}`,
      heading("Backlog", count(backlog), width),
      ...labelled(waiting, compact(peak)),
      "",
      figures(snapshot),
      "",
      ...workerLines(snapshot, { width, lines: spare - callsHeight - backlogHeight, paint }),
      "",
      paint.faint(hint(snapshot)),
    ];
  }

  function hint({ isLast, elapsedMs, workers }: Snapshot): string {
    const elapsed = Math.min(seconds, Math.floor(elapsedMs / 1_000));
    if (isLast) return `Ended after ${elapsed} s.`;
    const running = workers.find(({ isRunning }) => isRunning);
    return `${elapsed} s of ${seconds}. Ctrl-C ends it; \`kill -9 ${running?.pid}\` and the others take over.`;
  }

  function heading(name: string, now: string, width: number): string {
    const gap = " ".repeat(Math.max(1, width - name.length - now.length));
    return `${paint.strong(name)}${gap}${paint.strong(now)}`;
  }

  function labelled(lines: readonly string[], label: string): string[] {
    return lines.map((line, index) => {
      const text = index === 0 ? label : index === lines.length - 1 ? "0" : "";
      return `${paint.faint(text.padStart(LABEL))} ${line}`;
    });
  }

  function figures({ delivered, jobs, worstSecond, refused }: Snapshot): string {
    const worst = worstSecond > most ? paint.bad : paint.good;
    const none = refused > 0 ? paint.bad : paint.good;
    const values = {
      delivered: [paint.strong(count(delivered)), count(jobs)],
      worst: [worst(count(worstSecond)), count(most)],
      refused: none(count(refused)),
    };
    const line = [
      `delivered ${values.delivered.join(" of ")}`,
      `worst second ${values.worst.join(" of ")} allowed`,
      `refused ${values.refused}`,
    ].join("   ");
    if (visibleLength(line) < screen.columns) return line;
    return `sent ${values.delivered.join("/")} worst ${values.worst.join("/")} refused ${values.refused}`;
  }

  return {
    show(snapshot) {
      history.add(snapshot);
      screen.draw(frame(snapshot));
    },
    close: () => screen.close(),
  };
}

/** Formats a number in at most five characters: `950`, `12.5k`. */
function compact(value: number): string {
  return value < 10_000 ? count(value) : `${(value / 1_000).toFixed(1)}k`;
}

const BESIDE_BAR = 40;

/** Shows what each worker has delivered, in a single line if there is no room for one line per worker. */
function workerLines(
  { workers, deliveredBy }: Snapshot,
  { width, lines, paint }: { width: number; lines: number; paint: Paint },
): string[] {
  const counts = workers.map(({ name }) => deliveredBy(name));
  const total = Math.max(
    1,
    counts.reduce((sum, each) => sum + each, 0),
  );
  const percent = (value: number): string => `${((100 * value) / total).toFixed(1)} %`;
  const crashed = workers.filter(({ isRunning }) => !isRunning).length;

  if (workers.length > lines) {
    const spread = `${percent(Math.min(...counts))} to ${percent(Math.max(...counts))} each`;
    const trouble = crashed === 0 ? "" : paint.bad(`   ${crashed} crashed`);
    return [`${workers.length} workers   ${spread}${trouble}`];
  }
  const barWidth = Math.max(0, Math.min(50, width - BESIDE_BAR));
  return workers.map(({ name, pid, isRunning }, index) => {
    const delivered = counts[index]!;
    const state = isRunning
      ? paint.faint(`pid ${pid}`.padEnd(12))
      : paint.bad("crashed".padEnd(12));
    const numbers = `${count(delivered).padStart(7)} ${percent(delivered).padStart(8)}`;
    const bar = drawBar(delivered / total, barWidth);
    return `${name.padEnd(10)} ${state}${numbers}  ${paint.calls(bar)}`;
  });
}
