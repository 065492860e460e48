// Runs a model in WebAssembly: the other side of plugins/web/engine.cpp, whose structures it lays out.

import { readModel } from "./onnx.js";

// Their rows in plugins/common/spec.h.
const UNITS = { vcrnn: { row: 0, gates: 1 }, vcgru: { row: 1, gates: 3 }, vclstm: { row: 2, gates: 4 } };
const PRECISIONS = { f32: 0, f16: 1, bf16: 2, int8: 3, w8a8: 4 };
const BYTES = { f32: 4, f16: 2, bf16: 2, int8: 1 };

// What the module may ask of a system: nothing. It opens no files and never exits.
const SYSTEM = new Proxy({}, { get: () => () => 52, has: () => true }); // 52: not supported

// wasm: the bytes of engine.wasm; file: those of a model -> Model.
export async function openModel(wasm, file) {
  const module = await WebAssembly.compile(wasm);
  const imports = {};
  for (const { module: from, name } of WebAssembly.Module.imports(module)) (imports[from] ??= {})[name] = SYSTEM[name];
  const { exports } = await WebAssembly.instantiate(module, imports);
  exports._initialize?.();
  return new Model(exports, readModel(file));
}

// A model in the module's memory, which it keeps for as long as the module lives.
export class Model {
  constructor(engine, { config, symbols, weights }) {
    Object.assign(this, { engine, config, symbols });
    const unit = UNITS[config.unit];
    if (!unit || !(config.precision in PRECISIONS))
      throw new Error(`the page runs VCRNN, VCGRU and VCLSTM, not ${config.unit} in ${config.precision}`);
    const { dim, layers } = config;
    const vocab = symbols.length;
    const loaded = [];
    const given = (name, shape) => {
      const found = weights.get(name);
      const size = shape.reduce((a, b) => a * b) * BYTES[found?.precision];
      if (String(found?.shape) !== String(shape) || found.bytes.length !== size)
        throw new Error(`the model file is incomplete: it has no ${name} of shape [${shape}]`);
      loaded.push(this.#copied(found.bytes));
      return loaded.at(-1);
    };
    const matrix = (name, rows) => {
      const scaled = weights.has(`${name}.scale`);
      return [given(name, [rows, dim]), scaled ? given(`${name}.scale`, [rows, 1]) : 0];
    };
    try {
      const each = Array.from({ length: layers }, (_, l) => [
        ...matrix(`layers.${l}.U`, unit.gates * dim),
        ...matrix(`layers.${l}.V`, unit.gates * dim),
        ...["u", "v", "b"].map((name) => given(`layers.${l}.${name}`, name === "b" ? [1] : [dim])),
      ]);
      const stored = weights.get("embedding")?.precision;
      const embedding = matrix("embedding", vocab);
      const output = matrix("output.weight", vocab);
      const bias = given("output.bias", [vocab]);
      const list = this.#copied(new Int32Array(each.flat()));
      const description = this.#copied(
        new Float64Array([config.sharpness, config.epsilon]),
        new Int32Array([unit.row, PRECISIONS[config.precision], PRECISIONS[stored], dim, vocab, layers]),
        new Int32Array([...embedding, ...output, bias, list]),
      );
      loaded.push(list, description);
      this.handle = this.#checked(engine.vcdeploy_load(description));
    } finally {
      loaded.forEach((at) => engine.vcdeploy_free(at));
    }
  }

  // The ids of symbols; throws if the model lacks one.
  lookup(symbols) {
    this.places ??= new Map(this.symbols.map((symbol, id) => [symbol, id]));
    return Array.from(symbols, (symbol) => {
      if (!this.places.has(symbol)) throw new Error(`the model does not know the symbol ${JSON.stringify(symbol)}`);
      return this.places.get(symbol);
    });
  }

  // A stream that has read these ids, at least one.
  open(ids) {
    const stream = this.#checked(this.engine.vcdeploy_open(this.handle));
    this.feed(stream, ids);
    return stream;
  }

  feed(stream, ids) {
    const tokens = this.#copied(BigInt64Array.from(ids, BigInt));
    try {
      this.#checked(this.engine.vcdeploy_feed(stream, tokens, ids.length));
    } finally {
      this.engine.vcdeploy_free(tokens);
    }
  }

  close(stream) {
    this.engine.vcdeploy_close(stream);
  }

  // Generates one token per number in `uniforms`; `allowed` [vocab] holds 1 for the symbols to choose from.
  // others: how many of the most likely symbols to list for each.
  generate(stream, uniforms, options, allowed) {
    const { temperature = 0.5, topP = 0.8, topK = 0, minP = 0, penalty = 1 } = options;
    const others = Math.min(options.others ?? 0, this.symbols.length);
    const { engine } = this;
    const { layers } = this.config;
    const length = uniforms.length;
    const sizes = [length, length, length * others, length, length * others, (length * layers) / 2].map((n) => n * 8);
    const places = sizes.map((_, i) => sizes.slice(0, i).reduce((a, b) => a + b, 0));
    const total = places.at(-1) + sizes.at(-1);
    const start = this.#allocated(total + this.symbols.length);
    const [randoms, logs, otherLogs, tokens, otherIds, m] = places.map((place) => start + place);
    new Float64Array(engine.memory.buffer, randoms, length).set(uniforms);
    if (allowed) new Uint8Array(engine.memory.buffer, start + total, this.symbols.length).set(allowed);
    const request = this.#copied(
      new Float64Array([temperature, topP, minP, penalty]),
      new Int32Array([topK, length, others, randoms, allowed ? start + total : 0, tokens, m, logs, otherIds, otherLogs]),
    );
    try {
      this.#checked(engine.vcdeploy_generate(stream, request));
      const list = (Type, at, count) => Array.from(new Type(engine.memory.buffer, at, count), Number);
      return list(BigInt64Array, tokens, length).map((id, t) => {
        const logProbabilities = list(Float64Array, otherLogs + t * others * 8, others);
        return {
          id,
          m: list(Float32Array, m + t * layers * 4, layers),
          logProbability: list(Float64Array, logs + t * 8, 1)[0],
          others: list(BigInt64Array, otherIds + t * others * 8, others).map((other, i) => ({
            id: other,
            logProbability: logProbabilities[i],
          })),
        };
      });
    } finally {
      engine.vcdeploy_free(start);
      engine.vcdeploy_free(request);
    }
  }

  #allocated(bytes) {
    const at = this.engine.vcdeploy_allocate(bytes);
    if (!at) throw new Error("there is not enough memory for this model");
    return at;
  }

  // The address of a copy of these arrays, one after another.
  #copied(...arrays) {
    const at = this.#allocated(arrays.reduce((sum, each) => sum + each.byteLength, 0));
    let end = at;
    for (const each of arrays) {
      new Uint8Array(this.engine.memory.buffer).set(new Uint8Array(each.buffer, each.byteOffset, each.byteLength), end);
      end += each.byteLength;
    }
    return at;
  }

  #checked(result) {
    if (result) return result;
    const bytes = new Uint8Array(this.engine.memory.buffer);
    const at = this.engine.vcdeploy_message();
    throw new Error(new TextDecoder().decode(bytes.slice(at, bytes.indexOf(0, at))));
  }
}
