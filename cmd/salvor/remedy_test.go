package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/client"
	"salvor/cmd/salvor/serve"
	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/secret"
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/wire/native"
)

// plight is a situation of a node in which it may be found, whatever its state.
type plight struct {
	name string
	node func(n *metal.Node)
	jobs func(n *metal.Node) []*job.Job
}

// kindsIn are the operations that work in a state, each with an action that is not its first.
var kindsIn = map[metal.State][2]string{
	metal.Verifying: {"manage", "read the power"}, metal.Inspecting: {"inspect", "prepare the ramdisk"}, metal.InspectWait: {"inspect", "await the findings"},
	metal.InspectFailed: {"inspect", "prepare the ramdisk"}, metal.Adopting: {"adopt", "read the power"},
	metal.Cleaning: {"clean", "prepare the ramdisk"}, metal.CleanWait: {"clean", "await the ramdisk"}, metal.CleanHold: {"clean", "work off the steps"},
	metal.CleanFailed: {"clean", "prepare the ramdisk"}, metal.Deploying: {"deploy", "prepare the ramdisk"}, metal.DeployWait: {"deploy", "await the ramdisk"},
	metal.DeployHold: {"deploy", "work off the steps"}, metal.DeployFailed: {"deploy", "prepare the ramdisk"},
	metal.Servicing: {"service", "prepare the ramdisk"}, metal.ServiceWait: {"service", "await the ramdisk"}, metal.ServiceHold: {"service", "work off the steps"},
	metal.ServiceFailed: {"service", "prepare the ramdisk"}, metal.Rescuing: {"rescue", "prepare the ramdisk"}, metal.RescueWait: {"rescue", "await the ramdisk"},
	metal.RescueFailed: {"rescue", "prepare the ramdisk"}, metal.Unrescuing: {"unrescue", "power off"}, metal.UnrescueFailed: {"unrescue", "power off"},
	metal.Deleting: {"delete", "power off"}, metal.Error: {"delete", "power off"},
}

// operation is the job of the node's state. It is not due for minutes, so that nobody works on it before the command has run.
func operation(n *metal.Node, state job.State, change func(*job.Job)) []*job.Job {
	kind, ok := kindsIn[n.ProvisionState]
	if !ok {
		return nil
	}
	now := time.Now()
	j := &job.Job{Kind: job.Kind(kind[0]), Class: job.Operation, Subject: job.Node(n.ID), State: state, Action: kind[1], Due: now.Add(10 * time.Minute), ActionStartedAt: now}
	if state == job.Undoing {
		j.Problem, j.ProblemKind = "no answer", "unavailable"
	}
	if change != nil {
		change(j)
	}
	return []*job.Job{j}
}

// powerRetry is a command that asks the BMC again and again.
func powerRetry(n *metal.Node) *job.Job {
	return &job.Job{Kind: "power", Class: job.Command, Subject: job.Node(n.ID), State: job.Ready, Action: "power off", Args: []byte(`{"target": "power off"}`),
		Attempt: 3, WaitFor: "another try", Due: time.Now().Add(10 * time.Minute), ActionStartedAt: time.Now()}
}

