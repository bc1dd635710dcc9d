// The VM hosts: does each live, is it fenced, and how much runs on it.

import {badge, empty, fill, h, heading, link, loading, mark, s, trouble} from "./dom.js";
import {ask} from "./api.js";
import {count, moment} from "./words.js";

const lookEvery = 5000;

export async function hosts(view) {
  const {signal} = view;
  const list = h("div", null, loading("hosts"));
  const total = h("p", {class: "sub"});
  async function look() {
    try {
      const all = (await ask("/salvor/v1/hosts", {signal})).hosts;
      const down = all.filter((one) => one.state !== "up").length;
      const fenced = all.filter((one) => one.fenced).length;
      fill(total, count(all.length, "host", "hosts"), down > 0 && `, ${down} down`, fenced > 0 && `, ${fenced} fenced`);
      fill(list, all.length ? h("ul", {class: "hosts"}, all.map(tile))
        : empty(h("h2", null, "No hosts yet"), h("p", null, "Let one join: ", h("code", null, "salvor host token create"), ", then ", h("code", null, "salvor host --controller URL --join TOKEN"), " on it.")));
    } catch (error) {
      if (!signal.aborted) fill(list, trouble(error, look));
    }
  }
  fill(view.main, h("div", {class: "head"}, h("div", null, heading("Hosts"), total)), list);
  view.title("Hosts");
  await look();
  view.every(lookEvery, look);
}

// lease says in a badge whether a host lives.
export function lease(one) {
  if (one.state === "up") return badge("good", "up");
  return one.suspected ? badge("bad", "suspected dead") : badge("warn", one.forced_down ? "said to be down" : "down");
}

// fence says in a badge whether a host is proven off.
export function fence(one) {
  return one.fenced ? badge("rescue", "fenced by " + one.fenced.how.join(", ")) : one.state === "up" ? null : badge("still", "not fenced");
}

const most = 48;

// crowd draws a small square for each server.
function crowd(n) {
  const shown = Math.min(n, most);
  const width = Math.min(shown, 16) * 10;
  const height = Math.ceil(shown / 16) * 10;
  return shown > 0 && s("svg", {class: "crowd", viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true"},
    Array.from({length: shown}, (_, i) => s("rect", {x: i % 16 * 10, y: Math.floor(i / 16) * 10, width: 7, height: 7, rx: 1.5})));
}

function tile(one) {
  return h("li", {class: "card host " + one.state},
    h("h2", null, link(["hosts", one.name || one.id], {"data-key": one.id}, one.name || one.id)),
    h("p", {class: "strip"}, lease(one), fence(one), one.disabled && badge("warn", "takes no new servers"), one.revoked && badge("bad", "revoked")),
    h("p", null, one.renewed_at ? ["Last word ", moment(one.renewed_at)] : "It has not been heard yet"),
    one.state !== "up" && one.thought && h("p", null, mark("wait"), " ", one.thought),
    one.fenced && h("p", null, mark("wait"), " waits for ", one.fenced.waits_for),
    h("p", {class: "servers"}, crowd(one.servers), h("span", null, count(one.servers, "server", "servers"), one.moves_open > 0 && `, ${one.moves_open} on the move`)),
    h("p", {class: "sub"}, [one.kind, one.zone && `zone ${one.zone}`, one.group && `group ${one.group}`].filter(Boolean).join(" · ")));
}
