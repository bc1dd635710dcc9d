package network

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"salvor/lab/odd"
	"salvor/networkdata"
	"salvor/test/must"
)

// TestOddNetworkData sets up network data of which one to three lines were changed, in a machine that is a network namespace. What the rule of lab/odd
// takes for plain must be there, and a connection from outside must reach sshd's port. What is not there must be named. SALVOR_SEED repeats a run, and
// SALVOR_ODD runs one input: the number of the input, or a document. make odd runs 4500 inputs.
func TestOddNetworkData(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("LEFT OUT: odd network data need root, for network namespaces")
	}
	count := 100
	switch text := os.Getenv("SALVOR_INPUTS"); {
	case text != "":
		count = must.Get(strconv.Atoi(text))(t)
	case os.Getenv("SALVOR_SWEEP") == "whole":
		count = 4500
	case testing.Short():
		count = 30
	}
	runOddNetworks(t, slices.DeleteFunc(slices.Clone(odd.NetworkBases), func(b odd.NetworkBase) bool { return b.Stacked }), count, 6)
}

// oddCase is changed lines of a base. named is a part of what the agent must tell; empty: nothing.
type oddCase struct {
	name, base, named string
	changes           []odd.LineChange
}

// oddCases are failures that the generator found.
var oddCases = []oddCase{
	{"a name server without a network", "Nova", "", lines("networks", nil)},
	{"a lease and a fixed address on one link", "Nova", "", lines("networks[2].link", "tap1a81968a-79")},
	{"router advertisements where no router is", "Nova", "no router on link", lines("networks[1].type", "ipv6_slaac")},
	{"DHCPv6 alone where no server is", "Nova", "no DHCP server on link", lines("networks[0].type", "ipv6_dhcp", "networks[1].type", "ipv6_dhcp", "networks[2].type", "ipv6_slaac")},
}

// TestOddCases: see oddCases.
func TestOddCases(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("LEFT OUT: odd network data need root, for network namespaces")
	}
	runOddCases(t, oddCases)
}

func runOddCases(t *testing.T, cases []oddCase) {
	t.Helper()
	w := startOddWorker(t)
	for _, c := range cases {
		i := slices.IndexFunc(odd.NetworkBases, func(b odd.NetworkBase) bool { return b.Name == c.base })
		in := odd.NetworkInput{Base: odd.NetworkBases[i], Changes: c.changes}
		result := w.ask(oddInput{in.Document(), in.Base.Segments})
		if told := strings.Join(result.LeftOut, "\n"); result.Wrong != nil || !strings.Contains(told, c.named) || c.named == "" && told != "" {
			t.Errorf("%s: wrong: %q; left out: %q, want %q in it", c.name, result.Wrong, told, c.named)
		}
	}
}

const gone = "52:54:00:99:99:99"

// lines makes changes of paths and values.
func lines(pairs ...any) (out []odd.LineChange) {
	for i := 0; i < len(pairs); i += 2 {
		c := odd.LineChange{Do: odd.Replace, Value: pairs[i+1]}
		for _, step := range strings.FieldsFunc(pairs[i].(string), func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
			if n, err := strconv.Atoi(step); err == nil {
				c.Path = append(c.Path, n)
			} else {
				c.Path = append(c.Path, step)
			}
		}
		out = append(out, c)
	}
	return out
}

// TestNetworkClaims: of the bases without a change, the rule takes everything for plain.
func TestNetworkClaims(t *testing.T) {
	t.Parallel()
	for _, b := range odd.NetworkBases {
		for _, c := range odd.NetworkClaims(b.Document(), b.Segments) {
			if !c.Must && c.Kind != odd.ClaimMTU {
				t.Errorf("%s: %s is not plain", b.Name, c.What)
			}
		}
	}
}

const inOddWorker = "SALVOR_TEST_ODD_WORKER"

// oddInput is what a worker is given, a line each.
type oddInput struct {
	Document any        `json:"document"`
	Segments [][]string `json:"segments"`
}

// oddResult is what a worker answers.
type oddResult struct {
	// Wrong says what is wrong; empty: nothing.
	Wrong []string `json:"wrong"`
	// Class is the kind of what is wrong first.
	Class string `json:"class"`
	// LeftOut is what the agent told.
	LeftOut []string      `json:"left_out"`
	Claims  int           `json:"claims"`
	Dials   int           `json:"dials"`
	Took    time.Duration `json:"took"`
}