var plights = []plight{
	{name: "nothing works on it"},
	{name: "its last operation failed", node: func(n *metal.Node) { n.LastError = "the BMC did not answer" }},
	{name: "in maintenance", node: func(n *metal.Node) { n.Maintenance, n.MaintenanceReason = true, "fan" }},
	{name: "could not be taken back", node: func(n *metal.Node) { n.Maintenance, n.Fault, n.LastError = true, "rescue abort failure", "aborted" }},
	{name: "its BMC is silent", node: func(n *metal.Node) { n.Maintenance, n.Fault = true, metal.PowerFailure }},
	{name: "held off", node: func(n *metal.Node) { n.PowerLock = "its host is fenced" }},
	{name: "protected", node: func(n *metal.Node) { n.Protected, n.LastError = true, "x" }},
	{name: "waits", jobs: func(n *metal.Node) []*job.Job {
		return operation(n, job.Waiting, func(j *job.Job) { j.WaitFor = "the ramdisk's callback" })
	}},
	{name: "waits in maintenance", node: func(n *metal.Node) { n.Maintenance = true }, jobs: func(n *metal.Node) []*job.Job {
		return operation(n, job.Waiting, func(j *job.Job) { j.WaitFor = metal.EndOfMaintenance })
	}},
	{name: "waits, and a power command tries again", jobs: func(n *metal.Node) []*job.Job {
		return append(operation(n, job.Waiting, func(j *job.Job) { j.WaitFor = "the ramdisk's callback" }), powerRetry(n))
	}},
	{name: "tries again", jobs: func(n *metal.Node) []*job.Job {
		return operation(n, job.Ready, func(j *job.Job) { j.Attempt, j.WaitFor = 3, "another try" })
	}},
	{name: "tries again, far on", jobs: func(n *metal.Node) []*job.Job {
		return operation(n, job.Ready, func(j *job.Job) {
			j.Attempt, j.WaitFor, j.Memo = 3, "another try", map[string]string{"advanced": "yes"}
		})
	}},
	{name: "queued", jobs: func(n *metal.Node) []*job.Job { return operation(n, job.Ready, nil) }},
	{name: "queued while its BMC is silent", node: func(n *metal.Node) { n.Maintenance, n.Fault = true, metal.PowerFailure },
		jobs: func(n *metal.Node) []*job.Job { return operation(n, job.Ready, nil) }},
	{name: "is taken back in vain", jobs: func(n *metal.Node) []*job.Job {
		return operation(n, job.Undoing, func(j *job.Job) { j.Attempt, j.WaitFor = 3, "another try" })
	}},
	{name: "a power command tries again", jobs: func(n *metal.Node) []*job.Job { return []*job.Job{powerRetry(n)} }},
}

// remedyWalk makes nodes in trouble and runs commands on them.
type remedyWalk struct {
	*testing.T
	p     *serve.ControlPlane
	url   string
	count int
	ran   map[string]int
	bound time.Duration // of a command; 0: a minute
}

// place makes a node that is found so.
func (w *remedyWalk) place(at metal.State, in plight) *metal.Node {
	w.Helper()
	ctx := w.Context()
	w.count++
	n := &metal.Node{ID: uuid.NewString(), Name: fmt.Sprintf("m%d", w.count), Driver: "fake-hardware", ProvisionState: at, TargetProvision: at.Info().Target,
		PowerState: metal.PowerOn, ProvisionedAt: time.Now(), CreatedAt: time.Now(), DriverInfo: metal.Object{}, InstanceInfo: metal.Object{"image_source": "http://127.0.0.1/image"}}
	if in.node != nil {
		in.node(n)
	}
	must.OK(w, w.p.Store.Do(ctx, func(tx job.Tx) error {
		if err := w.p.Store.InsertNode(tx, n); err != nil {
			return err
		}
		if in.jobs == nil {
			return nil
		}
		for _, j := range in.jobs(n) {
			if err := w.p.Store.Insert(tx, j); err != nil {
				return err
			}
		}
		return nil
	}))
	return n
}

// run types a command after it has filled in its placeholders. It returns the output, and the error if the command was refused.
func (w *remedyWalk) run(line, password string) (string, error) {
	w.Helper()
	credential := "fake_password=x"
	if strings.Contains(line, " KEY=VALUE") {
		credential = "fake_address=x"
	}
	line = strings.NewReplacer("PASSWORD_KEY=VALUE", credential, "KEY=VALUE", credential).Replace(line)
	words := wordsOf(line)[1:]
	if words[0] == "node" && words[1] == "rescue" {
		words = append(words, "--rescue-password-file", "-")
	}
	ctx, cancel := context.WithTimeout(w.Context(), cmp.Or(w.bound, time.Minute))
	defer cancel()
	if strings.HasSuffix(line, "--follow") {
		ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
	}
	root := newRootCommand()
	if c, _, err := root.Find(words); err == nil && c.Flag("url") != nil {
		words = append(words, "--url", w.url)
	}
	var output strings.Builder
	root.SetArgs(words)
	root.SetIn(strings.NewReader(password))
	root.SetOut(&output)
	root.SetErr(&output)
	err := root.ExecuteContext(ctx)
	if err != nil && strings.HasSuffix(line, "--follow") && ctx.Err() != nil {
		return output.String(), nil
	}
	if err != nil {
		return output.String() + "\n" + err.Error(), fmt.Errorf("%s: %w", line, err)
	}
	return output.String(), nil
}

