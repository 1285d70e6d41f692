/** Operations on the balances of budgets. */
import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";
import type {
  BudgetBackup,
  BudgetState,
  GrantOptions,
  Restored,
} from "../../throttle/bucket/budgets.ts";
import { BY_HAND, KEY } from "../fields.ts";
import { operation } from "../operation.ts";
import { BUDGET, COUNT, list, object, STATUS } from "../shapes.ts";
import { showBudgets, counted } from "../text.ts";
import { BUCKET, MEMBER_FIELD, LOOK, OF_TARGET, STEER, targetOf } from "./shared.ts";

export const budgets = operation({
  ...LOOK,
  name: "bucket.budgets",
  target: "bucket",
  summary: "The balances of the budgets of a bucket",
  input: z.strictObject({
    ...BUCKET,
    key: KEY,
    member: MEMBER_FIELD,
    all: z.boolean().optional().describe("Adds the budgets of all keys that have spent something."),
    limit: z
      .int()
      .min(1)
      .optional()
      .describe("The most results: the budgets with the largest spent part. Defaults to all."),
  }),
  answers:
    "The balances, and the number of all. `restore` accepts the balances, for example on another Redis server.",
  output: object({ budgets: list(BUDGET), total: COUNT }),
  privacy: OF_TARGET,
  async run(context, { bucket: name, key, member, all, limit }) {
    const found = await context.bucket(name);
    const every = await found.budgets({ ...targetOf({ key, member }), ...(all && { all }) });
    const budgets = limit === undefined ? every : mostSpent(every, limit);
    return { budgets, total: every.length };
  },
  http: { path: "GET /api/v1/buckets/:bucket/budgets", tag: "facts" },
  cli: {
    command: "budgets <name>",
    args: ["bucket"],
    examples: [
      "sluice budgets llm --key acme",
      "sluice budgets llm --all --limit 20",
      "sluice budgets llm --all --json > balances.json",
    ],
    show(
      {
        budgets: found,
        total,
      }: { readonly budgets: readonly BudgetState[]; readonly total: number },
      asked,
    ) {
      const shown = showBudgets(found, asked);
      if (found.length === total) return shown;
      return [...[shown].flat(), `${found.length} of ${counted(total, "budget")}`];
    },
  },
});

export const grant = operation({
  ...STEER,
  name: "bucket.grant",
  summary: "Raises budgets until their periods end",
  input: z.strictObject({
    ...BUCKET,
    key: KEY,
    member: MEMBER_FIELD,
    amounts: z
      .record(z.string(), z.number())
      .describe('The amounts to add, by unit, such as { "usd": 50 }.'),
    per: z
      .string()
      .optional()
      .describe("The period of the budget, if there are several of the unit, such as month."),
    ...BY_HAND,
  }),
  undoable: true,
  async run(context, { bucket: name, key, member, amounts, per }) {
    const found = await context.bucket(name);
    const options = {
      ...targetOf({ key, member }),
      ...(per !== undefined && { per }),
      ...context.byHand,
    };
    const after = await found.grant(amounts, options as GrantOptions);
    return { budgets: after, status: await context.beside(found.status()) };
  },
  answers: "The balances of the bucket or key after the grant.",
  output: object({ budgets: list(BUDGET), "status?": STATUS }),
  http: { path: "POST /api/v1/buckets/:bucket/grant", tag: "steering" },
  cli: {
    command: "grant <name> <amounts...>",
    args: ["bucket"],
    examples: ['sluice grant llm usd=50 --key acme --reason "demo day"'],
    hidden: ["amounts"],
    read: (_options, [, amounts]) => ({ amounts: amountsOf(amounts as readonly string[]) }),
    show: ({ budgets: found }: { readonly budgets: readonly BudgetState[] }) => showBudgets(found),
  },
  form: {
    title: "Grant more to the budgets of {name}",
    fields: ["amounts", "reason"],
    confirm: "Grant",
    done: "Granted {amounts} to {name}.",
  },
});

export const restore = operation({
  ...STEER,
  name: "bucket.restore",
  summary: "Replaces balances by exported ones",
  input: z.strictObject({
    ...BUCKET,
    budgets: z
      .array(z.looseObject({}))
      .describe("The balances, as `budgets` returned them. Those of earlier periods are left out."),
    ...BY_HAND,
  }),
  undoable: false,
  run: async (context, { bucket: name, budgets: balances }) =>
    (await context.bucket(name)).restore(balances as unknown as BudgetBackup[], context.byHand),
  answers: "The number of restored balances, and the balances that were left out.",
  output: object({ restored: COUNT, skipped: list({ type: "object" }) }),
  http: { path: "POST /api/v1/buckets/:bucket/restore", tag: "steering" },
  cli: {
    command: "restore <name> <file>",
    args: ["bucket"],
    about: "replaces balances of budgets by those that sluice budgets --json has printed to a file",
    examples: ["sluice restore llm balances.json"],
    hidden: ["budgets"],
    fileAt: 1,
    read: (_options, [, text]) => ({ budgets: balancesIn(String(text)) }),
    show: ({ restored, skipped }: Restored) =>
      `${counted(restored, "balance")} restored, ${skipped.length} left out.`,
  },
});

/** Returns the budgets with the largest spent part of their amounts, the largest first. */
function mostSpent(budgets: readonly BudgetState[], limit: number): readonly BudgetState[] {
  const part = ({ spent, amount }: BudgetState): number => spent / amount;
  return budgets.toSorted((one, other) => part(other) - part(one)).slice(0, limit);
}

/** Reads amounts from the command line: `usd=50`. */
function amountsOf(given: readonly string[]): Record<string, number> {
  return Object.fromEntries(
    given.map((text) => {
      const [, unit, amount] = /^([a-z][\w-]*)=(\d+(?:\.\d+)?)$/i.exec(text) ?? [];
      if (unit !== undefined) return [unit, Number(amount)];
      const remedy = "give amounts by unit, such as usd=50";
      throw new InvalidOptionError({
        where: "sluice grant",
        option: "amounts",
        value: text,
        remedy,
      });
    }),
  );
}

/** Reads the balances from the text of a file that `sluice budgets --json` has printed. */
function balancesIn(text: string): unknown {
  try {
    return (JSON.parse(text) as { budgets?: unknown }).budgets;
  } catch {
    const remedy = "give a file that sluice budgets --json has printed";
    throw new InvalidOptionError({ where: "sluice restore", option: "file", value: text, remedy });
  }
}
