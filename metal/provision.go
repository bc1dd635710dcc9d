package metal

import (
	"slices"

	"salvor/job"
	"salvor/problem"
)

// State is a provision state as Ironic spells it. Verb is what a user asks, Event
// what a job reports; both move a node along the rows of Transitions.
type (
	State string
	Verb  string
	Event string
)

const (
	Enroll         State = "enroll"
	Verifying      State = "verifying"
	Manageable     State = "manageable"
	Inspecting     State = "inspecting"
	InspectWait    State = "inspect wait"
	InspectFailed  State = "inspect failed"
	Adopting       State = "adopting"
	AdoptFailed    State = "adopt failed"
	Cleaning       State = "cleaning"
	CleanWait      State = "clean wait"
	CleanHold      State = "clean hold"
	CleanFailed    State = "clean failed"
	Available      State = "available"
	Deploying      State = "deploying"
	DeployWait     State = "wait call-back"
	DeployHold     State = "deploy hold"
	DeployFailed   State = "deploy failed"
	Active         State = "active"
	Servicing      State = "servicing"
	ServiceWait    State = "service wait"
	ServiceHold    State = "service hold"
	ServiceFailed  State = "service failed"
	Rescuing       State = "rescuing"
	RescueWait     State = "rescue wait"
	Rescue         State = "rescue"
	RescueFailed   State = "rescue failed"
	Unrescuing     State = "unrescuing"
	UnrescueFailed State = "unrescue failed"
	Deleting       State = "deleting"
	Error          State = "error"
)

const (
	Manage   Verb = "manage"
	Provide  Verb = "provide"
	Clean    Verb = "clean"
	Inspect  Verb = "inspect"
	Adopt    Verb = "adopt"
	Abort    Verb = "abort"
	Deploy   Verb = "active"
	Rebuild  Verb = "rebuild"
	Delete   Verb = "deleted"
	ToRescue Verb = "rescue"
	Unrescue Verb = "unrescue"
	Unhold   Verb = "unhold"
	Service  Verb = "service"
)

const (
	DoneEvent Event = "done"
	FailEvent Event = "fail"
	// ReturnEvent: the operation was refused before it touched the machine.
	ReturnEvent Event = "return"
	WaitEvent   Event = "wait"
	ResumeEvent Event = "resume"
	HoldEvent   Event = "hold"
	// CleanEvent passes from deleting on to cleaning.
	CleanEvent Event = "clean"
)

// StateInfo says what a state is for.
type StateInfo struct {
	State State
	// Stable states stay until somebody asks for something.
	Stable bool
	// Target is shown as target_provision_state while in the state; empty in stable states.
	Target State
	// Updatable tells whether PATCH is allowed in the state.
	Updatable bool
	// Deletable tells whether the node may be deleted in the state without maintenance.
	Deletable bool
	// Lookup tells whether a ramdisk may look the node up while [api]restrict_lookup holds.
	Lookup bool
	// Phase is how far the operation of the state has come; AtRest where there is none.
	Phase Phase
	// Steps tells that the operation works steps off while its Phase is Working: it may be about to wait for the agent's next heartbeat.
	Steps bool
	// InRescue tells that the node is in a rescue or on its way out of one. Clients that are too old for rescue must not act on it.
	InRescue bool
	// Aborted is what Ironic calls the operation that an abort ends in this state; empty where abort is not a verb of the state.
	Aborted string
	// NoPower tells that users may not change the power: the operation does.
	NoPower bool
	// PowerOnHarm is what harm a power on would do; empty where a user may switch the machine on.
	PowerOnHarm string
	// NoPowerSync tells that power sync leaves the node alone, as its BMC may not be known.
	NoPowerSync bool
}

// Phase is how far the operation of a provision state has come.
type Phase int

const (
	AtRest Phase = iota
	// Working: the conductor acts.
	Working
	// WaitsForRamdisk: the conductor waits for the machine's ramdisk, and mends its power itself. Switched on by anybody else, the
	// machine would boot its disk.
	WaitsForRamdisk
	// HeldByStep: a hold step waits for the verb unhold.
	HeldByStep
	// Failed: the last operation failed.
	Failed
)

const (
	bootsOwnDisk = "powering it on would boot its own disk"
	bootUnknown  = "its boot and its networks may still be those of the rescue"
)

