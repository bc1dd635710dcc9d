//go:build e2e

package console

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"salvor/client"
	"salvor/test/must"
	"salvor/test/program"
)

// TestConsole has one browser and one control plane for all that can share them: a start of each takes seconds.
func TestConsole(t *testing.T) {
	w := newWorld(t, "")
	b := newBrowser(t)
	id := w.node("rack1-01", 0.12, client.Record{"description": planted, "resource_class": "large"})
	w.bring(id, "manage", "manageable", "adopt", "active")
	must.OK(t, w.api.SetMaintenance(w.Context(), w.node("rack1-02", 0, nil), planted))
	t.Run("rescue", func(t *testing.T) { testRescue(t, w.in(t), b, id) })
	t.Run("keyboard", func(t *testing.T) { testKeyboard(t, w.in(t), b) })
	t.Run("fleet", func(t *testing.T) { testFleet(t, w.in(t), b) })
	t.Run("hosts", func(t *testing.T) { testHosts(t, w.in(t), b) })
	t.Run("diagnoses", func(t *testing.T) { testDiagnoses(t, w.in(t), b) })
	t.Run("away", func(t *testing.T) { testAway(t, w.in(t), b) })
}

var strong = regexp.MustCompile(`^([a-km-np-z2-9]{5}-){3}[a-km-np-z2-9]{5}$`)

// testRescue clicks through a rescue and an unrescue: what is asked is done, and the page follows by itself.
func testRescue(t *testing.T, w *world, b *browser, id string) {
	p := newPage(t, b, 1280, 1000)
	p.dark(false)
	p.open(w.url())
	p.until(`document.getElementById("live").dataset.state === "live"`) // the list is drawn anew until then
	p.click("link", "rack1-01")
	p.until(`document.querySelector("h1")?.innerText === "rack1-01"`)
	p.until(`document.querySelector("svg.states .live")?.dataset.state === "active"`)
	reach := fmt.Sprint(p.eval(`[...document.querySelectorAll("svg.states .reach")].map((g) => g.dataset.state).sort().join()`))
	if reach != "deleting,deploying,rescuing,servicing" {
		t.Errorf("from active the picture leads to %s", reach)
	}
	p.sees(planted)
	p.until(`document.getElementById("live").dataset.state === "live"`)

	p.click("button", "Rescue")
	p.find("dialog", "Rescue rack1-01")
	p.shot("rescue-form")
	p.click("button", "Rescue rack1-01")
	p.until(`document.getElementById("rescue-secret")`)
	password := p.text("#rescue-secret")
	if !strong.MatchString(password) {
		t.Errorf("the password is %q", password)
	}
	p.key("Escape")
	if p.text("#rescue-secret") != password {
		t.Error("a password that is shown once is lost by Escape")
	}
	p.click("button", "I have it")
	p.until(`!document.querySelector("dialog")`)
	p.until(`["rescuing", "rescue wait", "rescue"].includes(document.querySelector("svg.states .live")?.dataset.state)`)
	p.shot("rescuing")
	p.until(`document.querySelector("svg.states .live")?.dataset.state === "rescue"`)
	w.reach(id, "rescue")
	p.sees("asked to rescue")
	p.until(`[...document.querySelectorAll(".row.action .secs")].filter((e) => /^[0-9.]+ m?s$/.test(e.innerText)).length >= 8`)
	p.until(`document.getElementById("say").textContent === "rack1-01 is now rescue"`)
	kept := fmt.Sprint(p.eval(`document.documentElement.outerHTML + JSON.stringify({...sessionStorage, ...localStorage}) + location.href`))
	if strings.Contains(kept, password) {
		t.Error("the password is still in the page")
	}
	p.size(1280, 1560)
	p.shot("rescued")
	looks(p, "machine")

	p.click("button", "Unrescue")
	p.find("dialog", "Unrescue rack1-01?")
	p.key("Enter")
	p.until(`document.querySelector("svg.states .live")?.dataset.state === "active"`)
	w.reach(id, "active")
	p.click("button", "Off")
	p.click("button", "Off")
	p.until(`document.querySelector(".strip").innerText.includes("power off")`)
	p.harmless()
	p.atHome(w)
}

