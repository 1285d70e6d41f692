const LINE_END = /\r\n|\n|\r(?!$)/;

/**
 * The data of each event of a stream of server-sent events, as it comes
 * (https://html.spec.whatwg.org/multipage/server-sent-events.html). Names, ids and comments are passed over.
 */
export async function* readEvents(
  body: AsyncIterable<Uint8Array>,
): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder();
  let text = "";
  let data: string[] = [];
  for await (const chunk of body) {
    text += decoder.decode(chunk, { stream: true });
    const lines = text.split(LINE_END);
    // The last one may go on in the next chunk.
    text = lines.pop()!;
    for (const line of lines) {
      if (line === "" && data.length > 0) {
        yield data.join("\n");
        data = [];
      }
      const value = dataOf(line);
      if (value !== undefined) data.push(value);
    }
  }
  // Some servers leave out the last empty line.
  const value = dataOf(text.trimEnd());
  if (value !== undefined) data.push(value);
  if (data.length > 0) yield data.join("\n");
}

function dataOf(line: string): string | undefined {
  return /^data:? ?(.*)$/s.exec(line)?.[1];
}
