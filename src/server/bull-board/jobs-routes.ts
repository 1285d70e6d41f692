import type { FastifyInstance } from "fastify";
import { messageOf } from "../../core/describe.ts";
import { HttpProblem } from "../problem.ts";
import type { BullBoardParts } from "./bull-board.ts";
import { SUPPORTED_VERSION } from "./load-bull-board.cjs";

const INSTALL = `npm install @bull-board/api@${SUPPORTED_VERSION} @bull-board/ui@${SUPPORTED_VERSION}`;

/**
 * Serves bull-board at `/jobs`. If its packages are missing, `/jobs` says what to install, and the
 * rest of the server still works.
 */
export async function jobsRoutes(app: FastifyInstance, parts: BullBoardParts): Promise<void> {
  try {
    const { bullBoardRoutes } = await import("./bull-board.ts");
    bullBoardRoutes(app, parts);
  } catch (error) {
    missingRoutes(app, messageOf(error as Error).split("\n", 1)[0]!);
  }
}

function missingRoutes(app: FastifyInstance, reason: string): void {
  for (const path of ["/jobs", "/jobs/*"]) {
    app.get(path, { config: { needs: "view" }, schema: { hide: true } }, () => {
      throw new HttpProblem(
        "ERR_PACKAGE_MISSING",
        `/jobs needs bull-board ${SUPPORTED_VERSION}, and the server could not load it (${reason}). Run "${INSTALL}". If the server runs from a bundle, deploy both packages in node_modules beside it.`,
      );
    });
  }
}
