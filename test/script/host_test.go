package script

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"salvor/client"
	"salvor/compute"
	"salvor/host"
	"salvor/lab/sim"

	_ "modernc.org/sqlite"
)

// patience bounds the start of a host.
const patience = 30 * time.Second

// vmHost is a simulated VM host of a story. Its machine outlives its agent.
type vmHost struct {
	machine bridged
	agent   *sim.Host
}

// bridged is a machine with bridges.
type bridged struct {
	*sim.Machine
	bridges []string
}

// Inventory tells the bridges as well.
func (m bridged) Inventory(ctx context.Context) (compute.Inventory, error) {
	i, err := m.Machine.Inventory(ctx)
	i.Bridges = m.bridges
	return i, err
}

// hosts are the VM hosts by story and name.
var hosts sync.Map

type hostKey struct {
	story *testscript.TestScript
	name  string
}

var hostsDoor = regexp.MustCompile(`msg=listening door=hosts address=(\S+)`)

// vmhost starts the agent of a VM host and waits until the server knows what it has; the words after its name are its bridges and disk stores, the first store that of new disks.
func vmhost(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: vmhost NAME [bridge=NAME...] [store=NAME:DIR...], or vmhost -stop NAME")
	}
	if args[0] == "-stop" {
		h, ok := hosts.Load(hostKey{ts, args[1]})
		if !ok {
			ts.Fatalf("no host %s", args[1])
		}
		h.(*vmHost).stop(ts)
		return
	}
	found, _ := hosts.LoadOrStore(hostKey{ts, args[0]}, &vmHost{machine: bridged{Machine: sim.NewMachine()}})
	h := found.(*vmHost)
	h.stop(ts)
	h.machine.bridges = nil
	var stores []host.Store
	for _, word := range args[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch name, dir, ok := strings.Cut(value, ":"); {
		case key == "bridge":
			h.machine.bridges = append(h.machine.bridges, value)
		case key == "store" && ok:
			stores = append(stores, host.Store{Name: name, Dir: ts.MkAbs(dir), Shared: true})
		default:
			ts.Fatalf("vmhost: %q", word)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	door := hostsDoor.FindStringSubmatch(running(ts).Log())
	for door == nil { // it is opened after the API's
		if ctx.Err() != nil {
			ts.Fatalf("the server has no door for hosts")
		}
		time.Sleep(10 * time.Millisecond)
		door = hostsDoor.FindStringSubmatch(running(ts).Log())
	}
	agent, err := sim.StartHost(ctx, sim.Config{
		API: running(ts).URL, Controller: "https://" + door[1], StateDir: ts.MkAbs("host-" + args[0]), Name: args[0], Stores: stores,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}, h.machine)
	ts.Check(err)
	h.agent = agent
	ts.Defer(func() { h.stop(ts) })
	ts.Check(h.known(ctx, running(ts).URL, args[0], stores))
}

// known waits until the server knows what the host has.
func (h *vmHost) known(ctx context.Context, url, name string, stores []host.Store) error {
	api, err := client.New(client.Config{Endpoint: url})
	if err != nil {
		return err
	}
	for {
		var got struct {
			State     string
			Inventory compute.Inventory
		}
		err := api.Ask(ctx, client.Native, http.MethodGet, "/hosts/"+name, nil, nil, &got)
		i := &got.Inventory
		same := slices.EqualFunc(i.Stores, stores, func(a compute.DiskStore, b host.Store) bool { return a.Name == b.Name && a.Marker != "" })
		if err == nil && got.State == "up" && i.VCPUs > 0 && same && slices.Equal(i.Bridges, h.machine.bridges) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("host %s is not known as it is: %+v, %v", name, got, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (h *vmHost) stop(ts *testscript.TestScript) {
	if h.agent != nil {
		ts.Check(h.agent.Stop())
	}
	h.agent = nil
}

// statement runs SQL in the server's database, for what no command can bring about.
func statement(ts *testscript.TestScript, neg bool, args []string) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(running(ts).State, "salvor.db")+"?_pragma=busy_timeout(10000)")
	ts.Check(err)
	defer db.Close()
	_, err = db.Exec(strings.Join(args, " "))
	ts.Check(err)
}

// eventually runs a command until it succeeds and prints what a regular expression, whose lines are lines, finds.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for limit := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		cmd := exec.Command(filepath.Join(filepath.SplitList(ts.Getenv("PATH"))[0], args[1]), args[2:]...)
		cmd.Env = append(os.Environ(), "SALVOR_URL="+ts.Getenv("SALVOR_URL"))
		out, err := cmd.CombinedOutput()
		if err == nil && want.Match(out) {
			return
		}
		if time.Now().After(limit) {
			ts.Fatalf("%s: %v: no %q in:\n%s", strings.Join(args[1:], " "), err, args[0], out)
		}
	}
}

var (
	uuids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	goes  = regexp.MustCompile(`\n {10,}`) // a cell goes on in the next line
	runs  = regexp.MustCompile(`(?m) +| +$|-{2,}`)
)

// golden compares what was printed last with a file of the story, word by word: how it is filled up and broken depends on what is
// long. UUID stands for every UUID in it, WORK for the folder of the story.
func golden(ts *testscript.TestScript, neg bool, args []string) {
	plain := func(text string) string {
		text = uuids.ReplaceAllString(strings.ReplaceAll(text, ts.Getenv("WORK"), "WORK"), "UUID")
		return strings.TrimSpace(runs.ReplaceAllStringFunc(goes.ReplaceAllString(text, " "), func(run string) string { return run[:1] }))
	}
	if got, want := plain(ts.ReadFile("stdout")), plain(ts.ReadFile(args[0])); got != want {
		ts.Fatalf("it prints\n%s\nand not\n%s", got, want)
	}
}