const endedClass = "the machine ended"

const oddAnswer = "odd result: "

// TestOddWorker is the machine of one input after the other, each in a network namespace of its own.
func TestOddWorker(t *testing.T) {
	if os.Getenv(inOddWorker) == "" {
		return
	}
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var in oddInput
		must.OK(t, json.Unmarshal(line, &in))
		result, err := followOddData(t.TempDir(), in)
		if err != nil {
			result.Class, result.Wrong = "the test itself", append(result.Wrong, "the test itself: "+err.Error())
		}
		fmt.Printf("%s%s\n", oddAnswer, must.Get(json.Marshal(result))(t))
	}
}

// oddWorker is a process with TestOddWorker.
type oddWorker struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	errors bytes.Buffer
}

func startOddWorker(t *testing.T) *oddWorker {
	t.Helper()
	w := &oddWorker{cmd: exec.Command(os.Args[0], "-test.run=^TestOddWorker$", "-test.timeout=0")}
	w.cmd.Env = append(os.Environ(), inOddWorker+"=yes")
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	w.cmd.Stderr = &w.errors
	w.in = must.Get(w.cmd.StdinPipe())(t)
	w.out = bufio.NewReaderSize(must.Get(w.cmd.StdoutPipe())(t), 1<<20)
	if err := w.cmd.Start(); err != nil {
		t.Skip("LEFT OUT: odd network data need network namespaces: " + err.Error())
	}
	t.Cleanup(func() { _ = w.in.Close(); _ = w.cmd.Process.Kill(); _ = w.cmd.Wait() })
	return w
}

// ask gives the worker an input and waits for the result.
func (w *oddWorker) ask(in oddInput) oddResult {
	var result oddResult
	text, err := json.Marshal(in)
	if err == nil {
		_, err = w.in.Write(append(text, '\n'))
	}
	for err == nil {
		var line string
		if line, err = w.out.ReadString('\n'); err != nil {
			break
		}
		if answer, ok := strings.CutPrefix(line, oddAnswer); ok {
			err = json.Unmarshal([]byte(answer), &result)
			break
		}
	}
	if err != nil {
		result.Class, result.Wrong = endedClass, append(result.Wrong, fmt.Sprintf("the machine ended: %v: %s", err, w.errors.String()))
	}
	return result
}

// oddSeed is SALVOR_SEED, else the seed of a new run for make odd, else that of the sample, which is the same each time.
func oddSeed(t *testing.T) uint64 {
	t.Helper()
	if text := os.Getenv("SALVOR_SEED"); text != "" {
		return must.Get(strconv.ParseUint(text, 10, 64))(t)
	}
	if os.Getenv("SALVOR_SWEEP") == "whole" {
		return rand.Uint64()
	}
	return 1
}

// runOddNetworks runs inputs of the bases in several machines at once, the bases as they are first.
func runOddNetworks(t *testing.T, bases []odd.NetworkBase, count, machines int) {
	t.Helper()
	seed := oddSeed(t)
	t.Logf("SALVOR_SEED=%d, %d inputs", seed, count)
	numbers := make(chan int)
	var failures atomic.Int32
	var mu sync.Mutex
	var claims, dials, done int
	begun := time.Now()
	var wg sync.WaitGroup
	for range machines {
		w := startOddWorker(t)
		wg.Go(func() {
			for i := range numbers {
				in := odd.NetworkInput{}
				if i < len(bases) {
					in.Base = bases[i]
				} else {
					in = odd.NewNetworkInput(bases, seed, uint64(i))
				}
				result := w.ask(oddInput{in.Document(), in.Base.Segments})
				mu.Lock()
				claims, dials, done = claims+result.Claims, dials+result.Dials, done+1
				mu.Unlock()
				if result.Wrong != nil {
					failures.Add(1)
					if result.Class == endedClass {
						t.Errorf("SALVOR_SEED=%d SALVOR_ODD=%d: %s: %s", seed, i, in, result.Wrong)
						w = startOddWorker(t)
						continue
					}
					reportOdd(t, w, in, result, seed, i)
				}
			}
		})
	}
	from, to := 0, count
	if text := os.Getenv("SALVOR_ODD"); text != "" {
		from = must.Get(strconv.Atoi(text))(t)
		to = from + 1
	}
	for i := from; i < to && failures.Load() < 8; i++ {
		numbers <- i
	}
	close(numbers)
	wg.Wait()
	t.Logf("%d inputs, %d things asked for, %d connections, %d failures in %s", done, claims, dials, failures.Load(), time.Since(begun).Round(time.Second))
}

