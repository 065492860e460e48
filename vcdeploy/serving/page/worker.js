// Runs models for browser.js: reads requests, answers in pieces, and looks for cancellations in between.

import { composeTune, completeText, prompted } from "./generation.js";
import { openModel } from "./wasm.js";

const running = new Set(); // requests that are not cancelled
const opened = new Map(); // by name

async function bytes(name) {
  const answer = await fetch(new URL(name, self.location));
  if (!answer.ok) throw new Error(`${name} could not be loaded: ${answer.status} ${answer.statusText}`);
  return answer.arrayBuffer();
}

async function listed() {
  return JSON.parse(new TextDecoder().decode(await bytes("models.json")));
}

function open(name) {
  if (!opened.has(name)) {
    const load = async () => {
      const entry = (await listed()).find(({ id }) => id === name);
      if (!entry) throw new Error(`there is no model ${name} here`);
      const [wasm, file] = await Promise.all([bytes("engine.wasm"), bytes(entry.file)]);
      return openModel(wasm, new Uint8Array(file));
    };
    const loading = load();
    loading.catch(() => opened.delete(name)); // the next request tries again
    opened.set(name, loading);
  }
  return opened.get(name);
}

const pause = () => new Promise((resolve) => setTimeout(resolve));

const WORK = {
  async *models() {
    yield listed();
  },
  async *complete(request) {
    const model = await open(request.model);
    yield* completeText(model, prompted(model, request.prompt), request);
  },
  async *compose(request) {
    const model = await open(request.model);
    for (const tune of composeTune(model, request)) yield tune;
  },
};

self.onmessage = async ({ data: { id, kind, request } }) => {
  if (kind === "cancel") {
    running.delete(id);
    return;
  }
  running.add(id);
  try {
    for await (const value of WORK[kind](request)) {
      if (!running.has(id)) break;
      if (value !== undefined) self.postMessage({ id, value });
      await pause();
    }
    self.postMessage({ id, done: true });
  } catch (error) {
    self.postMessage({ id, error: error.message });
  } finally {
    running.delete(id);
  }
};
