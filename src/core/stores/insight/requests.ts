/** What servers note of requests that may come again, so that all of them know the first one. */
export interface RequestNotes {
  /** Notes what was asked for, and answers what was asked for first by this name: the same, if this is the first. */
  noteRequest(request: NotedRequest, keptMs: number): Promise<string>;
  /** Nothing was done for it: another may take its name. */
  forgetRequest(request: NotedRequest): Promise<void>;
}

export interface NotedRequest {
  readonly queue: string;
  /** A name that no other request of the queue has. */
  readonly name: string;
  /** The digest of what is asked for. */
  readonly asked: string;
}
