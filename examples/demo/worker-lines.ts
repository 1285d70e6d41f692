import { drawBar } from "./bar.ts";
import type { Paint } from "./paint.ts";
import type { Snapshot } from "./snapshot.ts";
import { count } from "./verdict.ts";

const BESIDE_BAR = 40;

/** What each worker has delivered; in one line where there is no room for a line each. */
export function workerLines(
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