// follow types the commands that another one printed, except known ones. It returns how many were refused, and whether it typed any.
func (w *remedyWalk) follow(line, output string, known []string) (refused int, typed bool) {
	if strings.Contains(output, "Usage:") {
		return 0, false
	}
	for _, next := range commandsPrinted(output) {
		plain := "after another: " + names.ReplaceAllString(next, "IT")
		if slices.Contains(known, next) || w.ran[plain] > 3 {
			continue
		}
		typed = true
		w.ran[plain]++
		if _, err := w.run(next, "let me in\n"); !accepted(err) {
			refused++
			w.Errorf("after %s, which printed\n%s\n%v", line, output, err)
		}
	}
	return refused, typed
}

var (
	printed = regexp.MustCompile(`salvor [a-z][a-z-]*(?: (?:"[^"]*"|[^\s"#;,()]+))*`)
	names   = regexp.MustCompile(`\b[msh]\d+x?\b|[0-9a-f]{8}-[0-9a-f-]{27}`)
	prose   = regexp.MustCompile(`^(salvor \S+ \S+ ?.*?) (?:when|says|moves|to|if|once|reads|makes|lists|and|or|until)( .*|$)`)
)

// commandsPrinted lists the command lines in a text, without the words of a sentence that follow them.
func commandsPrinted(text string) (out []string) {
	for _, line := range printed.FindAllString(text, -1) {
		line = strings.TrimRight(prose.ReplaceAllString(line, "$1"), " .:'`\\")
		if strings.HasPrefix(line, "salvor host --") || strings.HasPrefix(line, "salvor knows") {
			continue // run on the host itself; a sentence
		}
		if _, _, err := commandTree().Find(wordsOf(line)[1:]); err == nil && strings.Count(line, " ") > 1 && !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	return out
}

// wordsOf splits a line as a shell does, as far as it is printed.
func wordsOf(line string) (out []string) {
	for _, word := range regexp.MustCompile(`(?:"[^"]*"|\S)+`).FindAllString(line, -1) {
		out = append(out, strings.ReplaceAll(word, `"`, ""))
	}
	return out
}

// remedies are the commands that are printed of a node: by why, and by --wait when it fails or is late.
func (w *remedyWalk) remedies(n *metal.Node) (out []string) {
	w.Helper()
	c := must.Get(client.New(client.Config{Endpoint: w.url, Username: "admin", Password: secret.New("password")}))(w)
	var why native.Why
	must.OK(w, c.Ask(w.Context(), client.Native, http.MethodGet, "/nodes/"+n.ID+"/why", nil, nil, &why))
	for _, next := range why.Next {
		out = append(out, next.Run)
	}
	seen := must.Get(c.Node(w.Context(), n.ID))(w)
	texts := append(append(why.Problems, why.Notes...), why.Text, seen.LastError, seen.MaintenanceReason, goesOn(n.Name, seen))
	if !client.Working(seen.ProvisionState) {
		texts = append(texts, nextStep(w.Context(), c, seen))
	}
	return append(out, commandsPrinted(strings.Join(texts, "\n"))...)
}

// working runs a control plane with its API and its conductor in this process, with more settings of [conductor].
func working(t *testing.T, settings ...string) *remedyWalk {
	t.Helper()
	p := openControlPlane(t, "[conductor]\nsync_power_state_interval = 0\n"+strings.Join(settings, "\n")+"\n")
	main, _, err := p.Handlers()
	if err != nil {
		t.Fatal(err)
	}
	// Walks run beside each other, and commands take a password from the environment only. So requests without a password get it here.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, given := r.BasicAuth(); !given {
			r.SetBasicAuth("admin", "password")
		}
		main.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	must.OK(t, p.Runner.Join(t.Context()))
	must.Get(p.Directory.Conductors(t.Context()))(t)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = p.Runner.Run(ctx, 0) }()
	t.Cleanup(func() { stop(); <-ended })
	return &remedyWalk{T: t, p: p, url: server.URL, ran: map[string]int{}}
}

