// Reads a model file that `vcdeploy export` wrote: configuration, vocabulary and weights (docs/design.md, section 2).
//
// Like vcdeploy/format/reader.py it splits the few protobuf fields it needs; nothing of the graph is interpreted.

const PRECISIONS = { 1: "f32", 3: "int8", 10: "f16", 16: "bf16" }; // by data type

// content: the bytes of a file -> { config, symbols, weights: name -> { precision, shape, bytes } }.
export function readModel(content) {
  const model = fields(content);
  const metadata = new Map(
    (model.get(14) ?? []).map((entry) => {
      const pair = fields(entry);
      return [text(pair.get(1)?.[0]), text(pair.get(2)?.[0])];
    }),
  );
  if (!metadata.has("vcdeploy.config") || !metadata.has("vcdeploy.vocab"))
    throw new Error("this file is no vcdeploy model: its metadata lacks vcdeploy.config or vcdeploy.vocab");
  const weights = new Map();
  for (const graph of model.get(7) ?? [])
    for (const message of fields(graph).get(5) ?? []) {
      const tensor = readTensor(message);
      weights.set(tensor.name, tensor);
    }
  return {
    config: JSON.parse(metadata.get("vcdeploy.config")),
    symbols: JSON.parse(metadata.get("vcdeploy.vocab")),
    weights,
  };
}

function readTensor(message) {
  const parts = fields(message);
  const sizes = (parts.get(1) ?? []).flatMap((each) => (typeof each === "number" ? [each] : [...packed(each)]));
  return {
    name: text(parts.get(8)?.at(-1)),
    precision: PRECISIONS[parts.get(2)?.at(-1)],
    shape: sizes,
    bytes: parts.get(9)?.at(-1) ?? new Uint8Array(),
  };
}

// The fields of a message by number: whole numbers as such, everything else as bytes.
function fields(message) {
  const found = new Map();
  for (let at = 0; at < message.length; ) {
    const [key, begin] = varint(message, at);
    const [number, wire] = [Math.floor(key / 8), key % 8];
    let value;
    if (wire === 0) [value, at] = varint(message, begin);
    else {
      const [length, from] = wire === 2 ? varint(message, begin) : [{ 1: 8, 5: 4 }[wire] ?? NaN, begin];
      at = from + length;
      if (!(at <= message.length)) throw new Error("the model file is damaged or was cut short");
      value = message.subarray(from, at);
    }
    if (!found.has(number)) found.set(number, []);
    found.get(number).push(value);
  }
  return found;
}

function varint(message, at) {
  let value = 0;
  for (let scale = 1; ; scale *= 128) {
    if (at >= message.length || scale > 2 ** 63) throw new Error("the model file is damaged or was cut short");
    const byte = message[at++];
    value += (byte & 127) * scale;
    if (byte < 128) return [value, at];
  }
}

function* packed(bytes) {
  for (let at = 0; at < bytes.length; ) {
    const [value, end] = varint(bytes, at);
    yield value;
    at = end;
  }
}

const text = (bytes) => new TextDecoder().decode(bytes);
