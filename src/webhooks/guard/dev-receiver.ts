/** Finds the webhook receiver of `sluice dev`, the only private address that senders may use without an option. */
import process from "node:process";
import { InvalidOptionError } from "../../core/errors.ts";

const DEV_RECEIVER = "SLUICE_DEV_WEBHOOKS";

/**
 * Returns the origin in `$SLUICE_DEV_WEBHOOKS`: `"http://127.0.0.1:3011"`. Undefined if the variable is not set.
 *
 * @throws {@link InvalidOptionError} when the variable has another URL, or in production.
 */
export function readDevReceiver(where: string): string | undefined {
  const value = process.env[DEV_RECEIVER];
  if (value === undefined || value === "") return undefined;
  const option = `$${DEV_RECEIVER}`;
  if (process.env["NODE_ENV"] === "production") {
    const remedy =
      "unset it in production, because it lets webhooks use an address of this machine";
    throw new InvalidOptionError({ where, option, value, remedy });
  }
  if (/^http:\/\/127\.0\.0\.1:[1-9]\d{0,4}\/?$/.test(value) && URL.canParse(value)) {
    return new URL(value).origin;
  }
  const remedy = "set it to the URL that sluice dev prints, such as http://127.0.0.1:3011";
  throw new InvalidOptionError({ where, option, value, remedy });
}
