/** The lines of one metric in a text that Prometheus reads. */
export function linesOf(text: string, name: string): string[] {
  return text
    .split("\n")
    .filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `));
}

/** The value of a metric with exactly these labels; NaN if the text does not have it. */
export function valueOf(
  text: string,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number {
  const wanted = Object.entries(labels)
    .map(([label, value]) => `${label}=${JSON.stringify(value)}`)
    .sort()
    .join(",");
  const found = linesOf(text, name).filter((line) => {
    const given = /\{(.*)\} /.exec(line)?.[1] ?? "";
    const parts = [...given.matchAll(/\w+="(?:[^"\\]|\\.)*"/g)].map(([part]) => part);
    return parts.sort().join(",") === wanted;
  });
  return found.length === 1 ? Number(found[0]!.split(" ").at(-1)) : Number.NaN;
}
