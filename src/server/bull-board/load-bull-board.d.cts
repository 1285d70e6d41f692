import type Api = require("@bull-board/api");
import type Adapter = require("@bull-board/api/bullMQAdapter");

/** @throws when the package is missing. */
export declare function loadBullBoard(): typeof Api & typeof Adapter;

export declare const SUPPORTED_VERSION: string;
