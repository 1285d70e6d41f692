import { createServer, type AddressInfo } from "node:net";
import { afterEach, expect, it, onTestFinished, vi } from "vitest";
import { createConnector } from "../../../src/webhooks/guard/connector.ts";
import { readDevReceiver } from "../../../src/webhooks/guard/dev-receiver.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { startAnswering } from "../../support/servers/hostile-endpoints.ts";

it("a connection that went around the look-up is ended before anything is sent", async () => {
  const endpoint = await startAnswering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
  const judged: string[] = [];
  // What is asked for may be connected to; what the socket says it is may not.
  const judge = (address: string): boolean => judged.push(address) === 1;
  const connect = createConnector({ judge, connectMs: 5_000 });
  const port = String(endpoint.port);

  const error = await new Promise((resolve) =>
    connect({ hostname: "127.0.0.1", protocol: "http:", port }, (...[failure]) => resolve(failure)),
  );

  expect(error).toMatchObject({ code: "EBLOCKED" });
  expect(judged).toEqual(["127.0.0.1", "127.0.0.1"]);
  await waitUntil(() => endpoint.open === 0, "its connection has ended");
});

afterEach(() => void vi.unstubAllEnvs());

it("reads the origin of the receiver", () => {
  vi.stubEnv("SLUICE_DEV_WEBHOOKS", "http://127.0.0.1:3011/");
  expect(readDevReceiver("createWebhooks()")).toBe("http://127.0.0.1:3011");
  vi.stubEnv("SLUICE_DEV_WEBHOOKS", "");
  expect(readDevReceiver("createWebhooks()")).toBeUndefined();
});

it.each([
  ["http://127.0.0.1"],
  ["http://10.0.0.1:3011"],
  ["http://localhost:3011"],
  ["https://127.0.0.1:3011"],
  ["http://127.0.0.1:3011/hooks"],
  ["http://127.0.0.1:99999"],
])("refuses %s", (url) => {
  vi.stubEnv("SLUICE_DEV_WEBHOOKS", url);
  expect(() => readDevReceiver("createWebhooks()")).toThrow(/SLUICE_DEV_WEBHOOKS.*3011/);
});

it("refuses the receiver in production", () => {
  vi.stubEnv("NODE_ENV", "production");
  vi.stubEnv("SLUICE_DEV_WEBHOOKS", "http://127.0.0.1:3011");
  expect(() => readDevReceiver("createWebhooks()")).toThrow(/production/);
});

it("connects to the receiver, and to no other port or address of this machine", async () => {
  const server = createServer((socket) => socket.end());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const devReceiver = `http://127.0.0.1:${port}`;
  const resolve = async (): Promise<string[]> => ["127.0.0.1"];
  const reach = (hostname: string, at: number, receiver: string) => {
    const connect = createConnector({
      judge: () => false,
      resolve,
      devReceiver: receiver,
      connectMs: 5_000,
    });
    const target = { hostname, host: `${hostname}:${at}`, protocol: "http:", port: String(at) };
    return new Promise<string | undefined>((done) => {
      connect(target, (error, socket) => {
        socket?.destroy();
        done((error as NodeJS.ErrnoException | null)?.code);
      });
    });
  };

  expect(await reach("127.0.0.1", port, devReceiver)).toBeUndefined();
  expect(await reach("127.0.0.1", port, `http://127.0.0.1:${port === 1 ? 2 : port - 1}`)).toBe(
    "EBLOCKED",
  );
  expect(await reach("evil.example", port, devReceiver)).toBe("EBLOCKED");
});
