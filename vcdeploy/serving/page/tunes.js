// The tunes tab: a score that plays, and whose bars can begin the next tune.

import { colour, mean, percent, shareOfGru } from "./compute.js";
import { Runs, figures, keep, options, takeSeed, values } from "./controls.js";
import { bars } from "./notation.js";
import { Player } from "./play.js";

const KEYS = ["Gmaj", "Dmaj", "Amaj", "Cmaj", "Fmaj", "Bbmaj", "Emin", "Amin", "Dmin", "Gmin", "Bmin", "Edor", "Ador", "Ddor", "Amix", "Dmix"];
const METERS = ["6/8", "4/4", "2/4", "3/4", "9/8", "2/2", "12/8"];
const find = (id) => document.getElementById(id);

export class TunesView {
  constructor(engine, models) {
    Object.assign(this, { engine, models, start: [] });
    this.form = find("tunes-form");
    options(this.form.elements.model, models.map(({ id }) => id));
    options(this.form.elements.key, KEYS);
    options(this.form.elements.meter, METERS);
    keep(this.form, "vcdeploy.tunes");
    this.runs = new Runs(this.form, find("tunes-error"));
    this.player = new Player((playing) => (find("play").textContent = playing ? "Stop playing" : "Play"));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.compose();
    });
    find("play").addEventListener("click", () => this.play());
    const pace = () => (find("pace-shown").textContent = find("pace").value);
    find("pace").addEventListener("input", pace);
    find("pace").addEventListener("change", () => {
      if (this.player.playing) this.player.start(this.drawn, Number(find("pace").value));
      if (this.tune) this.offer();
    });
    pace();
  }

  play() {
    if (this.player.playing) this.player.stop();
    else this.player.start(this.drawn, Number(find("pace").value));
  }

  async compose() {
    const { model, key, meter, temperature, topP } = values(this.form);
    const seed = takeSeed(this.form, this.used);
    this.used = { seed };
    find("tunes-status").textContent = "Generating";
    const fields = this.start.length ? { key: null, meter: null } : { key: key || null, meter: meter || null };
    const request = { model, ...fields, start: this.start, temperature: Number(temperature), topP: Number(topP), seed };
    await this.runs.run(async (signal) => {
      const tune = await this.engine.compose(request, signal);
      this.show(tune, this.models.find(({ id }) => id === model));
    });
  }

  show(tune, model) {
    this.player.stop();
    this.tune = tune;
    find("tunes-result").hidden = false;
    const title = `${tune.key ?? "No key"}, ${tune.meter ?? "free meter"}, seed ${tune.seed}`;
    find("tune-title").textContent = title;
    this.draw(title);
    find("abc").textContent = tune.abc;
    const m = tune.m.filter((each) => each !== null);
    const share = shareOfGru(m, model);
    figures(find("tunes-figures"), {
      tokens: m.length, m: m.length ? mean(m).toFixed(2) : "–", share: share === null ? "–" : percent(share),
    });
    find("tune-symbols").replaceChildren(...tune.symbols.map((symbol, i) => {
      const span = document.createElement("span");
      span.textContent = symbol;
      span.className = tune.m[i] === null ? "given" : colour(tune.m[i]);
      if (tune.m[i] !== null) span.title = `m ${tune.m[i].toFixed(2)}`;
      return span;
    }));
    this.listBars();
    this.offer();
    const unfinished = tune.complete ? "" : " It has no end.";
    find("tunes-status").textContent = `A tune in ${title}: ${bars(tune.symbols).length} bars.${unfinished}`;
  }

  // As many bars per line as fit; the heading is the title.
  draw(title) {
    const width = find("score").clientWidth;
    const wrap = { minSpacing: 1.6, maxSpacing: 2.6, preferredMeasuresPerLine: width < 600 ? 2 : 4 };
    [this.drawn] = ABCJS.renderAbc("score", this.tune.abc.replace(/^T:.*\n/m, ""), {
      responsive: "resize", staffwidth: Math.max(300, width - 40), wrap, paddingtop: 5, ariaLabel: `Score of a tune in ${title}`,
    });
  }

  // A button for each bar, which makes it the start of the next tune.
  listBars() {
    const head = this.tune.symbols.filter((symbol) => /^[MK]:/.test(symbol)).slice(0, 2);
    const found = bars(this.tune.symbols);
    find("bars").replaceChildren(...found.map((bar, i) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = i + 1;
      button.title = bar.join(" ");
      button.setAttribute("aria-label", `Bar ${i + 1}: ${bar.join(" ")}`);
      button.setAttribute("aria-pressed", "false");
      button.addEventListener("click", () => {
        const on = button.getAttribute("aria-pressed") !== "true";
        for (const each of find("bars").children) each.setAttribute("aria-pressed", String(on && each === button));
        this.begin(on ? [...head, ...bar] : []);
      });
      return button;
    }));
    this.begin(this.start);
  }

  begin(start) {
    this.start = start;
    const said = find("start");
    said.hidden = !start.length;
    const clear = document.createElement("button");
    clear.type = "button";
    clear.textContent = "Clear";
    clear.addEventListener("click", () => {
      for (const each of find("bars").children) each.setAttribute("aria-pressed", "false");
      this.begin([]);
      this.form.elements.go.focus();
    });
    said.replaceChildren(`The next tune begins with ${start.join(" ")} `, clear);
    for (const name of ["key", "meter"]) this.form.elements[name].disabled = start.length > 0;
  }

  // The files to download.
  offer() {
    const abc = this.tune.abc.replace("\nK:", `\nQ:1/4=${find("pace").value}\nK:`);
    const set = (link, content, type) => {
      URL.revokeObjectURL(link.href);
      link.href = URL.createObjectURL(new Blob([content], { type }));
    };
    set(find("abc-file"), abc, "text/vnd.abc");
    const midi = ABCJS.synth.getMidiFile(abc, { midiOutputType: "binary" });
    set(find("midi-file"), Array.isArray(midi) ? midi[0] : midi, "audio/midi");
  }
}
