import { expect, it } from "vitest";
import { createConnector } from "../../../src/webhooks/guard/connector.ts";
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
