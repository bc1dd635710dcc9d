// How times, durations and states are said.

import {h} from "./dom.js";

// seconds says a duration as precisely as matters.
export function seconds(n) {
  if (n < 0.0005) return "0 ms";
  if (n < 1) return `${Math.round(n * 1000)} ms`;
  if (n < 10) return `${n.toFixed(2)} s`;
  if (n < 60) return `${n.toFixed(1)} s`;
  if (n < 3600) return `${Math.floor(n / 60)} min ${Math.floor(n % 60)} s`;
  if (n < 86400) return `${Math.floor(n / 3600)} h ${Math.floor(n % 3600 / 60)} min`;
  return `${Math.floor(n / 86400)} d ${Math.floor(n % 86400 / 3600)} h`;
}

export function ago(text, now = Date.now()) {
  const past = (now - Date.parse(text)) / 1000;
  if (Number.isNaN(past)) return "";
  if (past < 2) return "just now"; // clocks differ a little, and so this is the future too
  if (past < 60) return `${Math.floor(past)} s ago`;
  if (past < 3600) return `${Math.floor(past / 60)} min ago`;
  if (past < 172800) return `${Math.floor(past / 3600)} h ago`;
  return `${Math.floor(past / 86400)} days ago`;
}

// stamp writes a time as all pages and commands of salvor do: in UTC, to the second, with its zone.
export function stamp(text) {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? "" : at.toISOString().slice(0, 19).replace("T", " ") + " UTC";
}

// moment shows a time as how long ago it was, and in full to who points at it; it is kept up to date.
export function moment(text) {
  if (!text) return "–";
  return h("time", {datetime: text, "data-ago": "", title: stamp(text)}, ago(text));
}

// clock shows a time.
export function clock(text) {
  return h("time", {datetime: text}, stamp(text));
}

setInterval(() => {
  for (const t of document.querySelectorAll("time[data-ago]")) {
    const text = ago(t.dateTime);
    if (t.textContent !== text) t.textContent = text;
  }
}, 1000);

export function count(n, one, many) {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}

// kindOf says what sort of state a word of any of the faces is: which shape and colour it has.
export function kindOf(state) {
  const word = String(state ?? "").toLowerCase();
  if (/fail|error/.test(word)) return "bad";
  if (/wait|hold|call-back/.test(word)) return "wait";
  if (/^rescued?$/.test(word)) return "rescue";
  if (/^(active|available|up|completed|done)$/.test(word)) return "good";
  if (/ing$|build|migrat|verify|password/.test(word)) return "work";
  return "still";
}
