/**
 * Encrypts secrets at rest with AES-256-GCM. The key comes from the environment. Each encrypted
 * value is bound to its endpoint.
 */
import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import process from "node:process";
import { InvalidOptionError } from "../../core/errors.ts";
import { SecretUnreadableError } from "../errors.ts";
import type { EndpointName } from "../../stores/redis/scripts/webhooks/webhooks.ts";

/** Encrypts and decrypts values that must not be readable in Redis. */
export interface Sealing {
  seal(text: string, name: EndpointName): string;
  /**
   * @throws {@link SecretUnreadableError} when the key is missing, or the value was changed or
   * belongs to another endpoint.
   */
  open(sealed: string, name: EndpointName): string;
}

const KEYS_VARIABLE = "SLUICE_WEBHOOK_KEYS";
const KEY_BYTES = 32;
const IV_BYTES = 12;
const TAG_BYTES = 16;
const KEY = /^([A-Za-z0-9_-]{1,32}):([A-Za-z0-9+/_-]+=*)$/;

/**
 * Reads keys such as `"k2:<32 bytes as base64>,k1:<…>"`. The first key encrypts; all keys decrypt.
 *
 * @throws {@link InvalidOptionError} when there are no keys, or invalid ones. The error does not
 * show them.
 */
export function createSealing(where: string, given: string | undefined): Sealing {
  const option = given === undefined ? `$${KEYS_VARIABLE}` : "keys";
  const text = given ?? process.env[KEYS_VARIABLE];
  const refuse = (value: unknown, remedy: string): InvalidOptionError =>
    new InvalidOptionError({ where, option, value, remedy });
  const example = `"k1:" and 32 random bytes as base64, such as $(openssl rand -base64 32)`;
  if (text === undefined || text === "") {
    throw refuse(
      undefined,
      `set it, or give keys: ${example}; or keep the secrets elsewhere and give secretsOf`,
    );
  }
  const keys = new Map<string, Buffer>();
  for (const part of text.split(",")) {
    const [, id, base64] = KEY.exec(part.trim()) ?? [];
    const bytes = Buffer.from(base64 ?? "", "base64");
    if (id === undefined || bytes.length !== KEY_BYTES) {
      throw refuse("***", `give ${example}; several are separated by commas, the one in use first`);
    }
    if (keys.has(id)) throw refuse("***", `name each key once; ${id} comes twice`);
    keys.set(id, bytes);
  }
  const [[current, key]] = [...keys] as [[string, Buffer]];

  return {
    seal(plain, name) {
      const iv = randomBytes(IV_BYTES);
      const cipher = createCipheriv("aes-256-gcm", key, iv).setAAD(ownerOf(name));
      const sealed = [iv, cipher.update(plain, "utf8"), cipher.final(), cipher.getAuthTag()];
      return `${current}.${Buffer.concat(sealed).toString("base64url")}`;
    },
    open(sealed, name) {
      const dot = sealed.indexOf(".");
      const id = sealed.slice(0, dot);
      const found = keys.get(id);
      if (found === undefined) throw new SecretUnreadableError({ ...name, keyId: id });
      const bytes = Buffer.from(sealed.slice(dot + 1), "base64url");
      try {
        const decipher = createDecipheriv("aes-256-gcm", found, bytes.subarray(0, IV_BYTES), {
          authTagLength: TAG_BYTES,
        })
          .setAAD(ownerOf(name))
          .setAuthTag(bytes.subarray(-TAG_BYTES));
        const plain = decipher.update(bytes.subarray(IV_BYTES, -TAG_BYTES));
        return Buffer.concat([plain, decipher.final()]).toString("utf8");
      } catch {
        throw new SecretUnreadableError({ ...name, keyId: id });
      }
    },
  };
}

function ownerOf({ tenant, endpoint }: EndpointName): Buffer {
  return Buffer.from(`${tenant}\0${endpoint}`);
}
