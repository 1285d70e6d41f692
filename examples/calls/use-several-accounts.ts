/**
 * Three accounts of a provider take calls from one line. One of them refuses calls for a while, and another one is
 * drained for maintenance. With $REDIS_URL set, all processes that run this example share the accounts.
 */
import { createSluice } from "sluice";
import { onStop, ownPrefix } from "../shared/own-prefix.ts";

/** Replace this with the clients of your accounts. */
class Account {
  readonly name: string;
  #isBusy = false;

  constructor(name: string) {
    this.name = name;
  }

  refuseOnce(): void {
    this.#isBusy = true;
  }

  async complete(prompt: string): Promise<string> {
    if (!this.#isBusy) return `${this.name} answers "${prompt}"`;
    this.#isBusy = false;
    const headers = { "retry-after": "2" };
    throw Object.assign(new Error("Too many requests"), { status: 429, headers });
  }
}

const [east, west, backup] = ["east", "west", "backup"].map((name) => new Account(name));
await using own = ownPrefix("accounts");
await using sluice = createSluice({ prefix: own.prefix });
onStop(async () => {
  await sluice.close();
  await own[Symbol.asyncDispose]();
});
const accounts = sluice.pool("accounts", {
  members: {
    east: { rate: "20/s", value: east! },
    west: { rate: "10/s", value: west! },
    backup: { rate: "5/s", value: backup! },
  },
  prefer: ["east", "west"],
});
const complete = accounts.throttled((account, prompt: string) => account.complete(prompt));

async function askMany(count: number): Promise<void> {
  const prompts = Array.from({ length: count }, (_, index) => `question ${index + 1}`);
  const answers = await Promise.allSettled(prompts.map((prompt) => complete(prompt)));
  const names = answers.map((each) =>
    each.status === "fulfilled" ? each.value.split(" ")[0]! : "refused",
  );
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  console.log([...counts].map(([name, calls]) => `${name}: ${calls}`).join(", "));
}

await askMany(20);
east!.refuseOnce();
await askMany(20);
for (const { name, coolingForMs } of await accounts.members()) {
  if (coolingForMs > 0) console.log(`${name} takes no calls for now; the others go on.`);
}
await accounts.drainMember("west", { by: "ann", reason: "maintenance" });
await askMany(5);
