package metal

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// StatusInput is all that is known of a node at one moment.
type StatusInput struct {
	Node       *Node
	Contact    Contact
	Jobs       []job.Job // unended ones
	Conductors record.Conductors
	// Offered: a conductor that lives offers the node's driver.
	Offered bool
	// Repairs are the kept repairs, newest first; nil for those who may not read them.
	Repairs []Repair
	Now     time.Time
}

// Outside is the situation without what tells of the infrastructure: for those who may see the node, and not what its BMC or its
// conductors say.
func (s StatusInput) Outside() StatusInput {
	n := *s.Node
	if n.LastError != "" {
		n.LastError = hidden
	}
	if n.MaintenanceReason != "" && n.Fault != "" {
		n.MaintenanceReason = hidden
	}
	s.Node = &n
	if n.Plan != nil && n.Plan.Refusal != nil {
		plan, refusal := *n.Plan, *n.Plan.Refusal
		refusal.Why = hidden
		plan.Refusal, n.Plan = &refusal, &plan
	}
	s.Contact.AgentURL, s.Contact.AgentStatusMessage = "", ""
	if s.Contact.RefusedReason != "" {
		s.Contact.RefusedReason = hidden
	}
	if s.Contact.PowerError != "" {
		s.Contact.PowerError = hidden
	}
	s.Jobs = slices.Clone(s.Jobs)
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.Problem != "" {
			j.Problem = hidden
		}
		if j.Attempt > 0 {
			j.WaitFor = "another try of its action"
		}
	}
	s.Conductors.Dead, s.Conductors.Owners = nil, maps.Clone(s.Conductors.Owners)
	for owner := range s.Conductors.Owners {
		s.Conductors.Owners[owner] = ""
	}
	return s
}

const hidden = "its owner may see why"

// Why says what a node waits for.
func (s StatusInput) Why() record.Why {
	n := s.Node
	w := record.Why{State: string(n.ProvisionState), Since: n.ProvisionedAt}
	w.Work(s.Jobs, s.Conductors)
	if len(s.Conductors.Live) > 0 && !s.Offered {
		w.Block(fmt.Sprintf("no conductor that lives offers its driver %q", n.Driver),
			record.Command{Run: "salvor driver list", For: "see which drivers are offered; [DEFAULT]enabled_hardware_types enables more"})
	}
	s.rest(&w)
	s.state(&w)
	s.addRepair(&w)
	s.conductors(&w)
	s.addContacts(&w)
	w.AddConductors(s.Conductors)
	w.Accepts = s.accepts()
	return w
}

// accepts lists the verbs and the power targets that the node admits now. An open operation excludes other verbs that need a job, except
// those that end it.
func (s *StatusInput) accepts() (out []string) {
	waits := slices.ContainsFunc(s.Jobs, func(j job.Job) bool { return j.Class == job.Operation })
	for _, t := range Transitions {
		word := string(t.Verb)
		if word == "" || slices.Contains(out, word) {
			continue
		}
		if t, err := s.Node.Admit(t.Verb, word); err == nil && (!waits || t.Job == "" || t.Ends) {
			out = append(out, word)
		}
	}
	for _, target := range powerTargets {
		if s.Node.Reservation == "" && s.Node.admitPower(target) == nil {
			out = append(out, string(target))
		}
	}
	return out
}

// rest is a node on which nothing works, although its state says that something does, or that something went wrong.
func (s *StatusInput) rest(w *record.Why) {
	n := s.Node
	if w.Job != nil {
		return
	}
	info := n.ProvisionState.Info()
	switch {
	case info.Phase == Failed:
		w.Block(firstWords(n.LastError, "the last operation failed", "its last operation failed: "), s.remedies()...)
	case !info.Stable:
		w.Block(fmt.Sprintf("nothing works on it, although its state %q says so", n.ProvisionState), s.remedies()...)
	case n.LastError != "":
		w.Problems = append(w.Problems, "its last error: "+n.LastError)
		w.Next = append(w.Next, s.remedies()...)
	case n.ProvisionState == Rescue:
		s.entry(w)
		w.Next = append(w.Next, s.remedies()...)
	default:
		w.Next = append(w.Next, s.admitted(namedCommands(firstSteps[n.ProvisionState], n.label()))...)
	}
}

