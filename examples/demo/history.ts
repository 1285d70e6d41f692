import type { Snapshot } from "./snapshot.ts";

/** What the charts show: the past of the run, one value for each column of equal time. */
export interface History {
  add(snapshot: Snapshot): void;
  /** The busiest second that ended in each column. */
  calls(columns: number): readonly (number | undefined)[];
  backlog(columns: number): readonly (number | undefined)[];
}

export function createHistory(lengthMs: number): History {
  const snapshots: Snapshot[] = [];

  function perColumn(columns: number, read: (snapshot: Snapshot) => number): number[] {
    const values: number[] = [];
    for (const snapshot of snapshots) {
      const column = Math.floor((snapshot.elapsedMs / lengthMs) * columns);
      if (column >= columns) break;
      // A column that was passed over between two looks shows what the look before it saw.
      while (values.length < column) values.push(values.at(-1) ?? 0);
      values[column] = Math.max(values[column] ?? 0, read(snapshot));
    }
    return values;
  }

  function padded(values: readonly number[], columns: number): readonly (number | undefined)[] {
    return Array.from({ length: columns }, (_, column) => values[column]);
  }

  return {
    add: (snapshot) => void snapshots.push(snapshot),
    calls: (columns) =>
      padded(
        perColumn(columns, ({ callsInLastSecond }) => callsInLastSecond),
        columns,
      ),
    backlog: (columns) =>
      padded(
        perColumn(columns, ({ backlog }) => backlog),
        columns,
      ),
  };
}
