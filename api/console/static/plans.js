// Evacuation plans as pictures: each server of a host on its way to another.

import {badge, card, copier, empty, fill, h, heading, link, loading, mark, s, trouble} from "./dom.js";
import {ask, path} from "./api.js";
import {count, moment} from "./words.js";

// How the disk of a server fares; the line of its way is drawn so.
const dispositions = {
  keep: ["keeps its disk", "keeps its disk", "keep their disks"], reattach: ["volumes attached anew", "has its volumes attached anew", "have their volumes attached anew"],
  reimage: ["disk made anew: data lost", "has its disk made anew: data lost", "have their disks made anew: data lost"], cannot: ["cannot move", "cannot move", "cannot move"],
};

const planKinds = {drafted: "still", running: "work", done: "good", "partly done": "warn", cancelled: "still"};

export const planBadge = (p) => badge(planKinds[p.state] ?? "still", p.state);

// stage says where a server is on its way.
function stage(item) {
  if (item.disposition === "cannot") return "stays";
  if (["done", "completed"].includes(item.move_state)) return "there";
  if (["failed", "error", "cancelled"].includes(item.move_state)) return "failed";
  if (item.move_state) return "going";
  return item.needs_consent && !item.consented ? "consent" : "waiting";
}

const stages = {
  stays: ["bad", "stays"], there: ["good", "moved"], failed: ["bad", "failed"], going: ["work", "on its way"], waiting: ["still", "waits"], consent: ["warn", "needs consent"],
};

export async function plans(view) {
  const {signal} = view;
  const list = h("div", null, loading("plans"));
  async function look() {
    try {
      const all = (await ask("/salvor/v1/plans", {signal})).plans.reverse();
      fill(list, all.length === 0
        ? empty(h("h2", null, "No plans"), h("p", null, "Draft one, which does nothing yet: ", h("code", null, "salvor evacuate plan HOST")))
        : h("table", {class: "list"}, h("caption", {class: "unseen"}, "Evacuation plans"),
          h("thead", null, h("tr", null, ["Plan", "Host", "State", "Servers", "Made"].map((t) => h("th", {scope: "col"}, t)))),
          h("tbody", null, all.map((p) => h("tr", null, h("th", {scope: "row"}, link(["plans", p.id], {"data-key": p.id}, `Plan ${p.number}`)),
            h("td", {"data-label": "Host"}, p.host || p.host_id), h("td", {"data-label": "State"}, planBadge(p)),
            h("td", {"data-label": "Servers"}, tally(p)), h("td", {"data-label": "Made"}, moment(p.created_at)))))));
    } catch (error) {
      if (!signal.aborted) fill(list, trouble(error, look));
    }
  }
  fill(view.main, h("div", {class: "head"}, heading("Evacuation plans")), list);
  view.title("Evacuation plans");
  await look();
  view.every(5000, look);
}

function tally(p) {
  const there = p.items.filter((i) => stage(i) === "there").length;
  return p.state === "drafted" ? count(p.items.length, "server", "servers") : `${there} of ${p.items.length} moved`;
}

export async function plan(view) {
  const {id, signal} = view;
  const body = h("div", {class: "stack"});
  const strip = h("div", {class: "strip"});
  const read = () => ask(path("/salvor/v1/plans", [id]), {signal});
  const draw = (p) => {
    fill(strip, planBadge(p), h("span", null, tally(p)), h("span", null, "made ", moment(p.created_at), p.by && ` by ${p.by}`), p.drain && badge("still", "drains the host"));
    const run = p.state === "drafted" && !p.missing ? `salvor evacuate run ${p.id} --wait` : p.state === "running" ? `salvor evacuate cancel ${p.id}` : "";
    fill(body, p.missing && p.state === "drafted" && h("p", {class: "note warn"}, mark("warn"), " Before it can be run: ", h("code", null, p.missing)),
      p.one_more_why && h("p", {class: "note"}, mark(p.one_more ? "good" : "warn"), " If one more host fails: ", p.one_more_why),
      card("Picture", "card-picture", drawing(p)),
      card("Servers", "card-items", h("div", {class: "scroll", tabindex: 0, role: "group", "aria-label": "Table of the servers; it may be scrolled"}, items(p))),
      run && h("p", null, p.state === "running" ? "To begin no further move: " : "To run it: ", h("code", null, run), " ", copier(run, "command")));
  };
  const first = await read();
  fill(view.main, h("p", {class: "crumbs"}, link(["plans"], null, "Evacuation plans")), heading(`Plan ${first.number}: ${first.host || first.host_id}`), strip, body);
  view.title(`Plan ${first.number}`);
  draw(first);
  let last = JSON.stringify(first);
  view.every(2000, async () => {
    const p = await read();
    const text = JSON.stringify(p);
    if (text !== last) draw(p);
    last = text;
  });
}