// state is what its record says of it beside the provision state.
func (s *StatusInput) state(w *record.Why) {
	n := s.Node
	if n.Rescue != nil && !n.Rescue.ExpiresAt.IsZero() && n.ProvisionState.Info().InRescue {
		w.Notes = append(w.Notes, "its rescue session ends by itself at "+record.Moment(n.Rescue.ExpiresAt))
	}
	if maker, id := s.rescueMaker(); maker != "" {
		w.Notes = append(w.Notes, maker+" "+id+" booted it into rescue, has ended, and left it there")
	}
	if texts := BMCOf(n).QuirkTexts; len(texts) > 0 {
		w.Notes = append(w.Notes, "for its BMC, salvor "+strings.Join(texts, ", "))
	}
	if r := s.bootRefusal(); r != nil && w.Job != nil {
		w.Problems = append(w.Problems, r.String())
	}
	if n.PowerLock != "" {
		w.Problems = append(w.Problems, "it is held off: "+n.PowerLock)
	}
	if n.Health != "" && n.Health != "OK" {
		w.Problems = append(w.Problems, "its BMC calls its health "+problem.Quote(n.Health))
	}
	if s.Contact.PowerFailures > 0 && s.Contact.PowerError != "" && n.Fault != PowerFailure {
		text := "its BMC did not answer %s: %s"
		if s.Contact.PowerRefused {
			text = "its BMC refused to tell the power %s: %s"
		}
		w.Problems = append(w.Problems, fmt.Sprintf(text, inARow(s.Contact.PowerFailures), s.Contact.PowerError))
		w.Next = append(w.Next, askBMC(n))
	}
}

// rescueMaker names the diagnosis or the repair that booted the machine into rescue and has ended since; empty: there is none. Nobody but a person
// or the end of the session ends such a rescue.
func (s *StatusInput) rescueMaker() (maker, id string) {
	r := s.Node.Rescue
	if r == nil || !r.MadeByJob() || s.Node.ProvisionState != Rescue {
		return "", ""
	}
	if maker, id = "diagnosis", r.Diagnosis; r.IsForRepair() {
		maker, id = "repair", r.Repair
	}
	if slices.ContainsFunc(s.Jobs, func(j job.Job) bool { return j.ID == id && j.State != job.Ended }) {
		return "", ""
	}
	return maker, id
}

// inARow says how often.
func inARow(n int) string {
	if n == 1 {
		return "the last time"
	}
	return fmt.Sprintf("%d times in a row", n)
}

// conductors says where people are asked for: maintenance, a fault, a step that holds.
func (s *StatusInput) conductors(w *record.Why) {
	n := s.Node
	unset := record.Command{Run: "salvor node maintenance unset " + n.label(), For: "return it to salvor"}
	switch {
	case n.Maintenance && n.Fault == PowerFailure:
		next := []record.Command{askBMC(n)}
		if w.Job == nil || !w.Job.Locks() {
			next = append(next, record.Command{Run: "salvor node set " + n.label() + " --driver-info KEY=VALUE", For: "mend the BMC's address or credentials"})
		}
		w.Block(firstWords(n.MaintenanceReason, "its BMC does not answer", ""), next...)
	case n.Maintenance && n.Fault != "":
		w.Block("it is in maintenance because of a fault ("+n.Fault+")"+record.Because(n.MaintenanceReason), unset)
	case n.Maintenance && w.Job != nil && w.Job.State == job.Waiting && w.WaitsFor == EndOfMaintenance:
		w.Block("someone put it into maintenance"+record.Because(n.MaintenanceReason), unset)
	case n.Maintenance:
		w.Problems = append(w.Problems, "it is in maintenance"+record.Because(n.MaintenanceReason))
		w.Next = append(w.Next, unset)
	}
	if w.Job == nil || w.Job.State == job.Ended {
		return
	}
	phase := n.ProvisionState.Info().Phase
	if w.Job.Locks() && (w.Job.Attempt > 0 || phase != HeldByStep) {
		s.atWork(w)
		return
	}
	if w.Status == record.Stuck {
		if _, err := n.Admit(Abort, string(Abort)); err == nil {
			w.Next = append(w.Next, abortOf(n, "give it up"))
		}
		return
	}
	switch phase {
	case HeldByStep:
		w.Block("a step holds it until someone lets it go on", s.remedies()...)
	case WaitsForRamdisk:
		s.absent(w)
		w.Next = append(w.Next, record.Command{Run: "salvor events node:" + n.label() + " --follow", For: "see what it does"})
		w.Next = append(w.Next, s.remedies()...)
	default:
		w.Next = append(w.Next, record.Command{Run: "salvor events node:" + n.label() + " --follow", For: "see what it does"})
	}
}

