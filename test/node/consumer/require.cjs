const sluice = require("sluice");
const { createManualClock } = require("sluice/testing");
const { use } = require("./use.cjs");

createManualClock();
void use(sluice);
