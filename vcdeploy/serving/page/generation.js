// Texts and tunes from a model of wasm.js, as the server makes them: the same seed gives the same symbols.

import { Form } from "./form.js";
import { END, repaired, role, toAbc } from "./notation.js";
import { uniforms } from "./random.js";

const ALTERNATIVES = 5;
const LONGEST_TUNE = 1000; // symbols
const [FIRST_PIECE, LARGEST_PIECE] = [16, 128]; // tokens: soon at first, then with few interruptions

const mean = (values) => values.reduce((sum, each) => sum + each, 0) / values.length;

// The ids of a prompt; of an empty one, those that a text starts from.
export function prompted(model, prompt) {
  const start = ["\n", " "].find((each) => model.symbols.includes(each)) ?? model.symbols[0];
  return model.lookup(prompt || start);
}

// Lists of tokens.
export function* completeText(model, ids, { length, temperature, topP, seed }) {
  const numbers = uniforms(seed);
  const stream = model.open(ids);
  try {
    for (let made = 0, piece = FIRST_PIECE; made < length; made += piece, piece = Math.min(2 * piece, LARGEST_PIECE)) {
      const places = Array.from({ length: Math.min(piece, length - made) }, () => numbers.next().value);
      const tokens = model.generate(stream, places, { temperature, topP, others: ALTERNATIVES });
      yield tokens.map(({ id, m, logProbability, others }) => ({
        text: model.symbols[id],
        m: mean(m),
        logProbability,
        others: others.map((each) => ({ text: model.symbols[each.id], logProbability: each.logProbability })),
      }));
    }
  } finally {
    model.close(stream);
  }
}

// Yields nothing while it works, for pauses, and then the tune.
export function* composeTune(model, { meter, key, start, temperature, topP, seed }) {
  const { symbols } = model;
  const form = new Form(symbols);
  const stream = model.open(model.lookup([END]));
  const given = [];
  const m = [];
  const draw = (place, options, mask) => {
    const [token] = model.generate(stream, [place], options, mask);
    given.push(symbols[token.id]);
    return token;
  };
  const read = (list) => {
    if (list.length) model.feed(stream, model.lookup(list));
    given.push(...list);
  };
  try {
    if (!start.length || !["meter", "key"].includes(role(start[0]))) {
      const openings = uniforms(seed, 1);
      for (const [name, value] of [["meter", meter], ["key", key]]) {
        if (value) read([`${name[0].toUpperCase()}:${value}`]);
        else {
          const mask = Uint8Array.from(symbols, (symbol) => (role(symbol) === name ? 1 : 0));
          if (mask.includes(1)) draw(openings.next().value, { temperature, topP: 1 }, mask);
        }
      }
    }
    read(start);
    given.forEach(() => m.push(null));
    const numbers = uniforms(seed);
    const before = given.length;
    while (given.length < before + LONGEST_TUNE && given.at(-1) !== END) {
      const token = draw(numbers.next().value, { temperature, topP }, form.allowed([END, ...given]));
      m.push(mean(token.m));
      if (given.length % 16 === 0) yield;
    }
    const field = (name) => given.find((symbol) => role(symbol) === name)?.slice(2) ?? null;
    const title = `Sample 1, seed ${seed}`;
    const complete = given.at(-1) === END;
    yield { abc: toAbc(repaired(given), title), symbols: given, m, meter: field("meter"), key: field("key"), seed, title, complete };
  } finally {
    model.close(stream);
  }
}