function items(p) {
  return h("table", {class: "list dense"}, h("caption", {class: "unseen"}, "Servers of the plan"),
    h("thead", null, h("tr", null, ["Server", "Now", "Disk", "To", "Why"].map((t) => h("th", {scope: "col"}, t)))),
    h("tbody", null, p.items.map((i) => {
      const [kind, word] = stages[stage(i)];
      return h("tr", null, h("th", {scope: "row"}, link(["servers", i.server_id], {"data-key": i.server_id}, i.name || i.server_id)),
        h("td", {"data-label": "Now"}, badge(kind, word)), h("td", {"data-label": "Disk"}, (dispositions[i.disposition] ?? [i.disposition])[0]),
        h("td", {"data-label": "To"}, i.destination || "–"), h("td", {"data-label": "Why"}, [i.why, i.words, i.problem].filter(Boolean).join("; ")));
    })));
}

const most = 80; // rows that are drawn
const size = {row: 34, side: 200, lane: 330, top: 46};

// drawing is the picture of a plan, with what it shows said in words.
export function drawing(p) {
  const stays = "";
  const to = new Map();
  for (const item of p.items) {
    const dest = item.disposition === "cannot" ? stays : item.destination || item.destination_id || stays;
    to.set(dest, [...to.get(dest) ?? [], item]);
  }
  const groups = [...to].sort(([a], [b]) => (a === stays) - (b === stays) || a.localeCompare(b));
  const said = summary(p, groups.filter(([dest]) => dest !== stays).length);
  if (p.items.length === 0) return h("p", null, "There is no server on the host.");
  let y = size.top;
  let left = most;
  const parts = [];
  for (const [dest, all] of groups) {
    const shown = all.slice(0, left);
    if (shown.length === 0) break;
    left -= shown.length;
    const height = shown.length * size.row + 8;
    if (dest !== stays) {
      parts.push(s("rect", {class: "place", x: size.side + size.lane, y: y - 4, width: size.side, height, rx: 6}),
        s("text", {class: "name", x: size.side + size.lane + 4, y: y - 10}, cut(dest, 26)));
    }
    shown.forEach((item, i) => parts.push(way(item, y + i * size.row)));
    y += height + (dest !== stays ? 28 : 10);
  }
  const height = y - 16;
  const width = 2 * size.side + size.lane + 4;
  const svg = s("svg", {class: "plan", viewBox: `0 0 ${width} ${height + 4}`, width, height: height + 4, role: "img", "aria-label": said},
    s("defs", null, s("marker", {id: "plan-arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto"}, s("path", {d: "M0 0 8 4 0 8Z"}))),
    s("rect", {class: "place source", x: 2, y: size.top - 4, width: size.side, height: height - size.top, rx: 6}), s("text", {class: "name", x: 6, y: size.top - 10}, cut(p.host || p.host_id, 26)), parts);
  return [h("div", {class: "scroll", tabindex: 0, role: "group", "aria-label": "Picture of the plan; it may be scrolled"}, svg), h("p", {class: "legend"}, said),
    p.items.length > most && h("p", {class: "sub"}, `${most} of ${p.items.length} servers are drawn; all are in the table of the plan.`)];
}

function cut(text, n) { return text.length > n ? text.slice(0, n - 1) + "…" : text; }

// way draws one server: where it is now, and the way that it goes.
function way(item, y) {
  const at = stage(item);
  const [, word] = stages[at];
  const middle = y + size.row / 2 - 2;
  const width = size.side - 16;
  const x = {there: size.side + size.lane + 8, going: size.side + size.lane / 2 - width / 2}[at] ?? 10;
  const chip = (px, kind) => [s("rect", {class: "chip " + kind, x: px, y, width, height: size.row - 6, rx: 5})];
  const label = at === "stays" ? `✕ ${item.why || "cannot move"}` : `${{keep: "", reattach: "⇄ ", reimage: "⚠ "}[item.disposition] ?? ""}${(dispositions[item.disposition] ?? [item.disposition])[0]}`;
  return s("g", {class: `way ${item.disposition} ${at}`},
    s("title", null, `${item.name}: ${word}; ${label}${item.destination ? `; to ${item.destination}` : ""}${item.problem ? `; ${item.problem}` : ""}`),
    at !== "stays" && s("path", {class: "line", d: `M${size.side + 4} ${middle}H${size.side + size.lane - 4}`, "marker-end": "url(#plan-arrow)"}),
    x !== 10 && chip(10, "ghost"), at !== "there" && at !== "stays" && chip(size.side + size.lane + 8, "ghost"), chip(x, at),
    s("text", {x: x + 8, y: middle + 4}, cut(`${{there: "✓ ", failed: "✕ ", going: "▸ ", consent: "? "}[at] ?? ""}${item.name}`, 22)),
    at === "going" ? null : s("text", {class: "label", x: at === "stays" ? size.side + 12 : size.side + size.lane / 2, y: middle - 4, "text-anchor": at === "stays" ? "start" : "middle"}, cut(label, at === "stays" ? 60 : 40)));
}

function summary(p, places) {
  const words = Object.entries(p.dispositions ?? {}).filter(([, n]) => n > 0).map(([d, n]) => `${n} ${dispositions[d]?.[n === 1 ? 1 : 2] ?? d}`);
  return `${count(p.items.length, "server", "servers")} of ${p.host || p.host_id}, to ${count(places, "host", "hosts")}: ${words.join(", ") || "none"}. ${p.state === "drafted" ? "Nothing was done yet." : tally(p) + "."}`;
}
