/**
 * Reads a flag's whole number.
 *
 * @throws Error when it is none, or lies outside, with the usage of the command.
 */
export function readNumber(
  name: string,
  value: string,
  { from, to, usage }: { readonly from: number; readonly to: number; readonly usage: string },
): number {
  const number = /^\d{1,10}$/.test(value) ? Number(value) : NaN;
  if (number >= from && number <= to) return number;
  throw new Error(`--${name} is ${value}; give a whole number from ${from} to ${to}. ${usage}`);
}
