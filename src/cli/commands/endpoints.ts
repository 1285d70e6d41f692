import type { Command } from "commander";
import { InvalidOptionError } from "../../core/errors.ts";
import type { WhoAndWhy } from "../../core/input/who-and-why.ts";
import { limitsElsewhere } from "../../core/policy/policy.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import { partsOf } from "../../sluice/parts.ts";
import {
  createWebhooks,
  findWebhooks,
  type FoundWebhooks,
  type WebhooksOptions,
} from "../../webhooks/index.ts";
import type { Webhooks } from "../../webhooks/create-webhooks.ts";
import { addOperations, onlyTenant } from "../operations.ts";
import { countOf } from "../options.ts";
import { NotFoundError, parseDuration, print, whoRuns, withSluice, type Io } from "../io.ts";

interface Given {
  readonly sender: string;
  readonly tenant?: string;
}

/** Of a command that changes an endpoint. */
interface SaidGiven extends Given {
  readonly reason?: string;
}

interface SinceGiven extends Given {
  readonly since?: string;
}

const CHANGES = new Set(["add", "remove", "rotate-secret"]);
const KEYS = "SLUICE_WEBHOOK_KEYS";

export function addEndpoints(program: Command, io: Io): void {
  const endpoints = program
    .command("endpoints")
    .description("endpoints of webhooks: looks at them, steers them, and sends to them again")
    .helpCommand(false)
    .addHelpText(
      "after",
      `
Secrets are not shown, but for one that was made just now. What makes one needs $${KEYS}, as the services have it.

Example: sluice endpoints list --tenant acme`,
    );

  addOperations(endpoints, io, "endpoints");

  /** A command, what it gets of its sender, and an example of it. */
  function add<Options extends Given>(
    name: string,
    { about, example }: { readonly about: string; readonly example: string },
    act: (parts: {
      readonly found: FoundWebhooks;
      /** The same, to send by it and to make secrets. */
      readonly hooks: () => Promise<Webhooks>;
      readonly tenant: string;
      readonly args: readonly string[];
      readonly options: Options;
      readonly show: <Result>(result: Result, describe: (result: Result) => string) => void;
    }) => Promise<void>,
  ): Command {
    const command = endpoints
      .command(name)
      .description(about)
      .option("--sender <name>", "the name of the sender", "webhooks")
      .option("--tenant <tenant>", "needed, unless the sender has only one");
    if (CHANGES.has(name.split(" ", 1)[0]!)) {
      command.option("--reason <text>", "why; the log of changes says it, with who did it");
    }
    return command
      .addHelpText("after", `\nExample: sluice endpoints ${example}`)
      .action(async (...given: unknown[]) => {
        const options = command.opts<Options>();
        await withSluice(command, io, async (sluice) => {
          const { sender } = options;
          const found = await findWebhooks(sluice, sender);
          if (found === undefined) {
            throw new NotFoundError(`No process has told of a sender of webhooks "${sender}".`);
          }
          const tenant = options.tenant ?? (await onlyTenant(found));
          await act({
            found,
            hooks: () => sameSender(sluice, sender, { keys: io.env[KEYS], ...targetsOf(options) }),
            tenant,
            args: given.filter((each) => typeof each === "string"),
            options,
            show: (result, describe) => print(command, io, result, describe),
          });
        });
      });
  }

  add<SaidGiven & { types?: string[]; rate?: string; concurrency?: string }>(
    "add <id> <url>",
    {
      about: "adds an endpoint, and prints the secret that was made for it",
      example: 'add billing https://acme.example/hooks --types "invoice.*" --tenant acme',
    },
    async ({ found, hooks, tenant, args: [id, url], options, show }) => {
      assertKeys(io);
      const { types, rate, concurrency } = options;
      if ((await found.endpoints.get({ tenant, id: id! })) !== undefined) {
        throw wrong("id", id, "there is one of this id; code replaces it as a whole, by put()");
      }
      const endpoint = {
        tenant,
        id: id!,
        url: url!,
        ...(types && { types }),
        ...(rate && { rate: rate as "1/s" }),
        ...(concurrency && { concurrency: countOf("--concurrency", concurrency) }),
      };
      const added = await (await hooks()).endpoints.put(endpoint, byHand(options, io));
      show(added, ({ secret }) => `${id} was added. Its secret, shown this once:\n${secret}`);
    },
  )
    .option("--types <types...>", "which events it gets; else all")
    .option("--rate <rate>", "how fast it is called, such as 5/s; else as the sender says")
    .option("--concurrency <count>", "how many calls it gets at once; else as the sender says")
    .option("--http", "lets its URL be http://, also on this machine, if the sender does, too")
    .option(
      "--allow <ranges...>",
      "private ranges that its URL may name, if the sender allows them, too",
    );
  add<SaidGiven & { yes?: boolean }>(
    "remove <id>",
    {
      about: "removes an endpoint, its secret and its log for good",
      example: "remove billing --yes --tenant acme",
    },
    async ({ found, tenant, args: [id], options, show }) => {
      if (options.yes !== true) {
        throw wrong("--yes", undefined, "give --yes: its secret and its log cannot be had back");
      }
      const removed = await found.endpoints.remove({ tenant, id: id! }, byHand(options, io));
      if (!removed) throw new NotFoundError(`There is no endpoint "${id}".`);
      show({ removed }, () => `${id} was removed.`);
    },
  ).option("--yes", "needed: what is removed cannot be had back");
  add<SaidGiven & { grace: string }>(
    "rotate-secret <id>",
    {
      about: "signs with a new secret from now on, and prints it",
      example: "rotate-secret billing --grace 2d --tenant acme",
    },
    async ({ hooks, tenant, args: [id], options, show }) => {
      assertKeys(io);
      const { grace } = options;
      const graceMs = grace === "0" ? 0 : parseDuration("--grace", grace);
      const asked = { tenant, id: id!, graceMs };
      const secret = await (await hooks()).endpoints.rotateSecret(asked, byHand(options, io));
      show({ secret }, () => `The new secret of ${id}, shown this once:\n${secret}`);
    },
  ).option("--grace <time>", "how long the old one signs beside it, up to 7d, or 0", "1d");
  add(
    "test <id>",
    {
      about: "sends an event of type webhook.test to it, which its log then has",
      example: "test billing --tenant acme",
    },
    async ({ hooks, tenant, args: [id], show }) => {
      const sent = await (await hooks()).test({ tenant, id: id! });
      show(sent, () => `Message ${sent.id} was stored to be sent to ${id}.`);
    },
  );
  add<SinceGiven & { message?: string; endpoint?: string; types?: string[]; all?: boolean }>(
    "replay",
    {
      about: "sends a message again, or those of a time",
      example: "replay --endpoint billing --since 2h --tenant acme",
    },
    async ({ hooks, tenant, options, show }) => {
      const { message, endpoint, types, since, all } = options;
      const ways = [message, since, all].filter((way) => way !== undefined).length;
      if (ways !== 1) throw wrong("--message", message, "give --message, --since or --all: one");
      const replayed = await (
        await hooks()
      ).replay({
        tenant,
        by: whoRuns(io),
        ...(message && { message }),
        ...(endpoint && { endpoint }),
        ...(types && { types }),
        ...(all ? { since: 0 } : sinceOf(since)),
      });
      show({ replayed }, () => `${messages(replayed)} stored to be sent again.`);
    },
  )
    .option("--message <id>", "this message")
    .option("--endpoint <id>", "to this endpoint; else to those that it was sent to")
    .option("--types <types...>", "messages of these types")
    .option("--since <time>", "messages of this time, such as 2h")
    .option("--all", "all messages that are kept");
  add<SinceGiven>(
    "recover <id>",
    {
      about: "sends again what has failed for good at an endpoint, the oldest first",
      example: "recover billing --since 1d --tenant acme",
    },
    async ({ hooks, tenant, args: [endpoint], options: { since }, show }) => {
      const by = whoRuns(io);
      const given = { tenant, endpoint: endpoint!, by, ...sinceOf(since) };
      const recovered = await (await hooks()).recover(given);
      show({ recovered }, () => `${messages(recovered)} stored to be sent again.`);
    },
  ).option("--since <time>", "what was sent in this time, such as 1d; else all that is kept");
}

