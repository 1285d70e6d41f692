import * as sluice from "sluice";
import { createManualClock } from "sluice/testing";
import { use } from "./use.cjs";

createManualClock();
await use(sluice);
