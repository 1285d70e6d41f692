/** Splits seeds into parts that a busy machine can try in time. */
export function seedsOf(
  first: number,
  count: number,
  size: number,
): { readonly from: number; readonly to: number }[] {
  return Array.from({ length: Math.ceil(count / size) }, (_, part) => ({
    from: first + part * size,
    to: first + Math.min(count, (part + 1) * size),
  }));
}
