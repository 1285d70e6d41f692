import type { TokenOptions } from "../options.ts";

const BASIC = /^\s*basic\s+([\w+/=-]+)/i;

/** Finds tokens of this server in a text: a header's value or a URL, also percent-encoded or as Basic credentials. */
export function tokenSearch(
  tokens: readonly Pick<TokenOptions, "token">[],
): (text: string) => boolean {
  if (tokens.length === 0) return () => false;
  const any = new RegExp(tokens.map(({ token }) => escaped(token)).join("|"));
  return (text) => any.test(text) || others(text).some((other) => any.test(other));
}

/** What else a text may stand for. */
function others(text: string): string[] {
  const [, basic] = BASIC.exec(text) ?? [];
  const plain = basic === undefined ? [] : [Buffer.from(basic, "base64").toString("latin1")];
  return text.includes("%") ? [...plain, percentDecoded(text)] : plain;
}

function percentDecoded(text: string): string {
  return text.replaceAll(/%([\da-f]{2})/gi, (_, code: string) =>
    String.fromCharCode(Number.parseInt(code, 16)),
  );
}

/** A text as a regular expression that matches it alone. */
function escaped(text: string): string {
  return text.replaceAll(/[$()*+.?[\\\]^{|}]/g, String.raw`\$&`);
}
