/** The keys of one bucket; its name is their hash tag, so that a cluster keeps them on one node. */
export function bucketKeys(prefix: string, bucket: string): readonly [string, string, string] {
  const tagged = `${prefix}:{${bucket}}`;
  return [`${tagged}:state`, `${tagged}:turns`, `${tagged}:holes`];
}
