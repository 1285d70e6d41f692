import { tableOf, type Value } from "../../lua/runtime.ts";
import { globOf, integerOf, OK, optionOf } from "../commands/arguments.ts";
import { listCommands } from "../commands/lists.ts";
import { setCommands } from "../commands/sets.ts";
import { streamCommands } from "../commands/streams.ts";
import { createServerClock, type ServerClock } from "../clock.ts";
import { createMemoryRedis, type MemoryRedis } from "../memory-redis.ts";
import { BLOCKING, isBlocking, type Wait } from "./blocking.ts";
import { infoText, CONFIG } from "./facts.ts";
import { createRequestReader, NIL_LIST, writeError, writeReply } from "./resp.ts";
import { createScripts } from "./scripts.ts";
import { createSubscriptions } from "./subscriptions.ts";

/** How a client is connected to the server. */
interface Transport {
  readonly write: (bytes: Buffer) => void;
  /** Closes the connection. */
  readonly end: () => void;
  readonly address: string;
}

export interface MemoryServer {
  /** Adds a client. The functions pass on what the client sends, and that it is gone. */
  connect(transport: Transport): {
    readonly receive: (bytes: Buffer) => void;
    readonly close: () => void;
  };
  /**
   * Moves the clock of the server forward. Keys expire and blocking commands end accordingly. Keys
   * for which `isKept` returns true live as long as before.
   */
  advance(ms: number, isKept: (key: string) => boolean): void;
  /** Deletes all keys and closes all connections. */
  close(): void;
}

interface Client {
  readonly id: number;
  readonly address: string;
  name: string;
  database: number;
  /** The commands after `MULTI`. Undefined outside of a transaction. */
  gathered: string[][] | undefined;
  isBroken: boolean;
  /** The watched keys, with their contents at the time of `WATCH`. */
  readonly watched: Map<string, string>;
  waiting: Waiting | undefined;
  /** Requests that came while a command blocks. */
  readonly pending: string[][];
  /** The number of the first pending request that did not run yet. */
  next: number;
  isMonitor: boolean;
  isClosing: boolean;
  readonly send: (bytes: string) => void;
  readonly end: () => void;
}

interface Waiting extends Wait {
  readonly client: Client;
  readonly untilMs: number;
  timer: NodeJS.Timeout | undefined;
}

const LONGEST_TIMER_MS = 2_147_483_647;
const PONG = { ...tableOf([]), $ok: "PONG" };
const QUEUED = "+QUEUED\r\n";
/** Commands that run at once within a transaction. */
const CONTROLS = new Set(["EXEC", "DISCARD", "MULTI", "WATCH", "QUIT", "RESET"]);

/**
 * Creates a Redis server in this process. It speaks RESP2, and runs Lua scripts after translating
 * them to JavaScript. Use it for tests and development: its keys are lost when the process exits.
 * It has no clusters, replicas, access control, consumer groups or persistence.
 */
