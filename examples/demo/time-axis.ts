const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800];
const LEAST_GAP = 10;

/** The times under a chart: `0 s       5 s       10 s`. */
export function timeAxis(seconds: number, columns: number): string {
  const step = STEPS_S.find((each) => (each / seconds) * columns >= LEAST_GAP) ?? seconds;
  let line = "";
  for (let second = 0; second <= seconds; second += step) {
    const label = `${second} s`;
    const column = Math.floor((second / seconds) * columns);
    if (column + label.length > columns) break;
    line = line.padEnd(column) + label;
  }
  return line;
}