// atWork says what can be done about a job that locks the node, above all about one that tries again and again.
func (s *StatusInput) atWork(w *record.Why) {
	n, j := s.Node, w.Job
	if j.Attempt > 0 {
		set := record.Command{Run: "salvor node set " + n.label() + " --driver-info KEY=VALUE", For: "mend how its BMC is reached; it is tried again at once"}
		if j.Advanced() {
			set = record.Command{Run: "salvor node set " + n.label() + " --driver-info PASSWORD_KEY=VALUE", For: "mend the BMC's credentials; it is tried again at once"}
		}
		w.Next = append(w.Next, set)
	}
	w.Next = append(w.Next, record.Command{Run: "salvor events node:" + n.label() + " --follow", For: "see what it does"})
	use := "give it up"
	if j.State == job.Undoing {
		use = "take no more of it back: the node is free then, and marked with a fault"
	}
	w.Next = append(w.Next, abortOf(n, use))
}

func abortOf(n *Node, use string) record.Command {
	return record.Command{Run: "salvor node abort " + n.label(), For: use}
}

// EndOfMaintenance is what operations wait for that somebody holds up by maintenance.
const EndOfMaintenance = "the end of maintenance"

// absent says how far a machine came whose ramdisk is awaited.
func (s *StatusInput) absent(w *record.Why) {
	n, c, from := s.Node, s.Contact, w.WaitsSince
	if words := c.RefusedWords(n.BootNumber); words != "" {
		w.Problems = append(w.Problems, words)
	}
	switch {
	case c.AgentBoot == n.BootNumber && n.BootNumber > 0:
		w.Notes = append(w.Notes, "the ramdisk of this boot runs")
	case c.LookupAt.After(from):
		w.Notes = append(w.Notes, "the ramdisk has booted and asked who it is, and has not called back")
	case c.BootAt.After(from):
		w.Notes = append(w.Notes, "the machine fetches its boot files, and its ramdisk has not been heard")
	case c.DHCPAt.After(from):
		w.Notes = append(w.Notes, "the machine has asked for its boot, and has fetched nothing yet")
	case c.PowerRead == PowerOff && c.PowerReadAt.After(from):
		w.Problems = append(w.Problems, "the machine was found off while its ramdisk is awaited")
	case n.Plan != nil && n.Plan.Method == BootIPXE && s.Now.Sub(from) > bootPatience:
		w.Problems = append(w.Problems, "the machine has not asked for its boot since: its BMC may not have started it, or its DHCP requests do not reach salvor")
		w.Next = append(w.Next, record.Command{Run: "salvor doctor", For: "check the boot networks, on the machine that serves them"})
	}
}

// bootPatience is how long firmware may take until it asks for its boot.
const bootPatience = 4 * time.Minute

// addContacts adds what was last heard of each party, the newest first.
func (s *StatusInput) addContacts(w *record.Why) {
	n, c := s.Node, s.Contact
	add := func(from string, at time.Time, text string, ok bool) {
		if !at.IsZero() {
			w.Contacts = append(w.Contacts, record.LastContact{From: from, At: at, Text: text, OK: ok})
		}
	}
	if c.PowerError != "" {
		text := "no answer: "
		if c.PowerRefused {
			text = "refusal: "
		}
		add("bmc", c.PowerFailedAt, text+c.PowerError, false)
	}
	add("bmc", c.PowerReadAt, firstWords(string(c.PowerRead), "answered", ""), true)
	text := "heartbeat"
	if c.AgentBoot != n.BootNumber {
		text = "heartbeat of an earlier boot"
	}
	if c.AgentStatus != "" {
		text += ", " + c.AgentStatus + record.Because(problem.Quote(c.AgentStatusMessage))
	}
	if c.AgentURL != "" {
		text += " from " + c.AgentURL
	}
	add("agent", c.HeartbeatAt, text, c.AgentStatus != "error")
	add("lookup", c.LookupAt, "the ramdisk asked who it is", true)
	add("dhcp", c.DHCPAt, c.DHCPWord, true)
	add("boot", c.BootAt, c.BootWord, true)
	slices.SortStableFunc(w.Contacts, func(a, b record.LastContact) int { return b.At.Compare(a.At) })
}

