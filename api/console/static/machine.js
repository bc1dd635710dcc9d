// A machine's page: its state machine drawn, what it waits for, its timeline, and what may be asked of it.

import {badge, card, copier, facts, fill, h, heading, link, mark, say} from "./dom.js";
import {ask, path} from "./api.js";
import {confirm, rescue} from "./dialog.js";
import {Entry, sessionFields, sessionWishes} from "./entry.js";
import {power} from "./machines.js";
import {picture, states} from "./states.js";
import {Timeline} from "./timeline.js";
import {Why} from "./why.js";
import {kindOf, moment} from "./words.js";

// What is offered beside rescue; verbs that need more than a yes, or that cost data, are for the command line.
const verbs = {
  unrescue: {label: "Unrescue", text: "The rescue system ends, and the machine boots its own system again."},
  abort: {label: "Abort", text: "What waits is given up and taken back as far as that can be done."},
  manage: {label: "Manage", text: "Its controller is asked whether it can be reached; the machine becomes manageable."},
  provide: {label: "Provide", text: "The machine is cleaned, as configured, and becomes available.", danger: true},
  inspect: {label: "Inspect", text: "What the machine is made of is read."},
  adopt: {label: "Adopt", text: "The machine is taken in as it runs, and becomes active."},
  unhold: {label: "Go on", text: "What is held goes on with its next step."},
};

const powers = [
  {target: "power on", label: "On"},
  {target: "power off", label: "Off", text: "It is switched off at once; what it has not written is lost.", danger: true},
  {target: "rebooting", label: "Reboot", text: "It is switched off at once, then on; what it has not written is lost.", danger: true},
  {target: "soft power off", label: "Shut down", text: "Its system is asked to shut down."},
  {target: "soft rebooting", label: "Restart", text: "Its system is asked to shut down, then it is switched on."},
];

export async function machine(view) {
  const {id, signal} = view;
  const [table, first] = await Promise.all([states(signal), ask(path("/v1/nodes", [id]), {signal})]);
  let node = first;
  const name = () => node.name || node.uuid;
  const timeline = new Timeline(`node:${node.uuid}`, signal);
  const why = new Why("nodes", node.uuid, signal);
  const entry = new Entry("node", node.uuid, signal);

  const strip = h("div", {class: "strip"});
  const notes = h("div");
  const actions = h("div", {class: "toolbar", role: "group", "aria-label": "What may be asked of it", tabindex: -1});
  const energy = h("div", {class: "toolbar", role: "group", "aria-label": "Power", tabindex: -1});
  const drawn = h("div");
  const about = h("div");
  let pictured = "";
  let accepted = []; // what the machine takes now, as the server says
  let offered;
  let look;

  const put = (what, body) => ask(path("/v1/nodes", [node.uuid, "states", what]), {method: "PUT", body});
  const asked = async (text) => {
    say(text);
    await look();
  };

  function button(key, label, click, kind) {
    return h("button", {type: "button", "data-key": key, class: kind, on: {click}}, label);
  }

  function offer(verb, _, all) {
    if (verb === "rescue") {
      return button("rescue", "Rescue …", () => rescue({
        name: name(), text: "It is switched off, and boots a rescue system from the network or a virtual medium. Its disks are left as they are.", extra: sessionFields(),
        send: async (password, values) => {
          const {keys, seconds} = sessionWishes(values);
          if (keys.length || seconds) await ask(path("/salvor/v1/nodes", [node.uuid, "rescue"]), {method: "POST", body: {password, keys, expires_in: seconds}});
          else await put("provision", {target: "rescue", rescue_password: password});
          asked(`Rescue of ${name()} is asked for`);
        },
      }), all.includes("unrescue") ? "" : "primary");
    }
    const o = verbs[verb];
    return o && button(verb, o.label, () => confirm({
      title: `${o.label} ${name()}?`, text: o.text, button: o.label, danger: o.danger,
      act: async () => { await put("provision", {target: verb}); asked(`${o.label} of ${name()} is asked for`); },
    }), verb === "unrescue" ? "primary" : "");
  }

  function powerButton(p) {
    return button(p.target, p.label, () => confirm({
      title: `${p.label}: ${name()}?`, text: p.text ?? "It is switched on.", button: p.label, danger: p.danger,
      act: async () => { await put("power", {target: p.target}); asked(`${p.label} of ${name()} is asked for`); },
    }), "quiet");
  }

  let inFleet; // what the fleet knows of it: the age of the reading of its power
  function draw() {
    fill(strip, badge(kindOf(node.provision_state), node.provision_state), node.target_provision_state && h("span", {class: "aim"}, "→ " + node.target_provision_state),
      h("span", null, "changed ", moment(node.provision_updated_at)), h("span", null, mark(node.power_state === "power on" ? "work" : "still"), " ", power(node, inFleet)),
      node.maintenance && badge("warn", "maintenance"), node.fault && badge("bad", node.fault), node.reservation && h("span", null, mark("work"), " locked by ", node.reservation));
    fill(notes, node.last_error && h("p", {class: "note bad"}, mark("bad"), " ", node.last_error),
      node.maintenance && node.maintenance_reason && h("p", {class: "note warn"}, mark("warn"), " In maintenance: ", node.maintenance_reason));
    if (offered !== "" + accepted) {
      fill(actions, accepted.map(offer));
      for (const one of energy.children) one.disabled = !accepted.includes(one.dataset.key);
    }
    offered = "" + accepted;
    const drawing = node.provision_state + "\n" + node.target_provision_state;
    if (drawing !== pictured) fill(drawn, picture(table, node.provision_state, node.target_provision_state));
    pictured = drawing;
    fill(about, facts([
      ["UUID", [h("code", null, node.uuid), " ", copier(node.uuid, "UUID")]], ["Driver", node.driver], ["Resource class", node.resource_class], ["Instance", node.instance_uuid],
      ["Owner", node.owner], ["Lessee", node.lessee], ["Conductor", node.conductor], ["Conductor group", node.conductor_group],
      ["Boot", node.boot_interface], ["Rescue", node.rescue_interface], ["Description", node.description], ["Enrolled", moment(node.created_at)],
    ]));
  }

  async function read() {
    const before = node.provision_state;
    const readings = ask(path("/salvor/v1/fleet", ["nodes"], {uuid: node.uuid}), {signal});
    const [fresh, reason, , fleet] = await Promise.all([ask(path("/v1/nodes", [node.uuid]), {signal}), why.read(), timeline.read(), readings]);
    node = fresh;
    inFleet = fleet.nodes[0];
    timeline.now(reason?.job);
    accepted = reason?.accepts ?? [];
    draw();
    await entry.read(node.provision_state === "rescue", name());
    if (node.provision_state !== before) say(`${name()} is now ${node.provision_state}`);
  }

  fill(energy, powers.map(powerButton));
  fill(view.main, h("p", {class: "crumbs"}, link(["machines"], null, "Machines")), heading(name()), strip, notes,
    h("div", {class: "toolbars"}, actions, energy),
    entry.body, card("State machine", "card-states", drawn),
    h("div", {class: "two"}, card("Why it waits", "card-why", why.body), card("About", "card-about", about)),
    card("Diagnoses", "card-diagnoses", h("p", null, link(["machines", node.uuid, "diagnoses"], null, "Diagnose: why it does not boot, or refuses logins"))),
    card("Timeline", "card-timeline", timeline.body));
  view.title(name());
  draw();
  look = view.stream({subject: `node:${node.uuid}`}, {look: read});
  await look();
}
