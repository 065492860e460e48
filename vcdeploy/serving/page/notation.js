// Symbols of tunes and their ABC: the part of vcdeploy/music/notation.py that generated tunes need.
//
// Lengths are whole numbers of TICKS per eighth, which every tuplet of up to nine notes divides.

export const END = "<end>";
export const TICKS = 16 * 2520;

const BARS = new Set(["|", "||", "|]", "|:", ":|", "::"]);
const ROLES = { z: "rest", "(": "tuplet", "[": "ending", K: "key", M: "meter" };
const SOUNDING = /^(?:(?:\^\^?|__?|=)?[A-Ga-g][,']*|[zx])(\d{0,3}(?:\/\d{0,3})*)$/;
const METER = /^(?:\d{1,2}|\(\d{1,2}(?:\+\d{1,2})*\))\/[1-9]\d?$/;
const IN_TIME_OF = { 2: 3, 3: 2, 4: 3, 6: 2, 8: 3 };

// bar, rest, note, tuplet, ending, key, meter or tune end.
export function role(symbol) {
  if (BARS.has(symbol)) return "bar";
  if (symbol === END) return "tune end";
  return ROLES[symbol[0]] ?? "note";
}

// The written pitch of a note: `^c` for `^c/2`.
export const pitch = (symbol) => symbol.replace(/[0-9/]+$/, "");

// The length of a note or rest, or 0 if the symbol is none.
export function length(symbol) {
  const found = SOUNDING.exec(symbol);
  if (!found) return 0;
  const [whole, ...parts] = found[1].split("/");
  const eighths = parts.reduce((value, part) => value / Number(part || 2), Number(whole || 1));
  return Number.isInteger(eighths * 16) && eighths <= 64 ? eighths * TICKS : 0;
}

// The length of a measure; 0 for a free meter.
export function measure(meter) {
  if (!METER.test(meter.slice(2))) return 0;
  const [beats, unit] = meter.slice(2).replace(/[()]/g, "").split("/");
  return (8 * TICKS * beats.split("+").reduce((sum, each) => sum + Number(each), 0)) / Number(unit);
}

export const isTuplet = (symbol) => /^\([2-9](?::[1-9]:[1-9])?$/.test(symbol);

// `notes` notes take the time of `time`; `span` of them follow.
export function tuplet(symbol, meter) {
  const [notes, time, span] = symbol.slice(1).split(":").map(Number);
  const beats = Number(meter.slice(2).split("/")[0]);
  const compound = beats % 3 === 0 && beats > 3;
  return { notes, time: time || (IN_TIME_OF[notes] ?? (compound ? 3 : 2)), span: span || notes };
}

export const PLAIN = { notes: 1, time: 1, span: 0 };
export const scaled = (ticks, { notes, time }) => (ticks * time) / notes;

// A tune without tuplet marks that lack notes and without empty bars.
export function repaired(symbols) {
  const whole = [];
  symbols.forEach((symbol, place) => {
    if (role(symbol) === "tuplet") {
      const [notes, , span] = symbol.slice(1).split(":").map(Number);
      const governed = symbols.slice(place + 1, place + 1 + (span || notes));
      if (governed.length < (span || notes) || governed.some((each) => !["note", "rest"].includes(role(each)))) return;
    } else if (symbol === "|" && (!whole.length || ["bar", "key", "meter"].includes(role(whole.at(-1))))) return;
    whole.push(symbol);
  });
  return whole;
}

// A tune as ABC: header, four bars per line, notes grouped by beats.
export function toAbc(symbols, title) {
  const tune = symbols.filter((symbol) => symbol !== END);
  const body = tune.findIndex((symbol) => !["key", "meter"].includes(role(symbol)));
  const head = body < 0 ? tune : tune.slice(0, body);
  const meter = head.find((symbol) => role(symbol) === "meter") ?? "";
  const key = head.find((symbol) => role(symbol) === "key") ?? "K:Cmaj";
  const lines = ["X:1", `T:${title}`, ...(meter ? [meter] : []), "L:1/8", key, layOut(tune.slice(head.length), meter)];
  return `${lines.join("\n")}\n`;
}

function beat(meter) {
  const ticks = measure(meter);
  if (ticks && meter === "M:2/2") return 4 * TICKS;
  return ticks && meter.endsWith("/8") && ticks % (3 * TICKS) === 0 ? 3 * TICKS : 2 * TICKS;
}

function layOut(symbols, meter) {
  const lines = [""];
  const roles = symbols.map(role);
  const sounds = (each) => each === "note" || each === "rest";
  let [bars, place, scale, left] = [0, 0, PLAIN, 0];
  symbols.forEach((symbol, i) => {
    const [before, now, after] = [roles[i - 1] ?? "", roles[i], roles[i + 1] ?? ""];
    if (symbol === "|:" && lines.at(-1)) {
      lines.push("");
      bars = 0;
    }
    const inBeat = sounds(before) && place % beat(meter) !== 0;
    const glued = before === "tuplet" || (now === "ending" && before === "bar")
      || ((sounds(now) || now === "tuplet") && inBeat) || !lines.at(-1);
    lines[lines.length - 1] += (glued ? "" : " ") + (now === "key" || now === "meter" ? `[${symbol}]` : symbol);
    if (now === "meter") meter = symbol;
    else if (now === "tuplet") {
      scale = tuplet(symbol, meter);
      left = scale.span;
    } else if (sounds(now)) {
      place += left ? scaled(length(symbol), scale) : length(symbol);
      left = Math.max(0, left - 1);
    } else if (now === "bar") {
      bars += symbol !== "|:";
      place = 0;
      if ((bars === 4 || !["|", "|:"].includes(symbol)) && after !== "" && after !== "ending") {
        lines.push("");
        bars = 0;
      }
    }
  });
  return lines.join("\n");
}

// The bars of a tune: the symbols of each, without bar lines and endings, and never empty.
export function bars(symbols) {
  const found = [[]];
  for (const symbol of symbols) {
    const now = role(symbol);
    if (now === "bar") found.push([]);
    else if (["note", "rest", "tuplet"].includes(now)) found.at(-1).push(symbol);
  }
  return found.filter((each) => each.length);
}
