// Draws the provision states from the program's own table (GET /salvor/v1/states): states that stay are in the upper
// row, each operation is a column below. The live state is lit, what it may become is outlined and says by what.

import {h, s} from "./dom.js";
import {ask} from "./api.js";
import {kindOf} from "./words.js";

const box = {width: 112, height: 32};
const pitch = {x: 122, y: 58};
const top = 34; // of the upper row
const first = 128; // of the columns

// Events that stay within an operation: what they join is one column.
const within = ["wait", "resume", "hold", "fail"];

let table;

// states reads the table, once.
export async function states(signal) {
  table ??= layOut(await ask("/salvor/v1/states", {signal}));
  return table;
}

// columns puts the passing states of an operation together, in the order of the table.
function columns({states, transitions}) {
  const passing = states.filter((one) => !one.stable).map((one) => one.state);
  const of = new Map(passing.map((name) => [name, [name]]));
  for (const t of transitions) {
    const a = of.get(t.from);
    const b = of.get(t.to);
    if (!within.includes(t.event) || !a || !b || a === b) continue;
    a.push(...b);
    for (const name of b) of.set(name, a);
  }
  for (const column of of.values()) column.sort((a, b) => passing.indexOf(a) - passing.indexOf(b));
  return [...new Set(passing.map((name) => of.get(name)))];
}

// layOut gives every state a place. A stable one stands over the operations that begin or end in it.
function layOut({states, transitions}) {
  const at = new Map();
  const all = columns({states, transitions});
  all.forEach((column, x) => column.forEach((name, y) => at.set(name, {name, x, y, column})));
  let least = 0;
  for (const {state} of states.filter((one) => one.stable)) {
    const near = new Set();
    for (const t of transitions) {
      if (t.verb && t.from === state && at.get(t.to)?.column) near.add(at.get(t.to).x);
      if (t.event && t.to === state && at.get(t.from)?.column) near.add(at.get(t.from).x);
    }
    const mean = near.size ? [...near].reduce((sum, x) => sum + x, 0) / near.size : least;
    const x = Math.max(mean, least);
    least = x + 1.05;
    at.set(state, {name: state, x, y: -1});
  }
  for (const one of at.values()) {
    one.left = 8 + one.x * pitch.x;
    one.top = one.y < 0 ? top : first + one.y * pitch.y;
    one.middle = {x: one.left + box.width / 2, y: one.top + box.height / 2};
  }
  const places = [...at.values()];
  return {
    transitions, at,
    width: Math.max(...places.map((p) => p.left)) + box.width + 22,
    height: Math.max(...places.map((p) => p.top)) + box.height + 26,
  };
}

// line is the way of an arrow from a state to another.
function line(a, b) {
  const right = (p) => ({x: p.left + box.width, y: p.middle.y});
  const low = (p) => p.top + box.height;
  if (a.y < 0 && b.y < 0) { // both stay: over the row
    const lift = top - 24;
    return `M${a.middle.x} ${a.top}C${a.middle.x} ${lift} ${b.middle.x} ${lift} ${b.middle.x} ${b.top - 2}`;
  }
  if (a.column && a.column === b.column) {
    if (b.y === a.y + 1) return `M${a.middle.x - 12} ${low(a)}L${b.middle.x - 12} ${b.top - 2}`;
    if (b.y === a.y - 1) return `M${a.middle.x + 12} ${a.top}L${b.middle.x + 12} ${low(b) + 2}`;
    const from = right(a);
    const to = right(b);
    return `M${from.x} ${from.y}C${from.x + 16} ${from.y} ${to.x + 16} ${to.y} ${to.x + 2} ${to.y}`;
  }
  if (a.y < 0) {
    if (b.y === 0) return `M${a.middle.x} ${low(a)}C${a.middle.x} ${low(a) + 36} ${b.middle.x - 14} ${b.top - 36} ${b.middle.x - 14} ${b.top - 2}`;
    return `M${a.middle.x} ${low(a)}C${a.middle.x} ${first - 20} ${b.left - 16} ${first - 30} ${b.left - 2} ${b.middle.y}`;
  }
  if (b.y < 0) {
    if (a.y === 0) return `M${a.middle.x + 14} ${a.top}C${a.middle.x + 14} ${a.top - 36} ${b.middle.x + 8} ${low(b) + 36} ${b.middle.x + 8} ${low(b) + 2}`;
    const from = right(a);
    return `M${from.x} ${from.y}C${from.x + 20} ${first - 30} ${b.middle.x + 8} ${first - 20} ${b.middle.x + 8} ${low(b) + 2}`;
  }
  const leftward = b.x < a.x;
  const from = leftward ? {x: a.left, y: a.middle.y} : right(a);
  const to = leftward ? {x: b.left + box.width + 2, y: b.middle.y} : {x: b.left - 2, y: b.middle.y};
  const bend = leftward ? -30 : 30;
  return `M${from.x} ${from.y}C${from.x + bend} ${from.y} ${to.x - bend} ${to.y} ${to.x} ${to.y}`;
}

