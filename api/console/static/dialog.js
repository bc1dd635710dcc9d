// Dialogs: a question before something is done, and the rescue form with the password that is shown once.

import {copier, fill, h, mark, printable} from "./dom.js";

let number = 0;

// modal opens a dialog and gives it back; it leaves the page when it is closed.
function modal(title, ...body) {
  const id = `dialog-${++number}`;
  const dialog = h("dialog", {"aria-labelledby": id}, h("h2", {id}, title), ...body);
  const opener = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    const key = opener?.dataset?.key; // the page may have been drawn anew meanwhile
    const back = opener?.isConnected ? opener : key && document.querySelector(`[data-key="${CSS.escape(key)}"]`);
    (back || document.querySelector("h1"))?.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

// sending runs act while the form is locked; what is refused is shown in it. It tells whether it went well.
async function sending(form, note, act) {
  const controls = [...form.querySelectorAll("button, input, select, textarea")].filter((c) => !c.disabled);
  for (const c of controls) c.disabled = true;
  form.setAttribute("aria-busy", "true");
  fill(note);
  try {
    return {value: await act()};
  } catch (error) {
    fill(note, h("p", {class: "note bad"}, mark("bad"), " ", error.message));
    return undefined;
  } finally {
    for (const c of controls) c.disabled = false;
    form.removeAttribute("aria-busy");
  }
}

const closer = () => h("button", {type: "button", on: {click: (event) => event.target.closest("dialog").close()}}, "Cancel");

// confirm asks whether act is meant.
export function confirm({title, text, button, danger, act}) {
  const note = h("div", {role: "alert"});
  const form = h("form", null, [text].flat().map((t) => h("p", null, t)), note,
    h("div", {class: "actions"}, closer(), h("button", {class: danger ? "danger" : "primary", autofocus: true}, button)));
  const dialog = modal(title, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (await sending(form, note, act)) dialog.close();
  });
}

const letters = "abcdefghijkmnpqrstuvwxyz23456789"; // 32 that are not taken for each other

// generate makes a password of 100 random bits.
export function generate() {
  const bytes = crypto.getRandomValues(new Uint8Array(20));
  return Array.from(bytes, (b, i) => (i > 0 && i % 5 === 0 ? "-" : "") + letters[b & 31]).join("");
}

// rescue asks for a rescue. send is given the password and the values of extra fields, and may give another password
// that the server chose.
export function rescue({name, text, extra = [], send}) {
  const radio = (value, label, checked) => h("label", {class: "choice"}, h("input", {type: "radio", name: "source", value, checked}), " ", label);
  const typed = h("input", {id: "rescue-password", type: "password", autocomplete: "off", spellcheck: "false", maxlength: 255});
  const show = h("label", {class: "choice"}, h("input", {type: "checkbox", on: {change: (e) => { typed.type = e.target.checked ? "text" : "password"; }}}), " Show it");
  const own = h("div", {class: "field", hidden: true}, h("label", {for: "rescue-password"}, "Password"), typed, show);
  const note = h("div", {role: "alert"});
  const form = h("form", null, h("p", null, text),
    h("fieldset", null, h("legend", null, "Password of the rescue system"),
      radio("made", "Make a strong one, and show it once", true), radio("typed", "Type one"), own),
    extra, note,
    h("div", {class: "actions"}, closer(), h("button", {class: "primary"}, `Rescue ${name}`)));
  const chosen = () => form.querySelector("input[name=source]:checked").value;
  form.addEventListener("change", () => {
    const own_ = chosen() === "typed";
    own.hidden = !own_;
    typed.required = own_;
  });
  const dialog = modal(`Rescue ${name}`, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const made = chosen() === "made";
    const password = made ? generate() : typed.value;
    const values = Object.fromEntries(extra.flatMap((e) => [...e.querySelectorAll("[name]")]).map((e) => [e.name, e.value.trim()]));
    const done = await sending(form, note, () => send(password, values));
    if (!done) return;
    typed.value = "";
    const shown = done.value ?? (made ? password : undefined);
    if (shown) once(dialog, name, shown);
    else dialog.close();
  });
}

// once shows a password; with the dialog it is gone. Escape must not lose it.
function once(dialog, name, password) {
  const title = dialog.querySelector("h2");
  title.textContent = printable(`The password of ${name}`);
  const close = h("button", {class: "primary", type: "button", on: {click: () => dialog.close()}}, "I have it, close");
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  dialog.addEventListener("close", () => fill(dialog));
  fill(dialog, title, h("p", null, "It is shown this once and stored nowhere in clear. Whoever has it gets into the machine."),
    h("p", {class: "secret"}, h("code", {id: "rescue-secret", tabindex: 0, "aria-label": "Rescue password"}, password), copier(password, "password")),
    h("div", {class: "actions"}, close));
  dialog.querySelector("#rescue-secret").focus();
}
