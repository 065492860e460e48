// The text tab: generated text, coloured by m, with the figures of every symbol.

import { colour, mean, percent, shareOfGru } from "./compute.js";
import { Runs, figures, keep, options, takeSeed, values } from "./controls.js";

const SHOWN = { "\n": "⏎", " ": "␣", "\t": "⇥" };
const shown = (text) => SHOWN[text] ?? text;
const find = (id) => document.getElementById(id);

export class TextView {
  constructor(engine, models) {
    Object.assign(this, { engine, models, tokens: [], chosen: -1 });
    this.form = find("text-form");
    this.text = find("text");
    this.strip = find("strip");
    options(this.form.elements.model, models.map(({ id }) => id));
    keep(this.form, "vcdeploy.text");
    this.runs = new Runs(this.form, find("text-error"));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.generate(this.form.elements.prompt.value);
    });
    this.form.elements.more.addEventListener("click", () => this.generate(this.prompt + this.written));
    this.form.elements.prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.form.requestSubmit();
    });
    const at = (event) => event.target.closest("[data-at]");
    this.text.addEventListener("pointerover", (event) => at(event) && this.choose(Number(at(event).dataset.at), false));
    this.text.addEventListener("focusin", (event) => at(event) && this.choose(Number(at(event).dataset.at), false));
    this.text.addEventListener("keydown", (event) => this.move(event));
    this.strip.addEventListener("pointermove", (event) => {
      const place = Math.floor((event.offsetX / this.strip.clientWidth) * this.tokens.length);
      if (this.tokens[place]) this.choose(place, false);
    });
    new ResizeObserver(() => this.draw()).observe(this.strip);
  }

  get written() {
    return this.tokens.map(({ text }) => text).join("");
  }

  async generate(prompt) {
    const { model, length, temperature, topP } = values(this.form);
    const used = this.models.find(({ id }) => id === model);
    const seed = takeSeed(this.form, this.used);
    this.used = { seed };
    Object.assign(this, { prompt, tokens: [], chosen: -1 });
    const before = document.createElement("span");
    before.className = "prompt";
    before.textContent = prompt;
    this.text.replaceChildren(before);
    find("detail").replaceChildren();
    find("text-result").hidden = false;
    find("text-status").textContent = "Generating";
    this.form.elements.more.disabled = true;
    const request = { model, prompt, length: Number(length), temperature: Number(temperature), topP: Number(topP), seed };
    let begin, counted, drawing;
    const tell = () => {
      const m = this.tokens.map((each) => each.m);
      const share = shareOfGru(m, used);
      const elapsed = (performance.now() - begin) / 1000;
      // The first piece has no time of its own: it starts the clock.
      const speed = m.length > counted && elapsed > 0 ? Math.round((m.length - counted) / elapsed).toLocaleString("en") : "–";
      figures(find("text-figures"), {
        tokens: m.length, speed, m: m.length ? mean(m).toFixed(2) : "–", share: share === null ? "–" : percent(share),
      });
      return { m, share };
    };
    await this.runs.run(async (signal) => {
      try {
        for await (const tokens of this.engine.complete(request, signal)) {
          signal.throwIfAborted(); // pieces that arrived before it was stopped
          if (begin === undefined) [begin, counted] = [performance.now(), tokens.length];
          this.add(tokens);
          drawing ??= requestAnimationFrame(() => {
            drawing = undefined;
            tell();
            this.draw();
          });
        }
      } finally {
        const { m, share } = tell();
        this.draw();
        const cost = share === null ? "" : `, ${percent(share)} of the operations of a dense GRU`;
        find("text-status").textContent = m.length ? `${m.length} symbols, mean m ${mean(m).toFixed(2)}${cost}` : "No symbols";
      }
    });
    this.form.elements.more.disabled = !this.tokens.length;
  }

  add(tokens) {
    const spans = tokens.filter(({ text }) => text !== "").map((token) => {
      const span = document.createElement("span");
      span.className = colour(token.m);
      span.textContent = token.text === "\n" ? "⏎\n" : token.text;
      span.dataset.at = this.tokens.length;
      span.tabIndex = this.tokens.length ? -1 : 0;
      this.tokens.push(token);
      return span;
    });
    this.text.append(...spans);
  }

  // The arrow keys, Home and End move through the symbols.
  move(event) {
    const last = this.tokens.length - 1;
    const places = { ArrowLeft: this.chosen - 1, ArrowRight: this.chosen + 1, Home: 0, End: last };
    if (!(event.key in places) || last < 0) return;
    event.preventDefault();
    this.choose(Math.min(last, Math.max(0, places[event.key])), true);
  }

  choose(place, focus) {
    const spans = this.text.querySelectorAll("[data-at]");
    spans[this.chosen]?.classList.remove("chosen");
    if (spans[this.chosen]) spans[this.chosen].tabIndex = -1;
    this.chosen = place;
    spans[place].classList.add("chosen");
    spans[place].tabIndex = 0;
    if (focus) spans[place].focus();
    this.explain(this.tokens[place]);
    this.draw();
  }

  explain({ text, m, logProbability, others }) {
    const line = document.createElement("p");
    const name = document.createElement("code");
    name.textContent = shown(text);
    line.append(name, ` m ${m.toFixed(2)}, probability ${percent(Math.exp(logProbability))}. Most likely were:`);
    const list = document.createElement("ol");
    list.append(...others.map((each) => {
      const item = document.createElement("li");
      const symbol = document.createElement("code");
      symbol.textContent = shown(each.text);
      item.append(symbol, ` ${percent(Math.exp(each.logProbability))}`);
      return item;
    }));
    find("detail").replaceChildren(line, list);
  }

  // A bar per symbol, as high as its m.
  draw() {
    const { strip, tokens } = this;
    const [width, height] = [strip.clientWidth, strip.clientHeight];
    if (!width) return;
    [strip.width, strip.height] = [width * devicePixelRatio, height * devicePixelRatio];
    const pen = strip.getContext("2d");
    pen.scale(devicePixelRatio, devicePixelRatio);
    const step = width / Math.max(1, tokens.length);
    this.colours ??= Array.from({ length: 10 }, (_, i) => getComputedStyle(document.querySelector(`.ramp .m${i}`)).backgroundColor);
    tokens.forEach(({ m }, i) => {
      pen.fillStyle = this.colours[Math.min(9, Math.floor(m * 10))];
      pen.fillRect(i * step, height * (1 - m), Math.max(1, step - (step > 4 ? 1 : 0)), height * m);
    });
    if (this.chosen >= 0) {
      pen.fillStyle = "#d55e00";
      pen.fillRect(this.chosen * step, 0, Math.max(2, step / 4), height);
    }
    const m = tokens.map((each) => each.m);
    strip.setAttribute("aria-label", m.length
      ? `m of ${m.length} symbols, from ${Math.min(...m).toFixed(2)} to ${Math.max(...m).toFixed(2)}, mean ${mean(m).toFixed(2)}`
      : "m of the symbols");
  }
}