// usual arrows are always drawn, faintly: into an operation, out of it, and along it.
function usual(a, b) {
  return a.column === b.column && a.column || a.y < 0 && b.y === 0 || a.y === 0 && b.y < 0;
}

function head(id, kind) {
  return s("marker", {id, class: kind, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto"}, s("path", {d: "M0 0 8 4 0 8Z"}));
}

// ways are what a state may become: the words of each neighbour.
function ways({transitions}, now) {
  const out = new Map();
  for (const t of transitions) {
    if (t.from !== now) continue;
    const known = out.get(t.to) ?? {to: t.to, verbs: [], events: []};
    if (t.verb) known.verbs.push(t.verb);
    else known.events.push(t.event);
    out.set(t.to, known);
  }
  return [...out.values()];
}

// picture draws the states of a machine that is in one of them.
export function picture(table, now, aim) {
  const open = ways(table, now);
  const reach = new Map(open.map((one) => [one.to, one]));
  const seen = new Set();
  const faint = [];
  const lit = [];
  for (const t of table.transitions) {
    const key = t.from + "\n" + t.to;
    const a = table.at.get(t.from);
    const b = table.at.get(t.to);
    if (seen.has(key) || !a || !b || a === b) continue;
    seen.add(key);
    if (t.from === now) lit.push(s("path", {class: t.verb ? "arrow lit" : "arrow lit self", d: line(a, b), "marker-end": "url(#arrow-lit)"}));
    else if (usual(a, b)) faint.push(s("path", {class: "arrow", d: line(a, b), "marker-end": "url(#arrow)"}));
  }
  const svg = s("svg", {
    class: "states", viewBox: `0 0 ${table.width} ${table.height}`, width: table.width, height: table.height, role: "img",
    "aria-label": `The provision states. ${sentence(now, open)}`,
  }, s("defs", null, head("arrow", "faint"), head("arrow-lit", "lit")), faint, lit,
  [...table.at.values()].map((place) => node(place, now, aim, reach.get(place.name))));
  const frame = h("div", {class: "scroll", tabindex: 0, role: "group", "aria-label": "Picture of the provision states; it may be scrolled"}, svg);
  new ResizeObserver(() => { // where the picture is wider than the screen, the live state is in sight
    const place = table.at.get(now);
    if (place) frame.scrollLeft = place.middle.x * svg.clientWidth / table.width - frame.clientWidth / 2;
  }).observe(frame);
  return [frame, h("p", {class: "legend"}, sentence(now, open))];
}

function node(place, now, aim, reached) {
  const live = place.name === now;
  const kind = kindOf(place.name);
  const said = reached && [...reached.verbs, ...reached.events.map((e) => `(${e})`)].join(", ");
  return s("g", {class: ["state", kind, live && "live", reached && "reach", place.name === aim && "aim", place.y < 0 && "stable"].filter(Boolean).join(" "), "data-state": place.name},
    live && s("rect", {class: "halo", x: place.left - 4, y: place.top - 4, width: box.width + 8, height: box.height + 8, rx: place.y < 0 ? 20 : 10}),
    s("rect", {class: "box", x: place.left, y: place.top, width: box.width, height: box.height, rx: place.y < 0 ? 16 : 6}),
    s("text", {x: place.middle.x, y: place.middle.y + 4}, (live ? "● " : "") + place.name),
    said && s("text", {class: "by", x: place.middle.x, y: place.top + box.height + 14}, said.length > 22 ? said.slice(0, 21) + "…" : said));
}

// sentence says the picture in words.
function sentence(now, open) {
  const verbs = open.flatMap((one) => one.verbs.map((v) => v === one.to ? v : `${v} (to ${one.to})`));
  const events = open.filter((one) => one.events.length).map((one) => one.to);
  return [`Now: ${now}.`, verbs.length && `May be asked: ${verbs.join(", ")}.`, events.length && `May become by itself: ${events.join(", ")}.`].filter(Boolean).join(" ");
}
