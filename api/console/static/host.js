// A host's page: its lease, its fences with their evidence, its plans as pictures, and its timeline.

import {badge, card, copier, facts, fill, h, heading, link, mark} from "./dom.js";
import {ask, path} from "./api.js";
import {fence, lease} from "./hosts.js";
import {drawing, planBadge} from "./plans.js";
import {Timeline} from "./timeline.js";
import {Why} from "./why.js";
import {count, moment} from "./words.js";

export async function host(view) {
  const {id, signal} = view;
  const read = () => ask(path("/salvor/v1/hosts", [id]), {signal});
  let one = await read();
  const timeline = new Timeline(`host:${one.id}`, signal);
  const why = new Why("hosts", one.id, signal);
  const strip = h("div", {class: "strip"});
  const about = h("div");
  const fences = h("div");
  const planned = h("div");

  function draw(receipts, plans) {
    fill(strip, lease(one), fence(one), one.disabled && badge("warn", "takes no new servers" + (one.disabled_reason ? ": " + one.disabled_reason : "")),
      h("span", null, one.renewed_at ? ["last word ", moment(one.renewed_at)] : "not heard yet"), h("span", null, count(one.servers, "server", "servers")));
    fill(about, facts([
      ["UUID", [h("code", null, one.id), " ", copier(one.id, "UUID")]], ["Kind", one.kind], ["Zone", one.zone], ["Group", one.group],
      ["Node", one.node && link(["machines", one.node], null, one.node)], ["Watchdog", one.watchdog], ["What is thought of its silence", one.thought],
      ["Moves that go on", one.moves_open || ""], ["To be cleaned up by it", one.moves_uncleaned || ""],
    ]));
    fill(fences, one.fence_problem && h("p", {class: "note bad"}, mark("bad"), " The newest fence came to nothing: ", one.fence_problem),
      receipts.length === 0 && h("p", null, "It was never fenced."),
      h("ul", {class: "receipts"}, receipts.slice(-10).reverse().map(receipt)));
    const newest = plans.at(-1);
    fill(planned, newest ? [
      h("ul", {class: "plain"}, plans.slice(-8).reverse().map((p) => h("li", null, link(["plans", p.id], {"data-key": p.id}, `Plan ${p.number}`), " ", planBadge(p), " ", moment(p.created_at)))),
      drawing(newest)] : h("p", null, "There is none. What would become of its servers is said by ", h("code", null, `salvor evacuate plan ${one.name}`)));
  }

  async function look() {
    const [fresh, receipts, plans, reason] = await Promise.all([read(), ask(path("/salvor/v1/receipts", [], {host: one.id}), {signal}),
      ask(path("/salvor/v1/plans", [], {host: one.id}), {signal}), why.read(), timeline.read()]);
    one = fresh;
    timeline.now(reason?.job);
    draw(receipts.receipts, plans.plans);
  }

  fill(view.main, h("p", {class: "crumbs"}, link(["hosts"], null, "Hosts")), heading(one.name || one.id), strip,
    h("div", {class: "two"}, card("Why it waits", "card-why", why.body), card("About", "card-about", about)),
    card("Fences", "card-fences", fences), card("Evacuation plans", "card-plans", planned), card("Timeline", "card-timeline", timeline.body));
  view.title(one.name || one.id);
  await look();
  view.stream({subject: `host:${one.id}`}, {look, pause: 1000});
}

function receipt(r) {
  return h("li", null, badge(r.open ? "rescue" : "still", r.open ? "holds" : "closed"), " ", moment(r.created_at), r.by ? ` by ${r.by}` : " by salvor itself",
    r.words && `: ${r.words}`, h("ul", null, (r.proofs ?? []).map((p) => h("li", null, mark("good"), " ", h("b", null, p.evidence), " ", p.text))),
    r.closed && h("p", {class: "sub"}, "Closed ", moment(r.closed_at), ": ", r.closed));
}
