// The frame of the console: which view a place shows, who is signed in, the theme, and the stream of events.

import {alarm, fill, heading, loading, printable, say, trouble} from "./dom.js";
import {ask, Refused, token} from "./api.js";
import {follow, sleep} from "./stream.js";
import {signIn} from "./signin.js";
import {machines} from "./machines.js";
import {machine} from "./machine.js";
import {diagnoses} from "./diagnoses.js";
import {servers} from "./servers.js";
import {server} from "./server.js";
import {hosts} from "./hosts.js";
import {host} from "./host.js";
import {plan, plans} from "./plans.js";

const views = [
  [["machines"], machines], [["machines", ":id"], machine], [["machines", ":id", "diagnoses"], diagnoses], [["servers"], servers], [["servers", ":id"], server],
  [["hosts"], hosts], [["hosts", ":id"], host], [["plans"], plans], [["plans", ":id"], plan],
];

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const leave = document.getElementById("leave");
const live = document.getElementById("live");
let current = new AbortController(); // ends all that belongs to the view before
let known = false; // the server has said who may come in, and we may
let asking = false; // the form is shown

// find gives the view of a place, and its arguments.
function find(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  for (const [pattern, view] of views) {
    if (pattern.length === parts.length && pattern.every((p, i) => p.startsWith(":") || p === parts[i])) {
      return {view, id: parts[1], query: Object.fromEntries(new URLSearchParams(query)), root: pattern[0]};
    }
  }
  return undefined;
}

async function show() {
  current.abort();
  current = new AbortController();
  const {signal} = current;
  asking = false;
  tell("none");
  if (!known && !await enter(signal)) return;
  const place = find(location.hash);
  if (!place) {
    location.replace("#/machines");
    return;
  }
  for (const a of nav.querySelectorAll("a")) {
    if (a.hash === "#/" + place.root) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  fill(main, loading("the page"));
  try {
    await place.view({main, signal, id: place.id, query: place.query, title, stream: (query, on) => watch(query, on, signal), every: (ms, look) => repeat(ms, look, signal)});
  } catch (error) {
    if (!signal.aborted && error.status !== 401) {
      title("Trouble");
      fill(main, heading("This page cannot be shown"), trouble(error, show));
    }
  }
}


// title names the page, in the window's title and to screen readers, and takes the focus to its heading.
function title(text) {
  document.title = printable(`${text} · salvor`);
  say(text);
  queueMicrotask(() => {
    const active = document.activeElement;
    if (!active || active === document.body || active === main || !main.contains(active)) (main.querySelector("h1") ?? main).focus({preventScroll: true});
  });
}

// enter asks the server whether it takes us as we are.
async function enter(signal) {
  try {
    await ask("/salvor/v1/states", {signal});
  } catch (error) {
    if (signal.aborted) return false;
    if (error.status !== 401) {
      title("Trouble");
      fill(main, heading("The console cannot begin"), trouble(error, show));
    }
    return false;
  }
  known = true;
  nav.hidden = false;
  leave.hidden = token.get() === "";
  return true;
}

// The server does not know us: the form, with what it said where a token was refused.
document.addEventListener("unknown", (event) => {
  if (asking) return; // another request was refused too
  asking = true;
  const had = token.get() !== "";
  out();
  current.abort();
  title("Sign in");
  fill(main, signIn(had ? event.detail : undefined, show));
  main.querySelector("input")?.focus();
});

function out() {
  token.drop();
  known = false;
  nav.hidden = leave.hidden = true;
  tell("none");
}

leave.addEventListener("click", () => {
  out();
  say("Signed out");
  location.hash = "#/machines";
  show();
});

const lights = {live: "Live", away: "Connection lost, trying again", off: "Refreshing every 10 s"};

function tell(state) {
  live.hidden = !lights[state];
  if (live.dataset.state === "away" && state === "live") say("Live again");
  if (state === "away" && live.dataset.state !== "away") alarm("The connection to the server is lost; what is shown may be old.");
  if (state !== "away") alarm("");
  live.dataset.state = state;
  document.getElementById("live-text").textContent = lights[state] ?? "";
}

// watch follows events for a view: on.event for each, on.look when all should be read again. Many looks that are
// asked for at once are one, and the next waits until the one before has ended.
function watch(query, on, signal) {
  let wanted = false;
  let busy = false;
  const look = async () => {
    wanted = true;
    if (busy) return;
    busy = true;
    while (wanted && !signal.aborted) {
      wanted = false;
      try {
        await on.look();
      } catch (error) {
        if (!signal.aborted && !(error instanceof Refused)) throw error;
      }
      await new Promise((r) => setTimeout(r, on.pause ?? 300));
    }
    busy = false;
  };
  follow(query, {
    signal, gap: look,
    state: (state) => { if (!signal.aborted) tell(state); },
    heard: (event) => { on.event?.(event); look(); },
  });
  return look;
}

// repeat looks again and again, where there is no event to wait for.
async function repeat(ms, look, signal) {
  tell("off");
  for (;;) {
    await sleep(ms, signal);
    if (signal.aborted) return;
    try {
      await look();
      if (!signal.aborted) tell("off");
    } catch (error) {
      if (signal.aborted || error.status === 401) return;
      if (!(error instanceof Refused)) throw error;
      tell("away");
    }
  }
}

// The theme is the system's unless someone has chosen one.
const theme = document.getElementById("theme");
function paint(word) {
  if (word) document.documentElement.dataset.theme = word;
  else delete document.documentElement.dataset.theme;
}
theme.value = localStorage.getItem("salvor-theme") ?? "";
paint(theme.value);
theme.addEventListener("change", () => {
  paint(theme.value);
  if (theme.value) localStorage.setItem("salvor-theme", theme.value);
  else localStorage.removeItem("salvor-theme");
});

// The skip link must not change the place.
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

addEventListener("hashchange", show);
show();
