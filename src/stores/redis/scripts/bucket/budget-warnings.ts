import { MILLIONTHS } from "../../../../core/limits/budget.ts";
import type { LoggedWarning, WarningsRequest } from "../../../../core/store.ts";
import { readLedgerName, warningKeys } from "../keys.ts";
import { shapeScript } from "../script.ts";
import { constant, from, int, mapped, rest, text } from "../shape.ts";

/** The most warnings that are read at once. */
const MOST_READ = 100;

export const warningsRead = shapeScript({
  name: "insight/warnings-read",
  keys: ({ prefix, bucket, reader }: WarningsRequest & { readonly prefix: string }) =>
    warningKeys(prefix, bucket, reader),
  args: {
    pinnedUs: from(({ pinnedUs = 0 }: { readonly pinnedUs?: number | undefined }) => pinnedUs),
    handled: int,
    most: constant(MOST_READ),
  },
  reply: mapped(rest({ warning: text, number: int }), (all) => all.map(readWarning)),
});

function readWarning(entry: { readonly warning: string; readonly number: number }): LoggedWarning {
  const parts = entry.warning.split(" ");
  const [part, spent, total, count, endUs] = parts.slice(0, 5).map(Number) as Five;
  const ledger = readLedgerName(parts.slice(5).join(" "));
  return { number: entry.number, ...ledger, part: part / MILLIONTHS, spent, total, count, endUs };
}

type Five = [number, number, number, number, number];