// States lists every provision state, in the order of a machine's life.
var States = []StateInfo{
	{State: Enroll, Stable: true, Updatable: true, Deletable: true, NoPowerSync: true},
	{State: Verifying, Target: Manageable, Updatable: true, Phase: Working, NoPowerSync: true},
	{State: Manageable, Stable: true, Updatable: true, Deletable: true},
	{State: Inspecting, Target: Manageable, Lookup: true, Phase: Working},
	{State: InspectWait, Target: Manageable, Updatable: true, Lookup: true, Phase: WaitsForRamdisk, Aborted: "inspection"},
	{State: InspectFailed, Target: Manageable, Updatable: true, Phase: Failed},
	{State: Adopting, Target: Active, Phase: Working},
	{State: AdoptFailed, Target: Active, Updatable: true, Deletable: true, Phase: Failed, NoPowerSync: true},
	{State: Cleaning, Target: Available, Lookup: true, Phase: Working, Steps: true, NoPower: true},
	{State: CleanWait, Target: Available, Lookup: true, Phase: WaitsForRamdisk, Aborted: "clean", NoPower: true},
	{State: CleanHold, Target: Available, Phase: HeldByStep, Aborted: "clean"},
	{State: CleanFailed, Target: Available, Updatable: true, Phase: Failed},
	{State: Available, Stable: true, Updatable: true, Deletable: true},
	{State: Deploying, Target: Active, Lookup: true, Phase: Working, Steps: true},
	{State: DeployWait, Target: Active, Lookup: true, Phase: WaitsForRamdisk, Aborted: "deployment"},
	{State: DeployHold, Target: Active, Phase: HeldByStep, Aborted: "deployment"},
	{State: DeployFailed, Target: Active, Updatable: true, Phase: Failed},
	{State: Active, Stable: true, Updatable: true},
	{State: Servicing, Target: Active, Updatable: true, Phase: Working, Steps: true},
	{State: ServiceWait, Target: Active, Updatable: true, Lookup: true, Phase: WaitsForRamdisk, Aborted: "service"},
	{State: ServiceHold, Target: Active, Updatable: true, Phase: HeldByStep, Aborted: "service"},
	{State: ServiceFailed, Target: Active, Updatable: true, Phase: Failed, Aborted: "service"},
	{State: Rescuing, Target: Rescue, Lookup: true, Phase: Working, InRescue: true},
	{State: RescueWait, Target: Rescue, Lookup: true, Phase: WaitsForRamdisk, InRescue: true, Aborted: "rescue"},
	{State: Rescue, Stable: true, Updatable: true, InRescue: true, PowerOnHarm: bootsOwnDisk},
	{State: RescueFailed, Target: Rescue, Updatable: true, Phase: Failed, InRescue: true, PowerOnHarm: bootsOwnDisk},
	{State: Unrescuing, Target: Active, Phase: Working, InRescue: true},
	{State: UnrescueFailed, Target: Active, Updatable: true, Phase: Failed, InRescue: true, PowerOnHarm: bootUnknown},
	{State: Deleting, Target: Available, Phase: Working},
	{State: Error, Stable: true, Updatable: true, Phase: Failed},
}

// Version is an Ironic API microversion 1.N, kept as N.
type Version int

// Transition is one row of the machine: from a state, by a verb or an event, to a
// state. A row with a job starts that kind of job; one without just moves.
type Transition struct {
	From  State
	Verb  Verb
	Event Event
	To    State
	// Min is the first microversion that may use the verb here; 0 for events.
	Min Version
	// Job is the kind of job that the verb inserts; empty: the change is all there is.
	Job job.Kind
	// Ends tells that the verb takes over the waiting job of From: it is interrupted and undone (abort) or ended (delete, another service).
	Ends bool
}