// testKeyboard does a rescue without a mouse, and follows the focus.
func testKeyboard(t *testing.T, w *world, b *browser) {
	id := w.node("rack3-01", 0, nil)
	w.bring(id, "manage", "manageable", "adopt", "active")
	p := newPage(t, b, 1280, 1000)
	p.open(w.url() + "#/machines/" + id)
	p.until(`document.getElementById("live").dataset.state === "live"`)
	if what, _ := p.focus(); what != "h1 rack3-01" {
		t.Errorf("a page begins with the focus at %q", what)
	}
	p.eval(`document.getElementById("skip").focus()`)
	order := []string{"a Skip to content"}
	for range 40 {
		p.key("Tab")
		what, seen := p.focus()
		if strings.HasPrefix(what, "body") {
			break
		}
		if !seen {
			t.Errorf("%q has the focus, and nobody sees it", what)
		}
		order = append(order, what)
	}
	const want = "a Skip to content, a salvor, a Machines, a Servers, a Hosts, a Evacuation plans, select As the system"
	got := strings.Join(order, ", ")
	if !strings.HasPrefix(got, want) || !strings.Contains(got, "button Rescue …") || !strings.Contains(got, "button Restart, div Picture of the provision states") {
		t.Errorf("Tab leads to %s", got)
	}
	p.eval(`document.querySelector("[data-key=rescue]").focus()`)
	p.key("Enter")
	p.find("dialog", "Rescue rack3-01")
	p.key("Escape")
	p.until(`!document.querySelector("dialog")`)
	if what, _ := p.focus(); what != "button Rescue …" {
		t.Errorf("after a dialog the focus is at %q", what)
	}
	p.key("Enter")
	p.find("dialog", "Rescue rack3-01")
	p.eval(`document.querySelector("dialog input[type=radio]").focus()`)
	p.key("Down", "Tab")
	p.until(`document.activeElement.id === "rescue-password"`)
	p.write("typed by hand")
	p.key("Enter")
	p.until(`!document.querySelector("dialog")`) // a typed one is not shown
	p.until(`document.querySelector("svg.states .live")?.dataset.state === "rescue"`)
	w.reach(id, "rescue")
}

