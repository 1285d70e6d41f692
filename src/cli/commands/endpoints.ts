import type { Command } from "commander";
import { InvalidOptionError } from "../../core/errors.ts";
import type { WhoAndWhy } from "../../core/input/who-and-why.ts";
import { limitsElsewhere } from "../../core/policy/policy.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import { partsOf } from "../../sluice/parts.ts";
import type { FoundWebhooks, WebhooksOptions } from "../../webhooks/index.ts";
import type { Webhooks } from "../../webhooks/create-webhooks.ts";
import { addOperations, onlyTenant } from "../operations.ts";
import { countOf } from "../options.ts";
import { NotFoundError, parseDuration, print, whoRuns, withSluice, type Io } from "../io.ts";

interface Given {
  readonly sender: string;
  readonly tenant?: string;
}

/** The options of a command that changes an endpoint. */
interface SaidGiven extends Given {
  readonly reason?: string;
}

interface SinceGiven extends Given {
  readonly since?: string;
}

const CHANGES = new Set(["add", "rotate-secret"]);
const KEYS = "SLUICE_WEBHOOK_KEYS";

export function addEndpoints(program: Command, io: Io): void {
  const endpoints = program
    .command("endpoints")
    .description("shows and changes endpoints of webhooks, and sends messages again")
    .helpCommand(false)
    .addHelpText(
      "after",
      `
Only new secrets are shown. Commands that create one need $${KEYS}, with the value that the services have.
A sender is what createWebhooks() opens in your code; --sender is its option "name".

Example: sluice endpoints list --tenant acme`,
    );

  addOperations(endpoints, io, "endpoints");

  function add<Options extends Given>(
    name: string,
    { about, example }: { readonly about: string; readonly example: string },
    act: (parts: {
      readonly found: FoundWebhooks;
      /** Opens the sender, to send messages or to create secrets. */
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
      .option("--sender <name>", "the name of the webhook sender", "webhooks")
      .option("--tenant <tenant>", "needed if the sender has several");
    if (CHANGES.has(name.split(" ", 1)[0]!)) {
      command.option(
        "--reason <text>",
        "the reason; the change log shows it, and who made the change",
      );
    }
    return command
      .addHelpText("after", `\nExample: sluice endpoints ${example}`)
      .action(async (...given: unknown[]) => {
        const options = command.opts<Options>();
        await withSluice(command, io, async (sluice) => {
          const { sender } = options;
          const { findWebhooks } = await import("../../webhooks/index.ts");
          const found = await findWebhooks(sluice, sender);
          if (found === undefined) {
            throw new NotFoundError(`No process has reported a webhook sender "${sender}".`);
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
      about: "adds an endpoint, and prints its new secret",
      example: 'add billing https://acme.example/hooks --types "invoice.*" --tenant acme',
    },
    async ({ found, hooks, tenant, args: [id, url], options, show }) => {
      assertKeys(io);
      const { types, rate, concurrency } = options;
      if ((await found.endpoints.get({ tenant, id: id! })) !== undefined) {
        throw wrong("id", id, "an endpoint has this id; only code can replace it, with put()");
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
    .option("--types <types...>", "the events that it gets; defaults to all")
    .option("--rate <rate>", "the rate of calls, such as 5/s; defaults to that of the sender")
    .option("--concurrency <count>", "the most calls at once; defaults to that of the sender")
    .option("--http", "allows http:// URLs, also on this machine; the sender must allow them, too")
    .option(
      "--allow <ranges...>",
      "private ranges that the URL may be in; the sender must allow them, too",
    );
  add<SaidGiven & { grace: string }>(
    "rotate-secret <id>",
    {
      about:
        "creates and prints a new secret; during the grace time, the old one signs too (in the github style, it signs alone)",
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
  ).option("--grace <time>", "how long the old secret still signs, up to 7d, or 0", "1d");
  add(
    "test <id>",
    {
      about: "sends an event of type webhook.test to an endpoint; its log shows the attempt",
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
      about: "sends a message again, or all messages of a period",
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
    .option("--endpoint <id>", "to this endpoint; defaults to those that the message was sent to")
    .option("--types <types...>", "messages of these types")
    .option("--since <time>", "messages of this period, such as 2h")
    .option("--all", "all messages that are kept");
  add<SinceGiven>(
    "recover <id>",
    {
      about: "sends failed messages to an endpoint again, the oldest first",
      example: "recover billing --since 1d --tenant acme",
    },
    async ({ hooks, tenant, args: [endpoint], options: { since }, show }) => {
      const by = whoRuns(io);
      const given = { tenant, endpoint: endpoint!, by, ...sinceOf(since) };
      const recovered = await (await hooks()).recover(given);
      show({ recovered }, () => `${messages(recovered)} stored to be sent again.`);
    },
  ).option("--since <time>", "messages of this period, such as 1d; defaults to all that are kept");
}

/**
 * Opens the sender with the limits that its processes declare, so that its messages go into their
 * queue. Without encryption keys, this sender can neither create nor read secrets.
 */
async function sameSender(
  sluice: Sluice,
  name: string,
  { keys, http, allow }: Pick<WebhooksOptions, "http" | "allow"> & { keys: string | undefined },
): Promise<Webhooks> {
  const text = await partsOf("sluice endpoints", sluice).insight.declared(name);
  const limits = text === undefined ? undefined : limitsElsewhere(text);
  if (limits === undefined) {
    throw wrong(
      "--sender",
      name,
      "its services run another version; use the command of that version",
    );
  }
  const { createWebhooks } = await import("../../webhooks/index.ts");
  return createWebhooks(sluice, {
    name,
    http,
    allow,
    ...(limits.length > 0 && { limits }),
    ...(keys ? { keys } : { secretsOf: () => [] }),
  });
}

/**
 * Returns the allowed URLs from the options, because only the code of the sender's services knows
 * them.
 */
function targetsOf(options: Given): Pick<WebhooksOptions, "http" | "allow"> {
  const { http = false, allow = [] } = options as { http?: boolean; allow?: readonly string[] };
  return { http, allow: http ? [...LOOPBACK, ...allow] : allow };
}

const LOOPBACK = ["127.0.0.0/8", "::1"];

function byHand({ reason }: SaidGiven, io: Io): WhoAndWhy {
  return { by: whoRuns(io), ...(reason === undefined ? {} : { reason }) };
}

/** @throws {@link InvalidOptionError} when there is no key to encrypt a secret. */
function assertKeys({ env }: Io): void {
  if (env[KEYS]) return;
  throw wrong(
    `$${KEYS}`,
    undefined,
    "set it to the value that the services have; it encrypts secrets",
  );
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
