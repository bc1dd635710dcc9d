package metal

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

// ProvisionArgs are what may come with a verb. The API decides which verbs take which.
// What may hold a user's secrets does not go into the job's row, which is kept in clear.
type ProvisionArgs struct {
	RescuePassword secret.Value `json:"-"`
	// RescueKeys are public ssh keys that open the rescue system, beside the password or instead of it.
	RescueKeys []string `json:"-"`
	// RescueLasts is the time after which the rescue session ends by itself; 0: never.
	RescueLasts  time.Duration   `json:"-"`
	ConfigDrive  json.RawMessage `json:"-"`
	CleanSteps   json.RawMessage `json:"-"`
	DeploySteps  json.RawMessage `json:"-"`
	ServiceSteps json.RawMessage `json:"-"`
	// HasSteps tells the job that steps lie in the node's document.
	HasSteps       bool `json:"steps,omitempty"`
	DisableRamdisk bool `json:"disable_ramdisk,omitempty"`
	Rebuild        bool `json:"rebuild,omitempty"`
	// Diagnosis is the id of the diagnosis that a rescue is made for; empty: a user asked for it.
	Diagnosis string `json:"diagnosis,omitempty"`
	// Repair is the id of the repair that a rescue is made for.
	Repair string `json:"repair,omitempty"`
	// OnlyIfOff: the rescue is refused if the machine is found on.
	OnlyIfOff bool `json:"only_if_off,omitempty"`
	// LUKSKeys are those of that diagnosis, as diagnose.PackLUKSKeys gives them.
	LUKSKeys secret.Value `json:"-"`
}

// invalidState is Ironic's sentence for a verb in the wrong state.
func invalidState(n *Node, word string) error {
	return problem.Invalidf(`The requested action "%s" can not be performed on node "%s" while it is in state "%s".`, word, n.ID, n.ProvisionState)
}

// Admit tells whether the node takes the verb now, without changing anything. word is what
// the user wrote. A locked node is Conflict, a wrong state Invalid.
func (n *Node) Admit(v Verb, word string) (Transition, error) {
	t, ok := ByVerb(n.ProvisionState, v)
	switch {
	case v == Abort && n.Reservation != "":
		return Transition{From: n.ProvisionState, Verb: Abort, To: n.ProvisionState}, nil // of whatever locks it
	case !ok && n.Reservation != "":
		return t, Locked(n)
	case !ok:
		return t, invalidState(n, word)
	case n.Reservation != "":
		return t, Locked(n)
	case v == Unrescue && n.HalfWritten() != "":
		return t, problem.Conflictf("Node %s: its disks are half-written, and its own system would not boot; first run: salvor repair undo %[1]s %s", n.ID, n.HalfWritten())
	case n.PowerLock != "" && OperationOf(t.Job).MaySwitchOn:
		return t, n.heldOff()
	case n.Protected && (v == Delete || v == Rebuild):
		return t, problem.Forbiddenf("Node %s is protected and can not be undeployed, rebuilt or deleted.", n.ID)
	case n.Retired && v == Provide:
		return t, problem.Invalidf("Node %s is retired: it can not be provided; first run: salvor node set %[1]s --retired=false", n.ID)
	case n.Maintenance && v.Info().NotInMaintenance:
		return t, problem.Invalidf("The %s operation can't be performed on node %s because it's in maintenance mode.", v, n.ID)
	}
	return t, nil
}