// Remedies are the commands that lead a node on out of its state, the best first. The node is named by name or id.
func Remedies(at State, node string) []record.Command { return namedCommands(remedies[at], node) }

// namedCommands puts the name of a node into commands.
func namedCommands(commands []record.Command, node string) []record.Command {
	var out []record.Command
	for _, r := range commands {
		out = append(out, record.Command{Run: strings.ReplaceAll(r.Run, "NODE", node), For: r.For})
	}
	return out
}

// remedies are those of the node's state that it takes as it is now. One that is held back by maintenance, by a job or by a rule of its
// own is told what ends that.
func (s *StatusInput) remedies() []record.Command {
	return s.admitted(Remedies(s.Node.ProvisionState, s.Node.label()))
}

// admitted leaves out the commands whose verb the node refuses as it is now.
func (s *StatusInput) admitted(commands []record.Command) []record.Command {
	var out []record.Command
	for _, r := range commands {
		words := strings.Fields(r.Run)
		if v, ok := ParseVerb(words[2]); ok {
			if _, err := s.Node.Admit(v, words[2]); err != nil {
				continue
			}
		}
		out = append(out, r)
	}
	return out
}

// firstSteps lead a new node on, in states in which nothing went wrong.
var firstSteps = map[State][]record.Command{
	Enroll: {{Run: "salvor node manage NODE", For: "log in to its BMC and read its power"}},
	Manageable: {{Run: "salvor node adopt NODE", For: "take it over with the system that it runs"},
		{Run: "salvor node provide NODE", For: "make it available for deployment; automated cleaning erases its disks"}},
}

var abort = record.Command{Run: "salvor node abort NODE", For: "give it up"}

var remedies = map[State][]record.Command{
	Enroll:         {{Run: "salvor node set NODE --driver-info KEY=VALUE", For: "mend how its BMC is reached"}, {Run: "salvor node manage NODE", For: "try again"}},
	InspectWait:    {abort},
	InspectFailed:  {{Run: "salvor node inspect NODE", For: "try again"}, {Run: "salvor node manage NODE", For: "go on without an inspection"}},
	AdoptFailed:    {{Run: "salvor node adopt NODE", For: "try again when it is mended"}, {Run: "salvor node manage NODE", For: "take it back to manageable"}},
	CleanWait:      {abort},
	CleanHold:      {{Run: "salvor node unhold NODE", For: "let the step go on"}, abort},
	CleanFailed:    {{Run: "salvor node manage NODE", For: "take it back to manageable; then clean or provide again"}},
	DeployWait:     {abort, {Run: "salvor node undeploy NODE", For: "give the node back"}},
	DeployHold:     {{Run: "salvor node unhold NODE", For: "let the step go on"}, abort},
	DeployFailed:   {{Run: "salvor node deploy NODE", For: "try again"}, {Run: "salvor node undeploy NODE", For: "give the node back"}},
	ServiceWait:    {abort},
	ServiceHold:    {{Run: "salvor node unhold NODE", For: "let the step go on"}, abort},
	ServiceFailed:  {{Run: "salvor node abort NODE", For: "take it back to active"}, {Run: "salvor node rescue NODE", For: "mend it by hand"}},
	RescueWait:     {abort},
	Rescue:         {{Run: "salvor node unrescue NODE", For: "boot its own system"}},
	RescueFailed:   {{Run: "salvor node rescue NODE", For: "try again"}, {Run: "salvor node unrescue NODE", For: "boot its own system"}},
	UnrescueFailed: {{Run: "salvor node unrescue NODE", For: "try again"}},
	Error:          {{Run: "salvor node undeploy NODE", For: "try again"}},
}

func askBMC(n *Node) record.Command {
	return record.Command{Run: "salvor node boot device show " + n.label(), For: "ask the BMC now"}
}

// label is how commands name the node.
func (n *Node) label() string {
	if n.Name != "" {
		return n.Name
	}
	return n.ID
}

// firstWords is the text after its lead, or instead where it is empty.
func firstWords(text, instead, lead string) string {
	if text == "" {
		return instead
	}
	return lead + text
}
