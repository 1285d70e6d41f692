import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

export interface Certificate {
  readonly certFile: string;
  readonly keyFile: string;
  /** The certificate's text: it vouches for itself. */
  readonly pem: string;
  remove(): Promise<void>;
}

/** A certificate for 127.0.0.1 that nobody but this test trusts. */
export async function makeCertificate(): Promise<Certificate> {
  const dir = await mkdtemp(join(tmpdir(), "sluice-tls-"));
  const certFile = join(dir, "cert.pem");
  const keyFile = join(dir, "key.pem");
  const subject = ["-subj", "/CN=sluice", "-addext", "subjectAltName=IP:127.0.0.1"];
  const kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  const files = ["-keyout", keyFile, "-out", certFile];
  await run("openssl", ["req", ...kind, "-days", "2", ...subject, ...files]);
  return {
    certFile,
    keyFile,
    pem: await readFile(certFile, "utf8"),
    remove: () => rm(dir, { recursive: true, force: true }),
  };
}
