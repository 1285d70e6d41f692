import type { TokenOptions } from "../options.ts";
import { escaped } from "../problem.ts";

/**
 * The most nested encodings that are decoded. One example is Basic credentials whose password is
 * percent-encoded.
 */
const MOST_ROUNDS = 3;

/**
 * Finds tokens of this server in a text: the name or value of a header, or a URL. Also finds tokens
 * in percent-encoding, JSON escapes and base64, even nested. Ignores case, because clients write
 * header names in lower case.
 */
export function tokenSearch(
  tokens: readonly Pick<TokenOptions, "token">[],
): (text: string) => boolean {
  if (tokens.length === 0) return () => false;
  const any = new RegExp(tokens.map(({ token }) => escaped(token)).join("|"), "i");
  const shortest = Math.min(...tokens.map(({ token }) => token.length));
  const decodeBase64 = base64Decoder(shortest);

  function holds(text: string, rounds: number): boolean {
    // An encoded token is never shorter than the token itself.
    if (text.length < shortest) return false;
    if (any.test(text)) return true;
    if (rounds === 0) return false;
    if (text.includes("%") && holdsDecoded(text, percentDecoded(text), rounds)) return true;
    if (text.includes("\\") && holdsDecoded(text, jsonDecoded(text), rounds)) return true;
    return decodeBase64(text).some((plain) => holds(plain, rounds - 1));
  }

  function holdsDecoded(text: string, decoded: string, rounds: number): boolean {
    return decoded !== text && holds(decoded, rounds - 1);
  }

  return (text) => holds(text, MOST_ROUNDS);
}

function percentDecoded(text: string): string {
  return text.replaceAll(/%([\da-f]{2})/gi, (_, code: string) =>
    String.fromCharCode(Number.parseInt(code, 16)),
  );
}

function jsonDecoded(text: string): string {
  return text.replaceAll(/\\(?:u([\da-f]{4})|(.))/gi, (_, code: string | undefined, plain) =>
    code === undefined ? String(plain) : String.fromCharCode(Number.parseInt(code, 16)),
  );
}

/**
 * Decodes the base64 in a text, in both alphabets. The encoded part may begin anywhere, for example
 * after the "/" of a path. The function therefore decodes from each of the four possible starts of
 * a group, and keeps only plain text.
 */
function base64Decoder(shortest: number): (text: string) => string[] {
  const encodedLength = Math.ceil((shortest * 4) / 3);
  const encoded = new RegExp(String.raw`[\w+/-]{${encodedLength},}`, "g");
  const plain = new RegExp(String.raw`[\x21-\x7e]{${shortest},}`, "g");
  return (text) => {
    const runs = text.match(encoded) ?? [];
    return runs.flatMap((run) =>
      [0, 1, 2, 3].flatMap(
        (start) => Buffer.from(run.slice(start), "base64").toString("latin1").match(plain) ?? [],
      ),
    );
  };
}
