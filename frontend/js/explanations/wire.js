// Explanations of the wire panel: how the answer left.

export const WIRE = {
  wire: {
    name: "Wire",
    what: "How each token became bytes, text, a chunk, and left.",
    how: "The detokenizer and the server’s writer note what they did with every token.",
    formula: "chosen → bytes → released text → queued → handed to the socket",
    careful: "It ends at this machine’s socket: the network and the reader are beyond it.",
  },
  "wire.tokens": {
    name: "Tokens",
    what: "Tokens of the answer, control tokens included.",
    how: "Counted from the token events.",
    formula: "count",
    careful: "The last is often a control token that ends the answer and is never sent.",
  },
  "wire.chunks": {
    name: "Chunks",
    what: "Pieces that were handed to the socket.",
    how: "Counted by the writer, those without text included.",
    formula: "count",
    careful: "Several tokens can share a chunk, and the last chunk carries usage rather than text.",
  },
  "wire.bytes": {
    name: "On the wire",
    what: "Bytes of all chunks with their framing.",
    how: "Measured by the writer.",
    formula: "Σ bytes of JSON and event stream",
    careful: "HTTP’s and TCP’s own bytes are not in it.",
  },
  "wire.text": {
    name: "Text",
    what: "Bytes of the answer’s text itself, and how many were sent for each of them.",
    how: "UTF-8 of the released text.",
    formula: "bytes on the wire ÷ bytes of text",
    careful: "A hundredfold is usual for token-by-token event streams: each token brings its JSON along.",
  },
  "wire.held": {
    name: "Held back",
    what: "Bytes that had to wait for more: part of a character, or of a possible stop text.",
    how: "Noted by the detokenizer after each token.",
    formula: "bytes received − bytes released",
    careful: "They are not lost: they go out with a later token, or are cut because a stop text was complete.",
  },
  "wire.delay": {
    name: "Chosen → queued → sent",
    what: "How long after its choice a token’s chunk was queued, and then handed to the socket.",
    how: "Times of one clock of the server.",
    formula: "t(queued) − t(chosen), t(sent) − t(chosen); the median is over the answer’s sent tokens",
    careful: "A token that had to wait for bytes takes its neighbours’ time with it.",
  },
  "wire.unsent": {
    name: "Not sent",
    what: "Tokens that no chunk reaches up to.",
    how: "Tokens behind the last chunk’s position.",
    formula: "count",
    careful: "Control tokens at the end are meant to be here; while an answer runs, so are the newest.",
  },
  "wire.list": {
    name: "Tokens on the wire",
    what: "Each token with the text that was released at it and the chunk that carried it.",
    how: "The first chunk that reaches up to the token.",
    formula: "″: in the same chunk as the line before",
    careful: "Bars share one scale, which ends at the next round time above the longest.",
  },
};
