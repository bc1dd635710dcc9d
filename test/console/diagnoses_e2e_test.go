//go:build e2e

package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"salvor/client"
	"salvor/test/must"
)

// testDiagnoses asks for a diagnosis in the page, and reads a report of which a stranger wrote the texts.
func testDiagnoses(t *testing.T, w *world, b *browser) {
	id := w.node("rack4-01", 0, nil)
	w.bring(id, "manage", "manageable", "adopt", "active")
	must.OK(t, w.api.SetBootDevice(w.Context(), id, "pxe", true))
	p := newPage(t, b, 1280, 1000)
	p.dark(false)
	p.open(w.url() + "#/machines/" + id)
	p.until(`document.getElementById("live").dataset.state === "live"`)
	p.click("link", "Diagnose: why it does not boot")
	p.sees("Nobody has diagnosed rack4-01 yet.")
	p.until(`document.getElementById("live").dataset.state === "live"`)

	// The question before a restart is one that Escape ends.
	p.click("button", "Diagnose with a restart")
	p.find("dialog", "Restart rack4-01 to diagnose it?")
	p.key("Escape")
	p.until(`!document.querySelector("dialog")`)
	p.click("button", "Diagnose …")
	p.find("dialog", "Diagnose rack4-01?")
	p.click("button", "Diagnose")
	p.until(`document.querySelector("[data-finding=boot-device-override]")`)
	p.until(`document.querySelector(".ladder .broken")`) // the diagnosis has ended
	p.sees("Consent it needs")
	p.sees("settings outside of the disks")
	p.sees("What was not examined")
	if got := p.ladder(); got != "power reached, firmware broken, loader missed, kernel missed, initramfs missed, root missed, init missed, target missed, network missed, sshd missed, login missed" {
		t.Errorf("the stages are %s", got)
	}

	must.OK(t, w.api.SetBootDevice(w.Context(), id, "disk", true))
	w.ask(client.Native, http.MethodPost, "/nodes/"+id+"/diagnoses", object{"console": "Linux version 6.1\nALERT!  UUID=" + planted + " does not exist.\n(initramfs) "}, nil)
	p.until(`document.querySelector("#card-cause") && document.querySelector("[data-finding=console-root-missing]")`)
	p.sees(planted)
	p.sees("What follows from it")
	if got := p.ladder(); !strings.Contains(got, "initramfs reached, root broken, init missed") {
		t.Errorf("the stages are %s", got)
	}
	p.harmless()

	// A repair is listed with what it is to mend, and its end is shown without a reload.
	p.sees("salvor repair rack4-01 --plan")
	w.ask(client.Native, http.MethodPost, "/nodes/"+id+"/repairs", object{"findings": []string{"boot-device-override"}}, nil)
	p.until(`document.querySelector("[data-repair]")`)
	p.sees("boot-device-override")
	p.until(`document.querySelector("[data-repair][data-state=failed]")`)
	p.sees("salvor repair show rack4-01")
	looks(p, "diagnoses")

	// The older report is still there.
	p.eval(`[...document.querySelectorAll("#card-diagnoses ~ * button")].at(-1).click()`)
	p.until(`document.querySelector("[data-finding=boot-device-override]")`)
	p.atHome(w)
}

// ladder are the stages with their states, as they are drawn.
func (p *page) ladder() string {
	p.Helper()
	return fmt.Sprint(p.eval(`[...document.querySelectorAll(".ladder li")].map((e) => e.dataset.stage + " " + e.dataset.state).join(", ")`))
}