// testFleet narrows a list that is never read as a whole, and sees it change.
func testFleet(t *testing.T, w *world, b *browser) {
	const many = 110
	var all sync.WaitGroup
	next := make(chan int)
	for range 4 {
		all.Go(func() {
			for i := range next {
				if _, err := w.api.CreateNode(context.WithoutCancel(w.Context()), client.Record{"driver": "fake-hardware", "name": fmt.Sprintf("far-%03d", i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range many {
		next <- i
	}
	close(next)
	all.Wait()
	p := newPage(t, b, 1280, 1000)
	p.open(w.url())
	p.sees("113 machines")
	p.sees("Machines 1 to 100")
	p.click("button", "Next page")
	p.sees("Machines 101 to 113")
	p.click("button", "Previous page")
	p.sees("Machines 1 to 100")
	looks(p, "fleet")
	p.key("/")
	p.until(`document.activeElement.id === "search"`)
	p.write("FAR-10")
	p.until(`document.querySelectorAll("tbody tr").length === 10`)
	p.write("9")
	p.until(`document.querySelectorAll("tbody tr").length === 1`)
	p.until(`document.activeElement.id === "search"`)
	p.write("nobody")
	p.sees("No machines match")
	p.click("link", "Show all machines")
	p.sees("Machines 1 to 100")
	p.click("link", "rescue 1")
	p.until(`document.querySelectorAll("tbody tr").length === 1 && document.querySelector("tbody a").innerText === "rack3-01"`)
	p.until(`document.getElementById("live").dataset.state === "live"`)
	w.bring("rack1-01", "rescue", "rescue") // somebody else does
	p.until(`document.querySelectorAll("tbody tr").length === 2`)
	p.find("link", "rescue 2")
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, url := range p.asked {
		if strings.Contains(url, "/fleet/nodes") && !strings.Contains(url, "limit=100") || strings.Contains(url, "/v1/nodes") && !strings.Contains(url, "/salvor/") {
			t.Errorf("the list asks %s", url)
		}
	}
}

// testHosts sees a host die, and its servers move.
func testHosts(t *testing.T, w *world, b *browser) {
	shared := t.TempDir()
	kill := w.join("vm1", shared)
	w.hostIs("vm1", "up")
	w.servers("web1", "web2", "db"+planted)
	w.join("vm2", shared)
	w.hostIs("vm2", "up")
	p := newPage(t, b, 1280, 1000)
	p.open(w.url() + "#/servers")
	p.sees("db" + planted)
	p.click("link", "web1")
	p.until(`document.querySelector("h1")?.innerText === "web1"`)
	p.sees("vm1")
	looks(p, "server")
	p.open(w.url() + "#/hosts")
	p.sees("2 hosts")
	kill()
	w.ask(client.Native, http.MethodPatch, "/hosts/vm1", object{"forced_down": true}, nil)
	w.hostIs("vm1", "down")
	p.sees("1 down")
	w.eventually("vm1 is fenced", func() error { // the word counts once the lease has lapsed
		var got struct {
			Fenced         any
			Contradictions []struct{ Code string }
		}
		w.ask(client.Native, http.MethodGet, "/hosts/vm1", nil, &got)
		if got.Fenced != nil {
			return nil
		}
		var disputes []string // its neighbours reach the address of a simulated host
		if len(got.Contradictions) > 0 {
			disputes = append(disputes, got.Contradictions[0].Code)
		}
		return fmt.Errorf("it is not: %v", w.api.Ask(w.Context(), client.Native, http.MethodPost, "/hosts/vm1/fence", nil, object{"attest": "the cable is pulled", "disputes": disputes}, nil))
	})
	p.sees("1 fenced")
	looks(p, "hosts")
	var plan struct{ ID string }
	w.ask(client.Native, http.MethodPost, "/plans", object{"host": "vm1"}, &plan)
	p.open(w.url() + "#/plans/" + plan.ID)
	p.sees("3 servers of vm1, to 1 host: 3 keep their disks. Nothing was done yet.")
	w.ask(client.Native, http.MethodPost, "/plans/"+plan.ID+"/run", object{}, nil)
	p.until(`document.querySelectorAll("svg.plan .way.there").length === 3`)
	p.sees("3 of 3 moved")
	looks(p, "plan")
	p.eval(everyWay)
	if got := p.text("#every .legend"); got != "5 servers of rack7-vm3, to 2 hosts: 2 keep their disks, 1 has its volumes attached anew, 1 has its disk made anew: data lost, 1 cannot move. 1 of 5 moved." {
		t.Errorf("the picture says %q", got)
	}
	for _, stage := range []string{"keep there", "keep going", "reattach waiting", "reimage consent", "cannot stays"} {
		if p.eval(`document.querySelectorAll("#every .way.`+strings.ReplaceAll(stage, " ", ".")+`").length`) != 1.0 {
			t.Errorf("no server is drawn as %s", stage)
		}
	}
	p.shot("every-way")
	p.open(w.url() + "#/hosts/vm1")
	p.sees("fenced by attestation") // the words are those of the fence, or of who said that it is down: whichever was first
	p.find("link", "Plan 1")
	looks(p, "host")
	p.harmless()
	p.atHome(w)
}

// everyWay draws a plan with servers of every kind and stage, by the console's own hand.
const everyWay = `import("/console/plans.js").then(({drawing}) => {
	const item = (name, disposition, destination, more) => ({server_id: name, name, disposition, destination, ...more});
	const card = document.createElement("section");
	card.id = "every";
	card.className = "card";
	card.append(...drawing({host: "rack7-vm3", state: "running", dispositions: {keep: 2, reattach: 1, reimage: 1, cannot: 1}, items: [
		item("web1", "keep", "rack7-vm4", {move_state: "completed"}), item("web2", "keep", "rack7-vm4", {move_state: "running"}),
		item("db1", "reattach", "rack8-vm1", {}), item("cache1", "reimage", "rack8-vm1", {needs_consent: true}),
		item("build1", "cannot", "", {why: "its disk was rack7-vm3's own, and it has no image"})]}).filter(Boolean));
	document.querySelector("main").replaceChildren(card);
	scrollTo(0, 0);
})`

// testAway tells that the server is away, and goes on when it is back.
func testAway(t *testing.T, w *world, b *browser) {
	p := newPage(t, b, 1280, 1000)
	p.mayBe = []string{"Failed to load resource", "ERR_CONNECTION", "ERR_INCOMPLETE"}
	p.open(w.url() + "#/machines")
	p.until(`document.getElementById("live").dataset.state === "live"`)
	w.server.Kill()
	p.sees("Connection lost")
	p.until(`document.getElementById("alert").textContent.includes("the server is lost")`)
	w.server.Start(t)
	p.until(`document.getElementById("live").dataset.state === "live"`)
}

// token makes one of the API, by the command line.
func (w *world) token(name string, more ...string) string {
	w.Helper()
	args := append([]string{"token", "create", name, "--local", "--state-dir", w.server.State, "--config", filepath.Join(w.server.State, "salvor.conf"),
		"--url", w.server.URL, "-f", "value", "-c", "token"}, more...)
	out := must.Get(exec.CommandContext(w.Context(), program.Path(w, "salvor"), args...).Output())(w)
	return strings.TrimSpace(string(out))
}

// TestSignIn: nothing is shown to whom the server does not know; the token lies in the tab and goes with it.
func TestSignIn(t *testing.T) {
	w := newWorld(t, "[DEFAULT]\nauth_strategy = token\n")
	token, member := w.token("eve", "--role", "admin"), w.token("mallory", "--role", "member", "--project", "lab")
	p := newPage(t, newBrowser(t), 1280, 900)
	p.mayBe = []string{"Failed to load resource", "401"}
	p.open(w.url() + "#/hosts")
	p.find("heading", "Sign in")
	looks(p, "sign-in")
	p.write("wrong")
	p.key("Enter")
	p.sees("The token was refused")
	p.write(token)
	p.key("Enter")
	p.sees("No hosts yet")
	if kept := p.eval(`JSON.stringify([sessionStorage.length, localStorage.length, document.cookie, location.href.includes("salvor_")])`); kept != `[1,0,"",false]` {
		t.Errorf("the browser keeps %v", kept)
	}
	p.open(w.url() + "#/machines")
	p.sees("No machines yet")
	p.click("button", "Sign out")
	p.find("heading", "Sign in")
	if p.eval(`sessionStorage.length`) != 0.0 {
		t.Error("the token is still there")
	}
	// A member of a project sees what is the project's, and is told what is not for members.
	p.write(member)
	p.key("Enter")
	p.sees("No machines yet")
	p.sees("Refreshing every 10 s")
	p.click("link", "Hosts")
	p.sees("This is for administrators.")
}
