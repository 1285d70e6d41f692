import type { Flags } from "./flags.ts";
import type { Bench } from "./run-load.ts";
import type { Table } from "./table.ts";
export async function measureKeys(_b: Bench, _f: Flags): Promise<Table[]> {
  return [];
}