// Transitions is the whole provision state machine.
var Transitions = []Transition{
	{From: Enroll, Verb: Manage, To: Verifying, Min: 4, Job: "manage"},
	{From: Verifying, Event: DoneEvent, To: Manageable},
	{From: Verifying, Event: FailEvent, To: Enroll},

	{From: Manageable, Verb: Provide, To: Cleaning, Min: 4, Job: "provide"},
	{From: Manageable, Verb: Clean, To: Cleaning, Min: 15, Job: "clean"},
	{From: Manageable, Verb: Inspect, To: Inspecting, Min: 6, Job: "inspect"},
	{From: Manageable, Verb: Adopt, To: Adopting, Min: 17, Job: "adopt"},

	{From: Inspecting, Event: DoneEvent, To: Manageable},
	{From: Inspecting, Event: FailEvent, To: InspectFailed},
	{From: Inspecting, Event: WaitEvent, To: InspectWait},
	{From: InspectWait, Verb: Abort, To: InspectFailed, Min: 41, Ends: true},
	{From: InspectWait, Event: DoneEvent, To: Manageable},
	{From: InspectWait, Event: FailEvent, To: InspectFailed},
	{From: InspectWait, Event: ResumeEvent, To: Inspecting},
	{From: InspectFailed, Verb: Manage, To: Manageable, Min: 4},
	{From: InspectFailed, Verb: Inspect, To: Inspecting, Min: 6, Job: "inspect"},

	{From: Adopting, Event: DoneEvent, To: Active},
	{From: Adopting, Event: FailEvent, To: AdoptFailed},
	{From: AdoptFailed, Verb: Adopt, To: Adopting, Min: 17, Job: "adopt"},
	{From: AdoptFailed, Verb: Manage, To: Manageable, Min: 4},

	{From: Cleaning, Verb: Manage, To: Manageable, Min: 4},
	{From: Cleaning, Event: DoneEvent, To: Available},
	{From: Cleaning, Event: FailEvent, To: CleanFailed},
	{From: Cleaning, Event: WaitEvent, To: CleanWait},
	{From: Cleaning, Event: HoldEvent, To: CleanHold},
	{From: CleanWait, Verb: Abort, To: CleanFailed, Min: 13, Ends: true},
	{From: CleanWait, Event: FailEvent, To: CleanFailed},
	{From: CleanWait, Event: HoldEvent, To: CleanHold},
	{From: CleanWait, Event: ResumeEvent, To: Cleaning},
	{From: CleanHold, Verb: Abort, To: CleanFailed, Min: 13, Ends: true},
	{From: CleanHold, Verb: Unhold, To: CleanWait, Min: 85},
	{From: CleanHold, Event: FailEvent, To: CleanFailed},
	{From: CleanFailed, Verb: Manage, To: Manageable, Min: 4},

	{From: Available, Verb: Deploy, To: Deploying, Min: 1, Job: "deploy"},
	{From: Available, Verb: Manage, To: Manageable, Min: 4},

	{From: Deploying, Event: FailEvent, To: DeployFailed},
	{From: Deploying, Event: WaitEvent, To: DeployWait},
	{From: Deploying, Event: HoldEvent, To: DeployHold},
	{From: Deploying, Event: DoneEvent, To: Active},
	{From: DeployWait, Verb: Abort, To: DeployFailed, Min: 110, Ends: true},
	{From: DeployWait, Verb: Delete, To: Deleting, Min: 1, Job: "delete", Ends: true},
	{From: DeployWait, Event: HoldEvent, To: DeployHold},
	{From: DeployWait, Event: ResumeEvent, To: Deploying},
	{From: DeployWait, Event: FailEvent, To: DeployFailed},
	{From: DeployHold, Verb: Unhold, To: DeployWait, Min: 85},
	{From: DeployHold, Verb: Abort, To: DeployFailed, Min: 13, Ends: true},
	{From: DeployHold, Event: FailEvent, To: DeployFailed},
	{From: DeployFailed, Verb: Rebuild, To: Deploying, Min: 1, Job: "deploy"},
	{From: DeployFailed, Verb: Deploy, To: Deploying, Min: 1, Job: "deploy"},
	{From: DeployFailed, Verb: Delete, To: Deleting, Min: 1, Job: "delete"},

	{From: Active, Verb: Rebuild, To: Deploying, Min: 1, Job: "deploy"},
	{From: Active, Verb: Delete, To: Deleting, Min: 1, Job: "delete"},
	{From: Active, Verb: ToRescue, To: Rescuing, Min: 38, Job: "rescue"},
	{From: Active, Verb: Service, To: Servicing, Min: 87, Job: "service"},

	{From: Servicing, Event: DoneEvent, To: Active},
	{From: Servicing, Event: FailEvent, To: ServiceFailed},
	{From: Servicing, Event: WaitEvent, To: ServiceWait},
	{From: Servicing, Event: HoldEvent, To: ServiceHold},
	{From: ServiceWait, Verb: Abort, To: ServiceFailed, Min: 87, Ends: true},
	{From: ServiceWait, Verb: Delete, To: Deleting, Min: 1, Job: "delete", Ends: true},
	{From: ServiceWait, Event: HoldEvent, To: ServiceHold},
	{From: ServiceWait, Event: ResumeEvent, To: Servicing},
	{From: ServiceWait, Event: FailEvent, To: ServiceFailed},
	{From: ServiceHold, Verb: Service, To: Servicing, Min: 87, Job: "service", Ends: true},
	{From: ServiceHold, Verb: Unhold, To: ServiceWait, Min: 87},
	{From: ServiceHold, Verb: Abort, To: ServiceFailed, Min: 87, Ends: true},
	{From: ServiceHold, Event: FailEvent, To: ServiceFailed},
	{From: ServiceFailed, Verb: Service, To: Servicing, Min: 87, Job: "service"},
	{From: ServiceFailed, Verb: ToRescue, To: Rescuing, Min: 38, Job: "rescue"},
	{From: ServiceFailed, Verb: Delete, To: Deleting, Min: 1, Job: "delete"},
	{From: ServiceFailed, Verb: Abort, To: Active, Min: 87},
	{From: ServiceFailed, Event: WaitEvent, To: ServiceWait},
	{From: ServiceFailed, Event: HoldEvent, To: ServiceHold},

	{From: Rescuing, Event: DoneEvent, To: Rescue},
	{From: Rescuing, Event: WaitEvent, To: RescueWait},
	{From: Rescuing, Event: FailEvent, To: RescueFailed},
	{From: Rescuing, Event: ReturnEvent, To: Active},
	{From: RescueWait, Verb: Abort, To: RescueFailed, Min: 38, Ends: true},
	{From: RescueWait, Verb: Delete, To: Deleting, Min: 38, Job: "delete", Ends: true},
	{From: RescueWait, Event: ResumeEvent, To: Rescuing},
	{From: RescueWait, Event: FailEvent, To: RescueFailed},
	{From: Rescue, Verb: ToRescue, To: Rescuing, Min: 38, Job: "rescue"},
	{From: Rescue, Verb: Delete, To: Deleting, Min: 38, Job: "delete"},
	{From: Rescue, Verb: Unrescue, To: Unrescuing, Min: 38, Job: "unrescue"},
	{From: RescueFailed, Verb: ToRescue, To: Rescuing, Min: 38, Job: "rescue"},
	{From: RescueFailed, Verb: Unrescue, To: Unrescuing, Min: 38, Job: "unrescue"},
	{From: RescueFailed, Verb: Delete, To: Deleting, Min: 38, Job: "delete"},
	{From: Unrescuing, Event: DoneEvent, To: Active},
	{From: Unrescuing, Event: FailEvent, To: UnrescueFailed},
	{From: UnrescueFailed, Verb: ToRescue, To: Rescuing, Min: 38, Job: "rescue"},
	{From: UnrescueFailed, Verb: Unrescue, To: Unrescuing, Min: 38, Job: "unrescue"},
	{From: UnrescueFailed, Verb: Delete, To: Deleting, Min: 38, Job: "delete"},

	{From: Deleting, Event: CleanEvent, To: Cleaning},
	{From: Deleting, Event: FailEvent, To: Error},
	{From: Error, Verb: Rebuild, To: Deploying, Min: 1, Job: "deploy"},
	{From: Error, Verb: Delete, To: Deleting, Min: 1, Job: "delete"},
}