// Provision takes a verb: the state, the job that works it off and the timeline
// change in one transaction, or nothing does. The rescue password is hashed before
// and only the hash goes on, sealed with the job.
func (s *Nodes) Provision(ctx context.Context, ident string, v Verb, word string, args ProvisionArgs, asker record.Asker) error {
	n, err := s.store.Node(ctx, nil, ident)
	if err != nil {
		return err
	}
	t, err := n.Admit(v, word)
	if err != nil {
		return err
	}
	if err := s.admitWork(ctx, n, v, t, args); err != nil {
		return err
	}
	var credential secret.Value
	if v == ToRescue {
		if credential, err = s.rescueCredential(n, args); err != nil {
			return err
		}
	}
	args.Rebuild = v == Rebuild
	args.HasSteps = len(args.steps()) > 0
	raw, err := json.Marshal(args)
	if err != nil {
		return err
	}
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		n, err := s.store.Node(ctx, tx, n.ID)
		if err != nil {
			return err
		}
		t, err := n.Admit(v, word)
		if err != nil {
			return err
		}
		if v == Abort && n.Reservation != "" {
			return s.abort(ctx, tx, n, asker)
		}
		var memo map[string]string
		if t.Job != "" || v == Abort {
			n.leaveRamdisk() // first of all, and whatever the BMC does
		}
		if t.Ends {
			if memo, err = s.endWaiting(tx, n, t); err != nil {
				return err
			}
		}
		if t.Job != "" {
			j := &job.Job{Kind: t.Job, Class: job.Operation, Subject: job.Node(n.ID), Group: n.ConductorGroup, Args: raw, Memo: memo, Secret: credential, RequestID: asker.RequestID, User: asker.User}
			if err := s.jobs.Insert(tx, j); err != nil {
				return err
			}
			if err := s.saveSensitiveArgs(tx, n.ID, v, args); err != nil {
				return err
			}
			n.LastError = ""
		}
		if v == Unhold {
			if err := s.jobs.Signal(tx, job.Node(n.ID)); err != nil {
				return err
			}
		}
		s.enterState(n, t.To)
		if v == Clean {
			n.TargetProvision = Manageable
		}
		switch {
		case v == ToRescue:
			n.beginSession(s.now(), args)
		case v == Abort:
			n.LastError = fmt.Sprintf("By request, the %s operation was aborted.", t.From.Info().Aborted)
		}
		if err := s.store.SaveNode(tx, n); err != nil {
			return err
		}
		if err := s.note(tx, n.ID, asker, "request", "asked to "+word); err != nil {
			return err
		}
		return s.noteState(tx, n, asker)
	})
}

// steps are those of the verb, whichever it is: the API takes each kind with its verb only.
func (a *ProvisionArgs) steps() json.RawMessage {
	for _, steps := range []json.RawMessage{a.CleanSteps, a.DeploySteps, a.ServiceSteps} {
		if len(steps) > 0 && string(steps) != "null" && string(steps) != "[]" {
			return steps
		}
	}
	return nil
}

// saveSensitiveArgs stores what came with a verb and may hold a user's secrets: in documents, which are sealed. Nothing of
// an earlier operation is left for this one, but the config drive of a system that is built again.
func (s *Nodes) saveSensitiveArgs(tx job.Tx, nodeID string, v Verb, args ProvisionArgs) error {
	keep := func(kind DocumentKind, body json.RawMessage) error {
		if len(body) == 0 || string(body) == "null" {
			return s.store.DeleteDocument(tx, nodeID, kind)
		}
		return s.store.SaveDocument(tx, Document{NodeID: nodeID, Kind: kind, Body: body, CreatedAt: s.now(), UpdatedAt: s.now()})
	}
	if v.Info().ReplacesSteps {
		if err := keep(Steps, args.steps()); err != nil {
			return err
		}
	}
	if v == Deploy || v == Rebuild && len(args.ConfigDrive) > 0 {
		return keep(ConfigDrive, args.ConfigDrive)
	}
	return nil
}

// BootNote is where a job notes how the system booted before its ramdisk. A service that takes over from one that is
// held inherits it: the machine itself only tells of the ramdisk by then.
const BootNote = "boot"

// endWaiting takes the waiting operation over: abort undoes it, delete and another service end it. It gives what the
// operation that comes after it has to know.
func (s *Nodes) endWaiting(tx job.Tx, n *Node, t Transition) (memo map[string]string, err error) {
	open, err := s.jobs.Unended(tx, job.Node(n.ID))
	if err != nil {
		return nil, err
	}
	to, cause := job.Ended, problem.Conflictf("given up: the node is to be deleted")
	switch t.Verb {
	case Abort:
		to, cause = job.Undoing, problem.Conflictf(abortedByRequest)
	case Service:
		cause = problem.Conflictf("given up for another service")
	}
	for _, j := range open {
		if j.Class != job.Operation {
			continue
		}
		if err := s.jobs.Interrupt(tx, j.ID, to, cause); err != nil {
			return nil, problem.Conflictf("Node %s is just going on with its %s operation; ask again: %w", n.ID, j.Kind, err)
		}
		if boot := j.Memo[BootNote]; boot != "" && t.Verb == Service {
			memo = map[string]string{BootNote: boot}
		}
	}
	return memo, nil
}

// ConfigDrive gives the stored config drive of the node's instance: a JSON string (base64 of a gzipped ISO image, or a URL) or an object;
// nil: it has none.
func (s *Nodes) ConfigDrive(ctx context.Context, n *Node) (json.RawMessage, error) {
	drive, err := s.store.Document(ctx, nil, n.ID, ConfigDrive)
	if err != nil && !problem.Is(err, problem.NotFound) {
		return nil, err
	}
	if own, ok := n.InstanceInfo["configdrive"]; ok && len(drive.Body) == 0 {
		return json.Marshal(own) // older clients set it there before they ask
	}
	return drive.Body, nil
}