/**
 * The sender as its processes declare it, with the limits for all that they declare: so it is the same as theirs, and what
 * it sends waits in their queue. Without keys, secrets cannot be made or read.
 */
async function sameSender(
  sluice: Sluice,
  name: string,
  { keys, http, allow }: Pick<WebhooksOptions, "http" | "allow"> & { keys: string | undefined },
): Promise<Webhooks> {
  const text = await partsOf("sluice endpoints", sluice).insight.declared(name);
  const limits = text === undefined ? undefined : limitsElsewhere(text);
  if (limits === undefined) {
    throw wrong("--sender", name, "its services run another version; use that version's command");
  }
  return createWebhooks(sluice, {
    name,
    http,
    allow,
    ...(limits.length > 0 && { limits }),
    ...(keys ? { keys } : { secretsOf: () => [] }),
  });
}

/** Which URLs are taken; only the code of the sender's services knows it. */
function targetsOf(options: Given): Pick<WebhooksOptions, "http" | "allow"> {
  const { http = false, allow = [] } = options as { http?: boolean; allow?: readonly string[] };
  return { http, allow: http ? [...LOOPBACK, ...allow] : allow };
}

const LOOPBACK = ["127.0.0.0/8", "::1"];

function byHand({ reason }: SaidGiven, io: Io): WhoAndWhy {
  return { by: whoRuns(io), ...(reason === undefined ? {} : { reason }) };
}

/** @throws {@link InvalidOptionError} when a secret could not be sealed. */
function assertKeys({ env }: Io): void {
  if (env[KEYS]) return;
  throw wrong(`$${KEYS}`, undefined, "set it as the services have it: secrets are sealed by it");
}

function sinceOf(since: string | undefined): { readonly since?: number } {
  return since === undefined ? {} : { since: Date.now() - parseDuration("--since", since) };
}

function messages(count: number): string {
  return count === 1 ? "1 message was" : `${count} messages were`;
}

function wrong(option: string, value: unknown, remedy: string): InvalidOptionError {
  return new InvalidOptionError({ where: "sluice endpoints", option, value, remedy });
}