type transitionKey struct {
	from State
	verb Verb
	on   Event
}

var (
	steps  = indexTransitions()
	states = indexStates()
)

func indexTransitions() map[transitionKey]Transition {
	m := make(map[transitionKey]Transition, len(Transitions))
	for _, t := range Transitions {
		m[transitionKey{t.From, t.Verb, t.Event}] = t
	}
	return m
}

func indexStates() map[State]StateInfo {
	m := make(map[State]StateInfo, len(States))
	for _, s := range States {
		m[s.State] = s
	}
	return m
}

// StatesWhere lists the states whose rows satisfy a condition, in the order of States.
func StatesWhere(is func(StateInfo) bool) (all []State) {
	for _, s := range States {
		if is(s) {
			all = append(all, s.State)
		}
	}
	return all
}

// Info tells what a state is for; the zero StateInfo for a word that is no state.
func (s State) Info() StateInfo { return states[s] }

// VerbInfo says what a verb implies wherever it is asked.
type VerbInfo struct {
	Verb Verb
	// Aliases are its other spellings; the API decides which versions know them.
	Aliases []string
	// NotInMaintenance tells that a node in maintenance refuses it.
	NotInMaintenance bool
	// ReplacesSteps tells that the steps that come with it take the place of those of the last such verb.
	ReplacesSteps bool
}

