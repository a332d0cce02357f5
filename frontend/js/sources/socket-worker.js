// The live run's WebSocket, in a worker. A browser reads a socket piece by piece on the thread that owns it: on the page's,
// which draws half of the time, 26 MB/s of attention rows come in slower than they are sent, however little each costs there.

import { Batches } from "./batches.js";

/** @type {WebSocket | null} */
let socket = null;
const batches = new Batches((said, transfer) => self.postMessage(said, { transfer }));

self.onmessage = ({ data }) => {
  if (data.open) open(data.open);
  else if (data.send) socket?.send(data.send);
  else if (data.taken) batches.taken();
  else if (data.close) socket?.close();
};

/** @param {string} url */
function open(url) {
  socket = new WebSocket(url);
  socket.binaryType = "arraybuffer";
  socket.onopen = () => self.postMessage({ opened: true });
  socket.onmessage = (event) => batches.add(event.data);
  socket.onclose = ({ reason }) => batches.close(reason);
}
