// Composes tunes as the web page does without a server, for test_tunes.py.

import { readFileSync } from "node:fs";

const { page, file, requests } = JSON.parse(readFileSync(0, "utf8"));
const { openModel } = await import(`${page}/wasm.js`);
const { composeTune } = await import(`${page}/generation.js`);
const model = await openModel(readFileSync(`${page}/engine.wasm`), readFileSync(file));
console.log(JSON.stringify(requests.map((request) => [...composeTune(model, request)].at(-1))));
