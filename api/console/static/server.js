// A server's page: rescue and unrescue, power, what it waits for and its timeline.

import {badge, card, copier, facts, fill, h, heading, link, mark, say} from "./dom.js";
import {ask, path} from "./api.js";
import {confirm, rescue} from "./dialog.js";
import {Entry, sessionFields, sessionWishes} from "./entry.js";
import {Timeline} from "./timeline.js";
import {Why} from "./why.js";
import {kindOf, moment} from "./words.js";

const powerWords = {0: "not known", 1: "running", 3: "paused", 4: "off", 6: "crashed", 7: "suspended"};

const power = [
  {key: "start", label: "On", action: "start", body: {"os-start": null}},
  {key: "stop", label: "Shut down", action: "stop", body: {"os-stop": null}, text: "Its system is asked to shut down; after a while it is switched off."},
  {key: "reboot", label: "Restart", action: "reboot", body: {reboot: {type: "SOFT"}}, text: "Its system is asked to restart."},
  {key: "reset", label: "Reset", action: "hard reboot", body: {reboot: {type: "HARD"}}, text: "It is switched off at once, then on; what it has not written is lost.", danger: true},
];

export async function server(view) {
  const {id, signal} = view;
  const url = path("/compute/v2.1/servers", [id]);
  const read = async () => (await ask(url, {signal})).server;
  let srv = await read();
  const images = await ask("/image/v2/images?limit=100", {signal}).then((found) => found.images, () => []);
  const timeline = new Timeline(`server:${srv.id}`, signal);
  const why = new Why("servers", srv.id, signal);
  const entry = new Entry("server", srv.id, signal);
  const strip = h("div", {class: "strip"});
  const notes = h("div");
  const actions = h("div", {class: "toolbar", role: "group", "aria-label": "What may be asked of it", tabindex: -1});
  const about = h("div");
  let accepted = []; // what the server takes now, as the API says
  let look;

  const act = (body) => ask(url + "/action", {method: "POST", body});
  const asked = async (text) => { say(text); await look(); };
  const button = (key, label, click, kind) => h("button", {type: "button", "data-key": key, class: kind, on: {click}}, label);
  const question = (o) => button(o.key, o.label, () => confirm({
    title: `${o.label}: ${srv.name}?`, text: o.text ?? "It is switched on.", button: o.label, danger: o.danger,
    act: async () => { await act(o.body); asked(`${o.label} of ${srv.name} is asked for`); },
  }), o.kind ?? "quiet");

  function toRescue() {
    const choice = h("div", {class: "field"}, h("label", {for: "rescue-image"}, "Rescue image"),
      h("select", {id: "rescue-image", name: "image"}, h("option", {value: ""}, "The one that suits the server"), images.map((i) => h("option", {value: i.id}, i.name || i.id))));
    rescue({
      name: srv.name, text: "It is stopped, and boots a rescue system beside its own disk.", extra: [...images.length ? [choice] : [], ...sessionFields()],
      send: async (password, {image, ...values}) => {
        const {keys, seconds} = sessionWishes(values);
        const answer = await act({rescue: {adminPass: password, ...(image && {rescue_image_ref: image}), ...(keys.length && {"salvor:keys": keys}), ...(seconds && {"salvor:expires_in": seconds})}});
        asked(`Rescue of ${srv.name} is asked for`);
        return answer?.adminPass === password ? undefined : answer?.adminPass;
      },
    });
  }

  function draw() {
    const task = srv["OS-EXT-STS:task_state"];
    fill(strip, badge(kindOf(srv.status), srv.status), task && h("span", {class: "aim"}, task), h("span", null, mark("still"), " ", powerWords[srv["OS-EXT-STS:power_state"]] ?? "not known"),
      h("span", null, "changed ", moment(srv.updated)));
    fill(notes, srv.fault && h("p", {class: "note bad"}, mark("bad"), " ", srv.fault.message));
    fill(actions, accepted.includes("unrescue")
      && question({key: "unrescue", label: "Unrescue", body: {unrescue: null}, text: "The rescue system ends, and the server boots its own disk again.", kind: "primary"}),
    accepted.includes("rescue") && button("rescue", "Rescue …", toRescue, accepted.includes("unrescue") ? "" : "primary"),
    power.filter((o) => accepted.includes(o.action)).map(question));
    const host = srv["OS-EXT-SRV-ATTR:host"];
    fill(about, facts([
      ["UUID", [h("code", null, srv.id), " ", copier(srv.id, "UUID")]], ["Host", host && link(["hosts", host], null, host)], ["Project", srv.tenant_id], ["Flavor", srv.flavor?.original_name],
      ["Addresses", Object.entries(srv.addresses ?? {}).flatMap(([net, list]) => list.map((a) => `${net} ${a.addr}`)).join(", ")],
      ["Key pair", srv.key_name], ["Zone", srv["OS-EXT-AZ:availability_zone"]], ["Made", moment(srv.created)],
    ]));
  }

  async function all() {
    const before = srv.status;
    const [fresh, reason] = await Promise.all([read(), why.read(), timeline.read()]);
    srv = fresh;
    timeline.now(reason?.job);
    accepted = reason?.accepts ?? [];
    draw();
    await entry.read(srv.status === "RESCUE", srv.name || srv.id);
    if (srv.status !== before) say(`${srv.name} is now ${srv.status}`);
  }

  fill(view.main, h("p", {class: "crumbs"}, link(["servers"], null, "Servers")), heading(srv.name || srv.id), strip, notes, h("div", {class: "toolbars"}, actions), entry.body,
    h("div", {class: "two"}, card("Why it waits", "card-why", why.body), card("About", "card-about", about)),
    card("Timeline", "card-timeline", timeline.body));
  view.title(srv.name || srv.id);
  draw();
  look = view.stream({subject: `server:${srv.id}`}, {look: all});
  await look();
}
