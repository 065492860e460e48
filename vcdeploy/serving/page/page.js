// The page: asks its engine for models, and shows a tab for each kind that there is.

import * as engine from "./engine.js";
import { TextView } from "./text.js";
import { TunesView } from "./tunes.js";

const find = (id) => document.getElementById(id);
const KINDS = { text: TextView, tunes: TunesView };

function choose(name) {
  for (const each of Object.keys(KINDS)) {
    const tab = find(`tab-${each}`);
    tab.setAttribute("aria-selected", String(each === name));
    tab.tabIndex = each === name ? 0 : -1;
    find(`panel-${each}`).hidden = each !== name;
  }
}

function fail(message) {
  find("failure").textContent = message;
  find("failure").hidden = !message;
}

// signedIn: after a token was given.
async function start(signedIn) {
  fail("");
  let models;
  try {
    models = await engine.models();
  } catch (error) {
    const refused = error instanceof engine.Unauthorized;
    find("login").hidden = !refused;
    fail(!refused ? error.message : signedIn ? "The server does not accept this token." : "");
    return;
  }
  find("login").hidden = true;
  const of = { text: models.filter(({ kind }) => kind === "text"), tunes: models.filter(({ kind }) => kind === "music") };
  const names = Object.keys(KINDS).filter((name) => of[name].length);
  if (!names.length) return fail("There are no models here.");
  for (const name of Object.keys(KINDS)) find(`tab-${name}`).hidden = !names.includes(name);
  for (const name of names) new KINDS[name](engine, of[name]);
  find("tabs").hidden = false;
  choose(names.includes(location.hash.slice(1)) ? location.hash.slice(1) : names[0]);
  const tabs = names.map((name) => find(`tab-${name}`));
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => {
      choose(names[i]);
      history.replaceState(null, "", `#${names[i]}`);
    });
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(i + step + tabs.length) % tabs.length];
      next.focus();
      next.click();
    });
  });
  document.body.dataset.ready = "";
}

find("login").addEventListener("submit", (event) => {
  event.preventDefault();
  engine.useToken?.(find("token").value);
  start(true);
});
start(false);
