// Generates with the engine of the web page, for test_engine.py: a request as JSON on standard input, tokens on the other.

import { readFileSync } from "node:fs";

const { page, file, prime, seeds, length, options, allowed } = JSON.parse(readFileSync(0, "utf8"));
const { openModel } = await import(`${page}/wasm.js`);
const { uniforms } = await import(`${page}/random.js`);
try {
  const model = await openModel(readFileSync(`${page}/engine.wasm`), readFileSync(file));
  const numbers = uniforms(...seeds);
  const stream = model.open(prime);
  const places = Array.from({ length }, () => numbers.next().value);
  console.log(JSON.stringify({ places, tokens: model.generate(stream, places, options, allowed) }));
  model.close(stream);
} catch (error) {
  console.log(JSON.stringify({ error: error.message }));
}
