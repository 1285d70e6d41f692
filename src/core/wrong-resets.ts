/** Within this package: the beginnings of windows were reckoned for another time than the bucket's. */
export class WrongResetsError extends Error {
  readonly serverUs: number;

  constructor(serverUs: number) {
    super(`resets were reckoned for another time than ${serverUs}`);
    this.serverUs = serverUs;
  }
}