export function createMemoryServer(clock: ServerClock = createServerClock()): MemoryServer {
  const scripts = createScripts();
  const subscriptions = createSubscriptions();
  const databases = new Map<number, MemoryRedis>();
  const clients = new Set<Client>();
  /** Clients with a blocking command, the first one first. */
  const waits = new Set<Waiting>();
  const unsent = new Map<Client, () => void>();
  const startedMs = nowMs();
  let lastId = 0;
  let isServing = false;

  function nowMs(): number {
    return clock.nowUs() / 1_000;
  }

  function databaseOf(index: number): MemoryRedis {
    const found = databases.get(index);
    if (found !== undefined) return found;
    const { nowUs } = clock;
    const made = createMemoryRedis({ nowUs, expiryUs: nowUs, publish: subscriptions.publish });
    const { keyspace } = made;
    const commands = {
      ...made.commands,
      ...listCommands(keyspace),
      ...setCommands(keyspace),
      ...streamCommands(keyspace),
    };
    const database = { ...made, commands };
    databases.set(index, database);
    return database;
  }

  /** Runs `act`, retries blocking commands, and then sends all replies. */
  function serve(act: () => void): void {
    if (isServing) return act();
    isServing = true;
    try {
      act();
      retryWaits();
    } finally {
      isServing = false;
    }
    const flushes = [...unsent.values()];
    unsent.clear();
    for (const flush of flushes) flush();
  }

  function retryWaits(): void {
    for (const waiting of waits) {
      const reply = attempt(waiting);
      if (reply === undefined) continue;
      endWait(waiting, reply);
    }
  }

  function attempt(waiting: Wait): string | undefined {
    try {
      const found = waiting.attempt();
      return found === undefined ? undefined : writeReply(found);
    } catch (error) {
      return writeError((error as Error).message);
    }
  }

  function endWait(waiting: Waiting, reply: string): void {
    clearTimeout(waiting.timer);
    waits.delete(waiting);
    const { client } = waiting;
    client.waiting = undefined;
    client.send(reply);
    runPending(client);
  }

  function startTimer(waiting: Waiting): void {
    clearTimeout(waiting.timer);
    if (waiting.untilMs === Infinity) return;
    const leftMs = Math.min(Math.ceil(waiting.untilMs - nowMs()), LONGEST_TIMER_MS);
    waiting.timer = setTimeout(() => {
      if (waiting.untilMs > nowMs()) startTimer(waiting);
      else serve(() => endWait(waiting, NIL_LIST));
    }, leftMs);
  }

  function runPending(client: Client): void {
    while (client.waiting === undefined && !client.isClosing) {
      const request = client.pending[client.next];
      if (request === undefined) {
        client.pending.length = 0;
        client.next = 0;
        return;
      }
      client.next += 1;
      const reply = run(client, request);
      if (reply !== undefined) client.send(reply);
    }
  }

  /** Returns the reply as bytes. Undefined if the command blocks, or has sent its replies itself. */
  function run(client: Client, request: string[]): string | undefined {
    const [given, ...operands] = request as [string, ...string[]];
    const name = given.toUpperCase();
    for (const monitor of clients) if (monitor.isMonitor) monitor.send(shown(client, request));
    try {
      if (client.gathered !== undefined && !CONTROLS.has(name)) {
        assertKnown(name, operands);
        client.gathered.push(request);
        return QUEUED;
      }
      if (isBlocking(name, operands)) return block(client, name, operands);
      const reply = call(client, name, operands);
      return reply === undefined ? undefined : writeReply(reply);
    } catch (error) {
      if (client.gathered !== undefined) client.isBroken = true;
      return writeError((error as Error).message);
    }
  }

  function assertKnown(name: string, operands: readonly string[]): void {
    const { commands } = databaseOf(0);
    if (Object.hasOwn(commands, name)) return assertCount(name, commands[name]!, operands);
    if (name in BLOCKING || Object.hasOwn(ofServer, name)) return;
    const shownOperands = operands.slice(0, 3).map((each) => `'${each.slice(0, 100)}' `);
    throw new Error(
      `ERR unknown command '${name}', with args beginning with: ${shownOperands.join("")}`,
    );
  }

  function assertCount(
    name: string,
    command: (...operands: never[]) => unknown,
    operands: readonly string[],
  ): void {
    if (operands.length >= command.length) return;
    throw new Error(`ERR wrong number of arguments for '${name.toLowerCase()}' command`);
  }

  function call(client: Client, name: string, operands: string[]): Value {
    const { commands, sweep } = databaseOf(client.database);
    sweep();
    assertKnown(name, operands);
    if (Object.hasOwn(ofServer, name)) return ofServer[name]!(client, operands);
    return commands[name]!(...operands);
  }

  function block(client: Client, name: string, operands: string[]): string | undefined {
    const { commands, keyspace } = databaseOf(client.database);
    const wait = BLOCKING[name]!(operands, commands, keyspace);
    const reply = attempt(wait);
    if (reply !== undefined) return reply;
    const waiting = { ...wait, client, untilMs: nowMs() + wait.forMs, timer: undefined };
    client.waiting = waiting;
    waits.add(waiting);
    startTimer(waiting);
    return undefined;
  }

  function exec(client: Client): Value {
    const { gathered, isBroken, watched } = client;
    if (gathered === undefined) throw new Error("ERR EXEC without MULTI");
    const isChanged = [...watched].some(([key, before]) => contentOf(client, key) !== before);
    endTransaction(client);
    if (isBroken) throw new Error("EXECABORT Transaction discarded because of previous errors.");
    if (isChanged) {
      client.send(NIL_LIST);
      return undefined;
    }
    client.send(`*${gathered.length}\r\n`);
    for (const [name, ...operands] of gathered) {
      try {
        const upper = name!.toUpperCase();
        const isWait = isBlocking(upper, operands);
        const { commands, keyspace } = databaseOf(client.database);
        if (isWait)
          client.send(attempt(BLOCKING[upper]!(operands, commands, keyspace)) ?? NIL_LIST);
        else {
          const reply = call(client, upper, operands);
          if (reply !== undefined) client.send(writeReply(reply));
        }
      } catch (error) {
        client.send(writeError((error as Error).message));
      }
    }
    return undefined;
  }

  function endTransaction(client: Client): void {
    client.gathered = undefined;
    client.isBroken = false;
    client.watched.clear();
  }

  /** Returns the content of a key as text, to compare it later. */
  function contentOf({ database }: Client, key: string): string {
    const content = databaseOf(database).keyspace.find(key);
    if (content instanceof Map || content instanceof Set) return JSON.stringify([...content]);
    const isSorted = typeof content === "object" && "scores" in content;
    return JSON.stringify(isSorted ? content.entries : content) ?? "";
  }

  function evaluate(client: Client, digest: string, operands: readonly string[]): Value {
    const count = integerOf(operands[0]);
    if (count < 0 || count > operands.length - 1)
      throw new Error("ERR Number of keys can't be greater than number of args");
    const keys = operands.slice(1, 1 + count);
    const reply = scripts.run(
      digest,
      keys,
      operands.slice(1 + count),
      databaseOf(client.database).commands,
    );
    return reply === undefined ? false : reply;
  }

  /** Returns a function that changes the subscriptions of a client, and sends the replies itself. */
  function subscribing(how: string) {
    return (client: Client, names: string[]): undefined => {
      subscriptions.change(how, client, names);
    };
  }

  const ofServer: Record<string, (client: Client, operands: string[]) => Value> = {
    PING(client, [text]) {
      if (subscriptions.isSubscribed(client)) return tableOf(["pong", text ?? ""]);
      return text ?? PONG;
    },
    ECHO: (_client, [text]) => text,
    AUTH: () => OK,
    HELLO(client, [version]) {
      if (version !== undefined && version !== "2")
        throw new Error("NOPROTO unsupported protocol version");
      const facts = {
        server: "redis",
        version: CONFIG.version,
        proto: 2,
        id: client.id,
        mode: "standalone",
        role: "master",
        modules: tableOf([]),
      };
      return tableOf(Object.entries(facts).flat());
    },
    QUIT(client) {
      client.send("+OK\r\n");
      client.isClosing = true;
      return undefined;
    },
    RESET(client) {
      endTransaction(client);
      subscriptions.drop(client);
      client.isMonitor = false;
      client.database = 0;
      return { ...tableOf([]), $ok: "RESET" };
    },
    SELECT(client, [index]) {
      client.database = integerOf(index);
      return OK;
    },
    MULTI(client) {
      if (client.gathered !== undefined) throw new Error("ERR MULTI calls can not be nested");
      client.gathered = [];
      return OK;
    },
    EXEC: exec,
    DISCARD(client) {
      if (client.gathered === undefined) throw new Error("ERR DISCARD without MULTI");
      endTransaction(client);
      return OK;
    },
    WATCH(client, keys) {
      if (client.gathered !== undefined) throw new Error("ERR WATCH inside MULTI is not allowed");
      for (const key of keys) client.watched.set(key, contentOf(client, key));
      return OK;
    },
    UNWATCH(client) {
      client.watched.clear();
      return OK;
    },
    EVAL: (client, [source, ...operands]) => evaluate(client, scripts.load(source!), operands),
    EVALSHA: (client, [digest, ...operands]) => evaluate(client, digest!.toLowerCase(), operands),
    SCRIPT(_client, [what, ...given]) {
      switch (optionOf(what)) {
        case "LOAD":
          return scripts.load(given[0]!);
        case "EXISTS":
          return tableOf(given.map((digest) => (scripts.has(digest.toLowerCase()) ? 1 : 0)));
        case "FLUSH":
          scripts.clear();
          return OK;
        default:
          throw new Error("NOTBUSY No scripts in execution right now.");
      }
    },
    SUBSCRIBE: subscribing("subscribe"),
    UNSUBSCRIBE: subscribing("unsubscribe"),
    PSUBSCRIBE: subscribing("psubscribe"),
    PUNSUBSCRIBE: subscribing("punsubscribe"),
    PUBSUB(_client, [what, ...names]) {
      if (optionOf(what) === "NUMPAT") return subscriptions.patternCount();
      if (optionOf(what) === "NUMSUB")
        return tableOf(names.flatMap((name) => [name, subscriptions.count(name)]));
      const matcher = globOf(names[0] ?? "*");
      return tableOf(subscriptions.channels().filter((channel) => matcher.test(channel)));
    },
    INFO(_client, sections) {
      const keyCounts = [...databases].map(
        ([index, { commands }]) => [index, commands["DBSIZE"]!() as number] as const,
      );
      const uptimeS = Math.floor((nowMs() - startedMs) / 1_000);
      return infoText({ sections, keyCounts, clients: clients.size, uptimeS });
    },
    CONFIG(_client, [what, ...names]) {
      if (optionOf(what) !== "GET") return OK;
      const found = Object.entries(CONFIG.values).filter(([name]) =>
        names.some((pattern) => globOf(pattern.toLowerCase()).test(name)),
      );
      return tableOf(found.flat());
    },
    CLIENT: ofClient,
    COMMAND: () => tableOf([]),
    FLUSHALL() {
      for (const { clear } of databases.values()) clear();
      return OK;
    },
    MONITOR(client) {
      client.isMonitor = true;
      return OK;
    },
    ROLE: () => tableOf(["master", 0, tableOf([])]),
    WAIT: () => 0,
    MEMORY: () => 0,
    SLOWLOG: () => tableOf([]),
    CLUSTER() {
      throw new Error("ERR This instance has cluster support disabled");
    },
  };

  function ofClient(client: Client, [what, ...given]: string[]): Value {
    switch (optionOf(what)) {
      case "ID":
        return client.id;
      case "GETNAME":
        return client.name === "" ? false : client.name;
      case "SETNAME":
        client.name = given[0] ?? "";
        return OK;
      case "INFO":
        return describe(client);
      case "LIST":
        return [...clients].map((each) => `${describe(each)}\n`).join("");
      case "KILL": {
        const killed = [...clients].filter((each) => isNamed(each, given));
        for (const each of killed) closeLater(each);
        return given.length === 1 ? OK : killed.length;
      }
      case "UNBLOCK": {
        const blocked = [...waits].find((wait) => wait.client.id === Number(given[0]));
        if (blocked === undefined) return 0;
        endWait(blocked, NIL_LIST);
        return 1;
      }
      default:
        return OK;
    }
  }

  function isNamed(client: Client, given: readonly string[]): boolean {
    const [field, value] = given.length === 1 ? ["ADDR", given[0]] : [optionOf(given[0]), given[1]];
    if (field === "ID") return client.id === Number(value);
    if (field === "ADDR") return client.address === value;
    if (field === "TYPE") return subscriptions.isSubscribed(client) === (value === "pubsub");
    return false;
  }

  function describe({ id, address, name, database, waiting }: Client): string {
    const flags = waiting === undefined ? "N" : "b";
    return `id=${id} addr=${address} name=${name} db=${database} flags=${flags}`;
  }

  function shown({ database, address }: Client, request: readonly string[]): string {
    const words = request.map((word) => JSON.stringify(word)).join(" ");
    return `+${(clock.nowUs() / 1e6).toFixed(6)} [${database} ${address}] ${words}\r\n`;
  }

  function closeLater(client: Client): void {
    client.isClosing = true;
    client.send("");
  }

  function drop(client: Client): void {
    clients.delete(client);
    subscriptions.drop(client);
    client.isClosing = true;
    if (client.waiting === undefined) return;
    clearTimeout(client.waiting.timer);
    waits.delete(client.waiting);
  }

  return {
    connect({ write, end, address }) {
      const read = createRequestReader();
      let out = "";
      const flush = (): void => {
        const bytes = out;
        out = "";
        if (bytes !== "") write(Buffer.from(bytes, "latin1"));
        if (client.isClosing) end();
      };
      const client: Client = {
        id: (lastId += 1),
        address,
        name: "",
        database: 0,
        gathered: undefined,
        isBroken: false,
        watched: new Map(),
        waiting: undefined,
        pending: [],
        next: 0,
        isMonitor: false,
        isClosing: false,
        send(bytes) {
          out += bytes;
          unsent.set(client, flush);
        },
        end,
      };
      clients.add(client);
      return {
        receive(bytes) {
          serve(() => {
            try {
              for (const request of read(bytes.toString("latin1"))) client.pending.push(request);
            } catch (error) {
              client.send(writeError((error as Error).message));
              client.isClosing = true;
            }
            runPending(client);
          });
        },
        close: () => drop(client),
      };
    },
    advance(ms, isKept) {
      for (const { keyspace } of databases.values()) {
        keyspace.sweep();
        for (const [key, kept] of keyspace.keys) if (isKept(key)) kept.expiresAtMs += ms;
      }
      clock.advance(ms);
      serve(() => {
        for (const waiting of waits) {
          if (waiting.untilMs <= nowMs()) endWait(waiting, NIL_LIST);
          else startTimer(waiting);
        }
      });
    },
    close() {
      for (const client of clients) {
        drop(client);
        client.end();
      }
      for (const { clear } of databases.values()) clear();
    },
  };
}
