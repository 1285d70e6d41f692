/**
 * Three teams spend one budget of 1 dollar a day, and at most 50 cents each. The last calls are refused, until an
 * operator grants more. With $REDIS_URL set, all processes that run this example share the budget.
 */
import { budget, BudgetSpentError, createSluice } from "sluice";
import { onStop, ownPrefix } from "../shared/own-prefix.ts";

interface Answer {
  readonly text: string;
  readonly usd: number;
}

/** Replace this with your client's call, and read what it cost from the response. */
async function ask(team: string, question: string): Promise<Answer> {
  return { text: `${team} asked: ${question}`, usd: 0.12 };
}

await using own = ownPrefix("budget");
await using sluice = createSluice({ prefix: own.prefix });
onStop(async () => {
  await sluice.close();
  await own[Symbol.asyncDispose]();
});
const daily = (amount: number) =>
  budget({ unit: "usd", amount, per: "day", timeZone: "Europe/Berlin", warnAt: [0.5, 0.9] });
const model = sluice.bucket("model", {
  limits: [daily(1)],
  perKey: { limits: [daily(0.5)] },
});
model.on("budget", ({ key, budget: name, part }) => {
  console.log(`! ${String(key ?? "all teams")}: ${part * 100} % of ${name}`);
});
const paid = model.throttled(ask, {
  key: (team) => team,
  cost: () => ({ usd: 0.1 }),
  settle: ({ usd }) => ({ usd }),
});

async function spend(team: string): Promise<void> {
  try {
    const { text } = await paid(team, "Why is the sky blue?");
    console.log(text);
  } catch (error) {
    if (!(error instanceof BudgetSpentError)) throw error;
    console.log(`${team}: ${error.spent} of ${error.amount} dollars spent (${error.limitedBy})`);
  }
}

for (let round = 0; round < 5; round++)
  for (const team of ["red", "blue", "green"]) await spend(team);
await model.grant({ usd: 1 }, { reason: "the demo goes on", by: "ann" });
await spend("green");
const [total] = await model.budgets();
console.log(`All teams: ${total!.spent} of ${total!.amount} dollars spent.`);