// reportOdd makes a failing input as small as it gets, and shows it.
func reportOdd(t *testing.T, w *oddWorker, in odd.NetworkInput, result oddResult, seed uint64, number int) {
	class, first := result.Class, result
	smaller, doc := odd.ShrinkNetwork(in, 60, func(doc any) bool {
		again := w.ask(oddInput{doc, in.Base.Segments})
		if again.Class != class {
			return false
		}
		result = again
		return true
	})
	t.Errorf("SALVOR_SEED=%d SALVOR_ODD=%d: %s\ndocument: %s\nwrong: %s\nleft out: %s\nat first: %s",
		seed, number, smaller, must.Get(json.Marshal(doc))(t), strings.Join(result.Wrong, "\n       "), strings.Join(result.LeftOut, "\n          "), strings.Join(first.Wrong, "\n          "))
}

// oddRun is one input in its machine.
type oddRun struct {
	world  *outside
	claims []odd.NetworkClaim
	listen []netip.Addr
	told   string
	before string // what the agent tells before it ends
	dns    string
	ended  bool   // ssh has an address
	stop   func() // ends the agent's part
	result oddResult
}

// followOddData lets the agent's code set up a document in a new machine, and compares what is there with what the document asks for.
func followOddData(root string, in oddInput) (oddResult, error) {
	begun := time.Now()
	if err := freshNamespace(); err != nil {
		return oddResult{}, err
	}
	world, err := newOutside(in.Segments)
	if err != nil {
		return oddResult{}, err
	}
	defer world.close()
	r := &oddRun{world: world, claims: odd.NetworkClaims(in.Document, in.Segments)}
	for s := range in.Segments {
		if err := world.serveLeases(segmentDevice(in.Segments, s)); err != nil {
			return oddResult{}, err
		}
	}
	for _, c := range r.claims {
		if c.Kind == odd.ClaimLease && c.On.Tag > 0 && c.On.Segment >= 0 {
			device, err := world.device(c.On)
			if err == nil {
				err = world.serveLeases(device)
			}
			if err != nil {
				return oddResult{}, err
			}
		}
	}
	err = r.setUp(root, in)
	if r.stop != nil {
		defer r.stop()
	}
	if err != nil {
		return oddResult{}, err
	}
	r.judge()
	r.result.Claims, r.result.LeftOut, r.result.Took = len(r.claims), strings.Split(r.told, "\n"), time.Since(begun)
	return r.result, nil
}

// setUp runs the agent's part.
func (r *oddRun) setUp(root string, in oddInput) error {
	text, err := json.Marshal(in.Document)
	if err != nil {
		return err
	}
	if data, err := networkdata.Parse(text); err == nil {
		r.before = strings.Join(data.Forecast(slices.Concat(in.Segments...)).LeftOut, "\n")
	} else {
		r.before = err.Error()
	}
	if err := WritePlan(root, Plan{Move: MoveYes, NetworkData: text}); err != nil {
		return err
	}
	limit := 4 * time.Second
	if r.hasAddress() {
		limit = 45 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	ready, done := make(chan bool, 1), make(chan error, 1)
	s := &Setup{Root: root, Log: slog.New(slog.DiscardHandler), tellAfter: time.Second, Ready: func() error { ready <- true; return nil }}
	go func() { done <- s.Run(ctx) }()
	r.stop = func() { cancel(); <-done }
	select {
	case err = <-done:
		done <- err
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("set the network up: %w", err)
		}
		r.ended = err == nil
	case <-ready:
		r.ended = true
	}
	if !r.ended {
		file, _ := os.ReadFile(filepath.Join(root, LeftOutFile))
		r.told = strings.TrimSpace(string(file))
		return nil
	}
	for until := time.Now().Add(settleTime); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if err := r.read(root); err != nil || r.settled() {
			return err
		}
		if len(done) > 0 {
			break
		}
	}
	return r.read(root)
}

// settleTime is how long a late lease may take on a machine that is busy with other work. An input whose leases are there waits for nothing.
const settleTime = 15 * time.Second

