/** Shows a queue with bull-board in your own web server. Needs $REDIS_URL. */
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { createBullBoard } from "@bull-board/api";
import { BullMQAdapter } from "@bull-board/api/bullMQAdapter";
import { ExpressAdapter } from "@bull-board/express";
import { Queue } from "bullmq";
import express from "express";
import { createSluice } from "sluice";
import { onStop, ownPrefix } from "../shared/own-prefix.ts";

const own = ownPrefix("board");
const { prefix } = own;
const url = process.env["REDIS_URL"] ?? "redis://127.0.0.1:6379";
const sluice = createSluice({ redis: url, prefix });
const bucket = sluice.bucket("mail-provider", { rate: "10/s" });
const mails = sluice.queue<{ to: string }>("mails", { bucket });
await mails.enqueue({ to: "ada@example.com" }, { key: "acme" });

const stored = new Queue(mails.stored.name, { prefix: mails.stored.prefix, connection: { url } });
const board = new ExpressAdapter();
createBullBoard({
  queues: [new BullMQAdapter(stored, { displayName: mails.name })],
  serverAdapter: board,
});

const app = express();
app.use(board.getRouter());
const server = app.listen(Number(process.env["PORT"] ?? 3_000), "127.0.0.1");
onStop(async () => {
  server.close();
  await stored.close();
  await sluice.close();
  await own[Symbol.asyncDispose]();
});
await once(server, "listening");
console.log(`See http://127.0.0.1:${(server.address() as AddressInfo).port}`);
