/** What servers note of requests that may come again, so that all of them know the first one. */
export interface RequestNotes {
  /** Notes what was asked for, unless another thing was asked for by this name; the same again is kept anew. */
  noteRequest(request: NotedRequest, keptMs: number): Promise<RequestNoted>;
  /** Nothing was done for it: another may take its name. */
  forgetRequest(request: NotedRequest): Promise<void>;
}

/** "first" if this call has made the note. */
export type RequestNoted = "first" | "same" | "other";

export interface NotedRequest {
  readonly queue: string;
  /** A name that no other request of the queue has. */
  readonly name: string;
  /** The digest of what is asked for. */
  readonly asked: string;
}