// settled tells whether ssh has as many addresses as can be had for certain.
func (r *oddRun) settled() bool {
	for _, c := range r.claims {
		if c.Must && (c.Kind == odd.ClaimAddress && !slices.Contains(r.listen, c.Address) || c.Kind == odd.ClaimLease && r.leaseOf(c) == (netip.Addr{})) {
			return false
		}
	}
	return true
}

// read reads what the agent left in files. The agent writes what it left out before it writes the addresses, so the addresses are read first.
func (r *oddRun) read(root string) error {
	file, err := os.ReadFile(filepath.Join(root, ListenFile))
	if err != nil {
		return err
	}
	r.listen = nil
	for _, line := range strings.Fields(string(file)) {
		r.listen = append(r.listen, netip.MustParseAddr(line))
	}
	if file, err = os.ReadFile(filepath.Join(root, LeftOutFile)); err != nil {
		return err
	}
	r.told = strings.TrimSpace(string(file))
	file, _ = os.ReadFile(filepath.Join(root, resolver))
	r.dns = string(file)
	return nil
}

// hasAddress tells whether an address can be had for certain.
func (r *oddRun) hasAddress() bool {
	return slices.ContainsFunc(r.claims, func(c odd.NetworkClaim) bool {
		return c.Must && (c.Kind == odd.ClaimAddress || c.Kind == odd.ClaimLease)
	})
}

// wrong notes what is wrong. The class keeps a shrinking input from becoming another failure.
func (r *oddRun) wrong(class string, kind odd.ClaimKind, format string, args ...any) {
	if r.result.Wrong == nil {
		r.result.Class = fmt.Sprint(class, " ", kind)
	}
	r.result.Wrong = append(r.result.Wrong, fmt.Sprintf(format, args...))
}

// judge compares each claim with the machine.
func (r *oddRun) judge() {
	for _, a := range r.listen {
		l, err := net.Listen("tcp", netip.AddrPortFrom(a, sshPort).String())
		if err != nil {
			r.wrong("listen", 0, "sshd cannot listen on %s: %v", a, err)
			continue
		}
		defer l.Close()
	}
	if len(r.listen) == 0 && (r.ended || r.hasAddress()) {
		r.wrong("no address", 0, "ssh has no address (ended: %t)", r.ended)
	}
	if err := addressOnMember(); err != nil {
		r.wrong("member", 0, "%v", err)
	}
	works := make([]bool, len(r.claims))
	whole := true
	for i, c := range r.claims {
		if c.Of >= 0 && !works[c.Of] || c.Kind == odd.ClaimDNS && !r.ended { // name servers are written with the first address
			continue
		}
		err := r.look(c)
		works[i] = err == nil
		whole = whole && c.Must && err == nil
		switch {
		case err == nil:
		case c.Must:
			r.wrong("must", c.Kind, "%s can be had, and is not there: %v", c.What, err)
		case !isNamed(r.told, c.Names):
			r.wrong("not named", c.Kind, "%s is not there (%v), and nothing of %q is named", c.What, err, c.Names)
		case c.Kind == odd.ClaimNothing && !c.Late && !isNamed(r.before, c.Names):
			r.wrong("not named before", c.Kind, "%s is not there, and nothing of %q is named before the agent ends: %s", c.What, c.Names, r.before)
		}
	}
	told := slices.DeleteFunc(strings.Split(r.told, "\n"), func(line string) bool { // of a value that no claim is about
		return line == "" || line == "a name server has no address" || strings.HasSuffix(line, "has a type that cannot be read")
	})
	if whole && len(r.claims) > 0 && len(told) > 0 {
		r.wrong("told in vain", 0, "everything is there, and yet this is told: %s", r.told)
	}
	reached := slices.ContainsFunc(r.claims, func(c odd.NetworkClaim) bool { return c.Kind == odd.ClaimAddress || c.Kind == odd.ClaimLease })
	if !reached && r.ended && !slices.ContainsFunc(r.claims, func(c odd.NetworkClaim) bool { return c.Late }) {
		if err := r.dialLease(odd.NetworkClaim{On: odd.LinkPlace{Segment: -1}}); err != nil {
			r.wrong("no lease", 0, "nothing of the data can be had, and no lease works: %v", err)
		}
	}
}

// isNamed tells whether one of the names is said. A short one counts in quotes only, because it is part of many words.
func isNamed(told string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		if len(name) < 4 {
			name = `"` + name + `"`
		}
		return strings.Contains(told, name)
	})
}