// Verbs lists every verb.
var Verbs = []VerbInfo{
	{Verb: Manage},
	{Verb: Provide, ReplacesSteps: true},
	{Verb: Clean, ReplacesSteps: true},
	{Verb: Inspect},
	{Verb: Adopt},
	{Verb: Abort},
	{Verb: Deploy, Aliases: []string{"deploy"}, NotInMaintenance: true, ReplacesSteps: true},
	{Verb: Rebuild, NotInMaintenance: true, ReplacesSteps: true},
	{Verb: Delete, Aliases: []string{"undeploy", "delete"}, ReplacesSteps: true},
	{Verb: ToRescue, NotInMaintenance: true},
	{Verb: Unrescue, NotInMaintenance: true},
	{Verb: Unhold},
	{Verb: Service, ReplacesSteps: true},
}

// Info says what the verb implies; the zero VerbInfo for a word that is no verb.
func (v Verb) Info() VerbInfo {
	for _, i := range Verbs {
		if i.Verb == v {
			return i
		}
	}
	return VerbInfo{}
}

// ParseVerb reads a verb or one of its aliases; ok is false for an unknown word.
func ParseVerb(word string) (v Verb, ok bool) {
	for _, i := range Verbs {
		if string(i.Verb) == word || slices.Contains(i.Aliases, word) {
			return i.Verb, true
		}
	}
	return "", false
}

// OperationInfo says what the operations of a kind need and do. Kinds that Transitions name have a row.
type OperationInfo struct {
	Kind job.Kind
	// Needs are the kinds of interfaces that it cannot do without.
	Needs []string
	// MaySwitchOn tells that it may switch the machine on.
	MaySwitchOn bool
}

// Operations lists the kinds of jobs that verbs start. A node's image, if it was adopted with one, was written by others.
var Operations = []OperationInfo{
	{Kind: "manage", Needs: []string{"power"}},
	{Kind: "adopt", Needs: []string{"power", "boot", "network"}},
	{Kind: "provide", Needs: []string{"power"}, MaySwitchOn: true},
	{Kind: "clean", Needs: []string{"power"}, MaySwitchOn: true},
	{Kind: "inspect", Needs: []string{"inspect"}, MaySwitchOn: true},
	{Kind: "deploy", Needs: []string{"power", "deploy", "boot", "network"}, MaySwitchOn: true},
	{Kind: "delete", MaySwitchOn: true},
	{Kind: "service", Needs: []string{"power"}, MaySwitchOn: true},
	{Kind: "rescue", Needs: []string{"power", "management", "rescue", "network", "boot"}, MaySwitchOn: true},
	{Kind: "unrescue", Needs: []string{"power", "network", "boot"}, MaySwitchOn: true},
}

// OperationOf says what the operations of a kind need and do; the zero OperationInfo for a kind that no verb starts.
func OperationOf(kind job.Kind) OperationInfo {
	for _, o := range Operations {
		if o.Kind == kind {
			return o
		}
	}
	return OperationInfo{}
}

// ByVerb finds the transition of a verb from a state; ok is false where the state does not take it.
func ByVerb(from State, v Verb) (t Transition, ok bool) {
	if v == "" {
		return Transition{}, false
	}
	t, ok = steps[transitionKey{from, v, ""}]
	return t, ok
}

// ByEvent finds the transition of an event; an event that the state does not take is an internal error.
func ByEvent(from State, e Event) (Transition, error) {
	t, ok := steps[transitionKey{from, "", e}]
	if !ok {
		return Transition{}, problem.New(problem.Internal, "provision state %q takes no event %q", from, e)
	}
	return t, nil
}
