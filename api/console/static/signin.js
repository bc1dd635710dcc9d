// The form that asks for a token. It goes to this server only, and into the storage of this tab.

import {h, heading, mark} from "./dom.js";
import {token} from "./api.js";

export function signIn(refusal, done) {
  const input = h("input", {
    id: "token", name: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": refusal ? "token-why token-help" : "token-help",
    "aria-invalid": refusal ? "true" : null,
  });
  const form = h("form", {class: "card narrow"},
    heading("Sign in"),
    h("p", null, "Sign in to continue."),
    refusal && h("p", {class: "note bad", id: "token-why"}, mark("bad"), " The token was refused: ", refusal.message),
    h("div", {class: "field"}, h("label", {for: "token"}, "Token"), input,
      h("p", {class: "help", id: "token-help"}, "From ", h("code", null, "salvor token create"), ", or a token of Keystone. It is kept in this tab until you close it or sign out.")),
    h("div", {class: "actions"}, h("button", {class: "primary"}, "Sign in")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = input.value.trim();
    if (!text) return;
    token.set(text);
    input.value = "";
    done();
  });
  return form;
}
