// The engine of the page without a server: the models of models.json, run by a worker in WebAssembly.

export class Unauthorized extends Error {} // never thrown here

let worker;
const waiting = new Map();
let requests = 0;

function start() {
  worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
  worker.onmessage = ({ data: { id, ...message } }) => waiting.get(id)?.(message);
  worker.onerror = (event) => waiting.forEach((receive) => receive({ error: event.message || "the engine could not start" }));
}

// The messages that answer a request, to the one that says `done`.
async function* answers(kind, request, signal) {
  if (!worker) start();
  const id = ++requests;
  const inbox = [];
  let wake = () => {};
  waiting.set(id, (message) => {
    inbox.push(message);
    wake();
  });
  const cancel = () => {
    worker.postMessage({ id, kind: "cancel" });
    wake();
  };
  signal?.addEventListener("abort", cancel);
  worker.postMessage({ id, kind, request });
  try {
    for (;;) {
      if (!inbox.length && !signal?.aborted) await new Promise((resolve) => (wake = resolve));
      signal?.throwIfAborted();
      const message = inbox.shift();
      if (message?.error) throw new Error(message.error);
      if (message && "value" in message) yield message.value;
      if (message?.done) return;
    }
  } finally {
    waiting.delete(id);
    signal?.removeEventListener("abort", cancel);
    worker.postMessage({ id, kind: "cancel" });
  }
}

async function only(kind, request, signal) {
  for await (const value of answers(kind, request, signal)) return value;
  throw new Error("the engine gave no answer");
}

export const models = () => only("models");
export const complete = (request, signal) => answers("complete", request, signal);
export const compose = (request, signal) => only("compose", request, signal);
