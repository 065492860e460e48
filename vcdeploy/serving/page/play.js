// Plays a tune that abcjs has drawn: one WebAudio oscillator per note, so no samples are loaded.

const LEAD = 0.15; // seconds before the first note
const RELEASE = 0.06;

export class Player {
  // changed(playing): called when it starts and stops.
  constructor(changed) {
    this.changed = changed;
    this.timers = [];
    this.scheduled = 0; // notes of the last start
  }

  get playing() {
    return this.master !== undefined;
  }

  start(tune, quartersPerMinute) {
    this.stop();
    this.context ??= new AudioContext();
    this.context.resume();
    const whole = 240 / quartersPerMinute; // seconds
    const begin = this.context.currentTime + LEAD;
    this.master = new GainNode(this.context, { gain: 0.25 });
    this.master.connect(this.context.destination);
    const notes = tune.setUpAudio().tracks.flat().filter((event) => event.cmd === "note");
    let end = 0;
    for (const note of notes) {
      const [from, seconds] = [note.start * whole, note.duration * whole];
      this.#sound(note.pitch, begin + from, seconds);
      this.#mark(tune, note, (LEAD + from) * 1000, seconds * 1000);
      end = Math.max(end, from + seconds);
    }
    this.scheduled = notes.length;
    this.timers.push(setTimeout(() => this.stop(), (LEAD + end) * 1000 + 200));
    this.changed(true);
  }

  stop() {
    if (!this.playing) return;
    this.timers.forEach(clearTimeout);
    this.timers = [];
    this.master.disconnect();
    this.master = undefined;
    document.querySelectorAll("#score .playing").forEach((each) => each.classList.remove("playing"));
    this.changed(false);
  }

  // pitch: as in MIDI.
  #sound(pitch, at, seconds) {
    const loudness = new GainNode(this.context, { gain: 0 });
    loudness.gain.setValueAtTime(0, at);
    loudness.gain.linearRampToValueAtTime(1, at + 0.01);
    loudness.gain.exponentialRampToValueAtTime(0.35, at + Math.max(0.02, seconds - RELEASE));
    loudness.gain.linearRampToValueAtTime(0, at + Math.max(0.04, seconds - 0.005));
    const oscillator = new OscillatorNode(this.context, { type: "triangle", frequency: 440 * 2 ** ((pitch - 69) / 12) });
    oscillator.connect(loudness).connect(this.master);
    oscillator.start(at);
    oscillator.stop(at + seconds);
  }

  #mark(tune, note, after, lasting) {
    const drawn = tune.getElementFromChar(note.startChar)?.abselem?.elemset ?? [];
    const marked = (on) => () => drawn.forEach((each) => each.classList.toggle("playing", on));
    this.timers.push(setTimeout(marked(true), after), setTimeout(marked(false), after + lasting));
  }
}
