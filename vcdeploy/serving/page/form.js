// The form of a tune: the symbols that may come next. The rules are those of vcdeploy/music/form.py, which explains them.

import { END, PLAIN, isTuplet, length, measure, pitch, role, scaled, tuplet } from "./notation.js";

const BARS_PER_PART = 8;
const [FEWEST_PARTS, MOST_PARTS] = [2, 4];

const letter = (note) => pitch(note).replace(/[\^_=,']/g, "").toUpperCase();

// Follows one sequence: `allowed` takes all symbols so far, from the end of the tune before on.
export class Form {
  constructor(symbols) {
    this.symbols = symbols;
    this.lengths = symbols.map(length);
    this.sizes = [...new Set(this.lengths.filter(Boolean))].sort((a, b) => b - a);
    this.tuplets = symbols.flatMap((symbol, id) => (isTuplet(symbol) ? [id] : []));
    const ends = [":|", "::"].filter((each) => symbols.includes(each));
    this.partEnds = ends.length ? ends : ["||", "|]", "|"].filter((each) => symbols.includes(each));
    this.seen = 0;
    this.#begin();
  }

  // A mask [vocab] of the symbols that may follow.
  allowed(sofar) {
    for (; this.seen < sofar.length; this.seen++) this.#follow(sofar[this.seen]);
    const mask = this.#next();
    if (!mask.includes(1)) throw new Error(`the model can't complete a bar of ${this.meter.slice(2)} after ${this.last}`);
    return mask;
  }

  #begin() {
    Object.assign(this, {
      measure: 0, meter: "", tonic: "", parts: 0, bars: 0, at: 0, pickup: null, inPickup: false,
      left: 0, scale: PLAIN, equal: 0, last: END, fits: new Map(),
    });
  }

  #follow(symbol) {
    const now = role(symbol);
    const sounding = length(symbol);
    if (now === "tune end") this.#begin();
    else if (now === "meter") [this.meter, this.measure] = [symbol, measure(symbol)];
    else if (now === "key") {
      this.tonic = symbol === "K:none" ? "" : symbol[2];
      this.fits.clear();
    } else if (isTuplet(symbol)) {
      this.scale = tuplet(symbol, this.meter);
      [this.left, this.equal] = [this.scale.span, 0];
    } else if (sounding) {
      this.at += this.left ? scaled(sounding, this.scale) : sounding;
      [this.left, this.equal] = [Math.max(0, this.left - 1), sounding];
    } else if (now === "bar") this.#endBar(symbol);
    this.last = symbol;
  }

  #endBar(symbol) {
    if (this.at && this.measure) {
      if (this.pickup === null) {
        this.pickup = this.at < this.measure ? this.at : 0;
        this.bars = this.pickup ? 0 : 1;
      } else if (this.inPickup) this.inPickup = false;
      else this.bars++;
      if (!["|", "|:"].includes(symbol) || this.bars >= BARS_PER_PART) {
        [this.parts, this.bars] = [this.parts + 1, 0];
        this.inPickup = this.pickup > 0;
      }
    }
    [this.at, this.left] = [0, 0];
  }

  #next() {
    if (!this.measure || this.last === END) return this.#mask(() => true);
    const pickup = this.pickup ?? 0;
    const lastBar = this.bars === BARS_PER_PART - 1;
    const rest = (this.inPickup ? pickup : lastBar ? this.measure - pickup : this.measure) - this.at;
    let closing = lastBar && this.parts > 0 && this.tonic !== "";
    if (this.left && this.equal) return this.#sounding([this.equal], closing);
    closing = closing && this.#fit(rest, closing);
    if (this.left) return this.#sounding(this.#inTuplet(this.scale, this.left, rest, closing), closing);
    if (rest <= 0) {
      if (!lastBar || this.inPickup) return this.#among(["|"]);
      return this.#among(this.parts + 1 === MOST_PARTS && this.partEnds.includes(":|") ? [":|"] : this.partEnds);
    }
    const between = this.parts > 0 && !this.at && !this.bars && this.inPickup === pickup > 0;
    if (between && this.parts === MOST_PARTS && this.symbols.includes(END)) return this.#among([END]);
    const mask = this.#notes(rest, closing);
    for (const id of this.tuplets) {
      const scale = tuplet(this.symbols[id], this.meter);
      mask[id] = this.#inTuplet(scale, scale.span, rest, closing).length ? 1 : 0;
    }
    const add = (symbols) => this.#among(symbols).forEach((bit, id) => (mask[id] |= bit));
    if (this.pickup === null && this.#isPickup()) add(["|"]);
    if (!this.parts && ["meter", "key"].includes(role(this.last))) add(["|:"]);
    if (between && this.parts >= FEWEST_PARTS && this.last !== "::") add([END]);
    return mask;
  }

  #isPickup() {
    return this.at > 0 && this.at <= this.measure / 2 && this.#fit(this.at, false)
      && this.#fit(this.measure - this.at, false);
  }

  #mask(holds) {
    return Uint8Array.from(this.symbols, (symbol, id) => (holds(symbol, id) ? 1 : 0));
  }

  #among(symbols) {
    return this.#mask((symbol) => symbols.includes(symbol));
  }

  #isTonic(id, altered) {
    return letter(this.symbols[id]) === this.tonic && /^[\^_=]/.test(this.symbols[id]) === altered;
  }

  #sounding(sizes, closing) {
    return this.#mask((_, id) => this.lengths[id] && sizes.includes(this.lengths[id]) && !(closing && this.#isTonic(id, true)));
  }

  #hasTonic(size) {
    return this.lengths.some((each, id) => each === size && this.#isTonic(id, false));
  }

  #notes(rest, closing) {
    const mask = this.#sounding(this.sizes.filter((each) => each < rest && this.#fit(rest - each, closing)), closing);
    this.lengths.forEach((each, id) => {
      if (each === rest && (!closing || this.#isTonic(id, false))) mask[id] = 1;
    });
    return mask;
  }

  #fit(rest, closing) {
    const name = `${rest} ${closing}`;
    if (!this.fits.has(name)) {
      const whole = this.sizes.includes(rest) && (!closing || this.#hasTonic(rest));
      this.fits.set(name, whole || this.sizes.some((each) => each < rest && this.#fit(rest - each, closing)));
    }
    return this.fits.get(name);
  }

  // The lengths that `count` notes of a tuplet may have.
  #inTuplet(scale, count, rest, closing) {
    return this.sizes.filter((each) => {
      const time = scaled(each * count, scale);
      return time < rest ? this.#fit(rest - time, closing) : time === rest && !closing;
    });
  }
}