// TestADeadBMCLocksNothing: a BMC whose port is closed is given up by the command that why prints, and a mended address is tried at once.
func TestADeadBMCLocksNothing(t *testing.T) {
	t.Parallel()
	w := working(t)
	for _, c := range []struct {
		from  metal.State
		words []string
	}{
		{metal.Enroll, []string{"node", "manage"}}, {metal.Active, []string{"node", "power", "off"}}, {metal.Active, []string{"node", "boot", "device", "set"}},
	} {
		n := w.place(c.from, plight{node: func(n *metal.Node) {
			n.Driver, n.DriverInfo = "redfish", metal.Object{"redfish_address": "http://127.0.0.1:1", "redfish_username": "u", "redfish_password": "p"}
		}})
		line := strings.Join(append([]string{"salvor"}, append(c.words, n.Name)...), " ")
		asked := make(chan error, 1)
		if c.words[1] == "boot" {
			line += " pxe"
		}
		go func() { _, err := w.run(line, ""); asked <- err }() // one that sets the boot device waits for an answer
		tries := func(j *job.Job) bool { return j != nil && j.Attempt > 1 }
		fixture.Poll(w, line+" tries again", func() bool { return tries(w.lead(n)) })
		typed := map[string]bool{}
		for _, next := range w.remedies(n) {
			if !typed[next] && (strings.Contains(next, "--driver-info") || strings.Contains(next, " abort ")) {
				typed[next] = true
				if c.words[1] == "power" {
					next = strings.Replace(next, " KEY=VALUE", " redfish_address=http://127.0.0.1:2", 1)
				}
				if _, err := w.run(next, ""); err != nil {
					t.Errorf("after %s: %v", line, err)
				}
			}
		}
		began := time.Now()
		fixture.Poll(w, line+" is given up", func() bool { return w.lead(n) == nil })
		t.Logf("%s: free %s after its abort", line, time.Since(began).Round(time.Millisecond))
		got, err := w.p.Store.Node(t.Context(), nil, n.ID)
		if err != nil || got.ProvisionState != c.from || got.Reservation != "" {
			t.Errorf("%s: %+v: %v", line, got, err)
		}
		if err := <-asked; c.words[1] == "boot" && (err == nil || !strings.Contains(err.Error(), "aborted by request")) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func (w *remedyWalk) lead(n *metal.Node) *job.Job {
	w.Helper()
	open := must.Get(w.p.Store.Unended(nil, job.Node(n.ID)))(w)
	return record.Lead(open)
}

// TestEveryRemedyIsAccepted walks every state, with every kind of job that may wait, try again or be taken back in it, and types every
// command that is printed there.
func TestEveryRemedyIsAccepted(t *testing.T) {
	t.Parallel()
	w := working(t)
	p := w.p
	refused, situations := 0, 0
	for _, info := range metal.States {
		for _, in := range plights {
			n := w.place(info.State, in)
			if jobs, err := p.Store.Unended(nil, job.Node(n.ID)); err != nil || in.jobs != nil && len(jobs) == 0 {
				continue // no operation works in this state
			}
			situations++
			name, used, done := n.Name, false, map[string]bool{}
			lines := w.remedies(n)
			for _, line := range lines {
				plain := strings.ReplaceAll(line, name, "NODE")
				reads := strings.Contains(line, " show ") || strings.Contains(line, " history ") || strings.Contains(line, " why ") || strings.HasSuffix(line, "--follow")
				if done[plain] || reads && w.ran[plain] > 2 {
					continue
				}
				if done[plain] = true; used {
					n = w.place(info.State, in)
				}
				used = !reads
				line = strings.ReplaceAll(line, name, n.Name)
				output, err := w.run(line, "let me in\n")
				if err != nil {
					refused++
					t.Errorf("%s, %s: %v", info.State, in.name, err)
				}
				no, typed := w.follow(line, output, strings.Split(strings.ReplaceAll(strings.Join(lines, "\n"), name, n.Name), "\n"))
				refused, used = refused+no, used || typed
				w.ran[strings.ReplaceAll(line, n.Name, "NODE")]++
			}
		}
	}
	total := 0
	for line, times := range w.ran {
		total += times
		t.Logf("%4d %s", times, line)
	}
	t.Logf("%d situations, %d commands run, %d refused", situations, total, refused)
}
