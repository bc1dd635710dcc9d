// The fleet by state: counts that narrow the list, a search, and one page of the list at a time.

import {badge, empty, fill, h, heading, link, loading, mark, place, say, trouble} from "./dom.js";
import {ask, path} from "./api.js";
import {count, kindOf, moment} from "./words.js";

const pageSize = 100;

export async function machines(view) {
  const {query, signal} = view;
  const filter = {state: query.state ?? "", search: query.search ?? "", maintenance: query.maintenance ?? "", faulty: query.faulty ?? "", bmc: query.bmc ?? ""};
  const markers = [""]; // of the pages up to this one
  let shown = "";

  const total = h("p", {class: "sub"});
  const bar = h("div", {class: "proportions", "aria-hidden": "true"});
  const chips = h("nav", {class: "chips", "aria-label": "Filter by state"});
  const list = h("div", {"aria-busy": "true"}, loading("machines"));
  const pager = h("nav", {class: "pager", "aria-label": "Pages", hidden: true});
  const search = h("input", {type: "search", id: "search", value: filter.search, placeholder: "Name or UUID", maxlength: 255, autocomplete: "off", spellcheck: "false"});

  const go = (change) => { location.hash = place(["machines"], {...filter, ...change}); };
  let timer;
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      filter.search = search.value.trim();
      history.replaceState(null, "", place(["machines"], filter)); // the page stays, so does the focus
      markers.length = 1;
      look().then(() => say(shown));
    }, 250);
  });
  const slash = (event) => {
    if (event.key === "/" && !event.target.closest("input, textarea, select, dialog")) {
      event.preventDefault();
      search.focus();
    }
  };
  document.addEventListener("keydown", slash, {signal});

  async function counts() {
    const fleet = await ask("/salvor/v1/fleet", {signal});
    fill(total, count(fleet.total, "machine", "machines"), fleet.maintenance > 0 && `, ${fleet.maintenance.toLocaleString("en")} in maintenance`,
      fleet.faulty > 0 && `, ${fleet.faulty.toLocaleString("en")} with a fault`);
    fill(bar, fleet.states.map((one) => {
      const part = h("span", {class: kindOf(one.state), title: `${one.state}: ${one.count}`});
      part.style.flexGrow = one.count;
      return part;
    }));
    const chip = (label, n, kind, change) => {
      const chosen = Object.entries({state: "", maintenance: "", faulty: "", bmc: "", ...change}).every(([k, v]) => filter[k] === v);
      return h("a", {
        class: "chip " + kind, href: place(["machines"], {search: filter.search, ...change}), "data-key": "chip-" + label, "aria-current": chosen ? "true" : null,
      }, mark(kind), h("span", null, label), " ", h("b", null, n.toLocaleString("en")));
    };
    fill(chips, chip("all", fleet.total, "still", {}), fleet.states.map((one) => chip(one.state, one.count, kindOf(one.state), {state: one.state})),
      fleet.maintenance > 0 && chip("maintenance", fleet.maintenance, "warn", {maintenance: "true"}),
      fleet.faulty > 0 && chip("fault", fleet.faulty, "bad", {faulty: "true"}),
      fleet.silent_bmcs > 0 && chip("BMC silent", fleet.silent_bmcs, "bad", {bmc: "silent"}),
      fleet.refusing_bmcs > 0 && chip("BMC refuses", fleet.refusing_bmcs, "bad", {bmc: "refusing"}));
    return fleet.total;
  }

  async function page(all) {
    const found = await ask(path("/salvor/v1/fleet", ["nodes"], {...filter, limit: pageSize, marker: markers.at(-1)}), {signal});
    const first = (markers.length - 1) * pageSize;
    shown = found.nodes.length ? `Machines ${first + 1} to ${first + found.nodes.length}` : "No machine is found";
    if (found.nodes.length) fill(list, table(found.nodes));
    else if (all === 0) fill(list, empty(h("h2", null, "No machines yet"), h("p", null, "Enrol one: ", h("code", null, "salvor node create --driver redfish --name rack1-01")),
      h("p", null, "Enrol the machines of a file, in CSV, JSON or YAML: ", h("code", null, "salvor node import racks.csv --dry-run"))));
    else fill(list, empty(h("p", null, "No machines match. "), link(["machines"], null, "Show all machines")));
    const step = (text, label, key, fn) => h("button", {type: "button", "data-key": key, "aria-label": label, disabled: !fn, on: {click: fn || (() => {})}}, text);
    const turn = (fn) => async () => { fn(); await look(); say(shown); document.getElementById("list-top")?.scrollIntoView({block: "nearest"}); };
    fill(pager, step("← Back", "Previous page", "back", markers.length > 1 && turn(() => markers.pop())),
      h("span", null, shown), step("Next →", "Next page", "on", found.more && turn(() => markers.push(found.nodes.at(-1).uuid))));
    pager.hidden = markers.length === 1 && !found.more;
  }

  async function look() {
    try {
      const all = await counts();
      await page(all);
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 404 && markers.length > 1) { // the machine that the page began after is gone
        markers.length = 1;
        return look();
      }
      fill(list, trouble(error, look));
    } finally {
      list.removeAttribute("aria-busy");
    }
  }

  fill(view.main, h("div", {class: "head"}, h("div", null, heading("Machines"), total),
    h("form", {role: "search", class: "search", on: {submit: (e) => { e.preventDefault(); go({search: search.value.trim()}); }}},
      h("label", {for: "search"}, "Search ", h("kbd", {"aria-hidden": "true"}, "/")), search)),
  bar, chips, h("div", {id: "list-top"}), list, pager);
  view.title(filter.state ? `Machines: ${filter.state}` : "Machines");
  await look();
  view.stream({type: "state"}, {look, pause: 2000});
}

function table(nodes) {
  return h("table", {class: "list"}, h("caption", {class: "unseen"}, "Machines"),
    h("thead", null, h("tr", null, ["Machine", "State", "Power", "Changed", "Group"].map((t) => h("th", {scope: "col"}, t)))),
    h("tbody", null, nodes.map(row)));
}

function row(n) {
  return h("tr", null,
    h("th", {scope: "row"}, link(["machines", n.uuid], {"data-key": n.uuid}, n.name || n.uuid), n.name && h("span", {class: "uuid"}, n.uuid)),
    h("td", {"data-label": "State"}, badge(kindOf(n.provision_state), n.provision_state),
      n.target_provision_state && h("span", {class: "aim"}, "→ " + n.target_provision_state),
      n.maintenance && badge("warn", "maintenance"), n.fault && badge("bad", n.fault), n.failed && !n.fault && badge("bad", "last operation failed"), failing[n.bmc] && badge("bad", failing[n.bmc])),
    h("td", {"data-label": "Power"}, power(n, n)),
    h("td", {"data-label": "Changed"}, moment(n.since)),
    h("td", {"data-label": "Group"}, n.conductor_group || "–"));
}

// failing says what is wrong with a BMC, by its state in the fleet.
const failing = {silent: "BMC silent", refusing: "BMC refuses"};

// power says the power of a node and the age of its reading, which the fleet knows. A reading that is old is not told as the present.
export function power(n, fleet) {
  const now = n.power_state || "not known";
  if (n.target_power_state && n.target_power_state !== n.power_state) return `${now} → ${n.target_power_state}`;
  if (!fleet || !n.power_state) return now;
  if (!fleet.power_read_at) return fleet.power_fresh ? now : `${now} (age of the reading not known)`;
  return [fleet.power_fresh ? `${now} (read ` : `was ${now} (`, moment(fleet.power_read_at), ")"];
}
