package cyclades

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"salvor/api"
	"salvor/compute"
	"salvor/problem"
)

// actionSpec is what a client may ask of a server. Word is how Cyclades names it in its errors.
type actionSpec struct {
	word   string
	rule   string // of Nova's policy
	action compute.Action
	rescue bool // closed with [cyclades]rescue_enabled
	// read takes the arguments into the act.
	read func(args jsonObject, a *compute.Act) error
}

var verbs = map[string]actionSpec{
	"start":    {word: "START", rule: "servers:start", action: compute.Start, read: readNoArgs},
	"shutdown": {word: "STOP", rule: "servers:stop", action: compute.Stop, read: readShutdown},
	"reboot":   {word: "REBOOT", rule: "servers:reboot", action: compute.Reboot, read: readReboot},
	"rescue":   {word: "RESCUE", rule: "os-rescue", action: compute.Rescue, rescue: true, read: readRescue},
	"unrescue": {word: "UNRESCUE", rule: "os-unrescue", action: compute.Unrescue, rescue: true, read: readNoArgs},
}

// act is POST /servers/{id}/action: one verb with its arguments.
func (c *cycladesCall) act() error {
	b, err := api.ReadBody(c.W, c.R, api.MaxBody)
	if err != nil {
		return err
	}
	body, err := api.DecodeObject(b)
	if err != nil {
		return err
	}
	name, a, err := c.s.readAct(body)
	if err != nil {
		return err
	}
	if err := c.permitted(verbs[name].rule); err != nil {
		return err
	}
	srv, err := c.server()
	if err != nil {
		return err
	}
	if srv.State == compute.Deleted {
		return explainRefusal(&compute.StateError{Server: srv}, verbs[name].word)
	}
	if _, err := c.s.Services.Actions.Act(c.R.Context(), srv.ID, a, c.requester); err != nil {
		if state, ok := stateOf(err); ok {
			return explainRefusal(state, verbs[name].word)
		}
		return err
	}
	return c.Empty(http.StatusAccepted)
}

// readAct reads the verb of a body and what comes with it.
func (s *server) readAct(body jsonObject) (name string, a compute.Act, err error) {
	if len(body) != 1 {
		return "", a, problem.Invalidf("Malformed request: want one action")
	}
	var args any
	for name, args = range body {
	}
	v, ok := verbs[name]
	if !ok {
		return "", a, problem.Invalidf("Action %.50q is not supported", name)
	}
	if v.rescue && s.NoRescue {
		return "", a, newNamedFault(http.StatusNotFound, "featureNotEnabled", "The rescue mode of servers is not enabled")
	}
	given, ok := args.(jsonObject)
	if !ok && args != nil {
		return "", a, problem.Invalidf("Malformed request: the arguments of %s are no object", name)
	}
	a = compute.Act{Action: v.action, MustBeOff: true}
	return name, a, v.read(given, &a)
}

// refuseUnknownArgs refuses arguments beside the known ones.
func refuseUnknownArgs(args jsonObject, known ...string) error {
	for k := range args {
		found := false
		for _, n := range known {
			found = found || n == k
		}
		if !found {
			return problem.Invalidf("Malformed request: argument %.50q is not known", k)
		}
	}
	return nil
}

func readNoArgs(args jsonObject, _ *compute.Act) error { return refuseUnknownArgs(args) }

// readShutdown takes the time-out that Cyclades' clients may send; how long a system is asked is configured here.
func readShutdown(args jsonObject, _ *compute.Act) error {
	if t, ok := args["timeout"]; ok {
		if n, ok := t.(float64); !ok || n < 0 || n != math.Trunc(n) {
			return problem.Invalidf("Malformed request: timeout is no number of seconds")
		}
	}
	return refuseUnknownArgs(args, "timeout")
}

func readReboot(args jsonObject, a *compute.Act) error {
	switch kind := args["type"]; kind {
	case nil, "SOFT":
	case "HARD":
		a.Action = compute.RebootHard
	default:
		return problem.Invalidf("Malformed request: a reboot's type is SOFT or HARD")
	}
	return refuseUnknownArgs(args, "type")
}

// readRescue takes the number of a rescue image, also where a client wrote it as text.
func readRescue(args jsonObject, a *compute.Act) error {
	if err := refuseUnknownArgs(args, "rescue_image_ref"); err != nil {
		return err
	}
	wrong := problem.Invalidf("Malformed request: rescue_image_ref is no number of a rescue image")
	switch ref := args["rescue_image_ref"].(type) {
	case nil:
		return nil
	case float64:
		if ref != math.Trunc(ref) || ref < 1 || ref > 1<<53 {
			return wrong
		}
		a.Rescue.Image = int64(ref)
	case string:
		n, err := strconv.ParseInt(ref, 10, 64)
		if err != nil || n < 1 {
			return wrong
		}
		a.Rescue.Image = n
	default:
		return wrong
	}
	return nil
}

// pending are the words for tasks that are at work.
var pending = map[compute.Task]string{
	compute.Scheduling: "BUILD", compute.Spawning: "BUILD", compute.Starting: "START", compute.Stopping: "STOP", compute.Rebooting: "REBOOT",
	compute.HardReboot: "REBOOT", compute.Pausing: "PAUSE", compute.Unpausing: "UNPAUSE", compute.Suspending: "SUSPEND", compute.Resuming: "RESUME",
	compute.Rescuing: "RESCUE", compute.Unrescuing: "UNRESCUE", compute.Rebuilding: "REBUILD", compute.Deleting: "DESTROY",
	compute.Attaching: "ATTACH_VOLUME", compute.Reconciling: "RECONCILE", compute.Migrating: "MIGRATE",
}

// explainRefusal puts why a state forbids an action into Cyclades' words, in Cyclades' order: a pending task first.
func explainRefusal(e *compute.StateError, word string) error {
	srv := e.Server
	name := strconv.FormatInt(srv.Num, 10)
	cannot := func(why string) error {
		return problem.Invalidf("Cannot perform '%s' action while %s.", word, why)
	}
	switch {
	case srv.State == compute.Deleted:
		return problem.Invalidf("Server '%s' has been deleted.", name)
	case e.Locked:
		return problem.Forbiddenf("Server '%s' is locked.", name)
	case srv.State == compute.Building:
		return newNamedFault(http.StatusConflict, "buildInProgress", fmt.Sprintf("Server '%s' is being built.", name))
	case srv.Task != compute.NoTask:
		return cannot("there is a pending '" + pending[srv.Task] + "'")
	case e.Busy:
		return cannot("there is a pending 'RECONCILE'")
	case word == "UNRESCUE" && !srv.InSession() && srv.State != compute.Errored:
		return cannot("server is not in rescue mode")
	case word == "RESCUE" && srv.InSession() && srv.State == compute.Rescued:
		return cannot("server is in rescue mode")
	}
	return cannot("server is in '" + serverOperState(srv) + "' state")
}

// serverOperState is the word for how a server is; a rescue changes nothing of it.
func serverOperState(s *compute.Server) string {
	switch s.State {
	case compute.Building:
		return "BUILD"
	case compute.Active, compute.Paused:
		return "STARTED"
	case compute.Rescued:
		if s.Power == compute.PowerOn || s.Power == compute.PowerPaused {
			return "STARTED"
		}
		return "STOPPED"
	case compute.Errored:
		return "ERROR"
	case compute.Deleted:
		return "DESTROYED"
	}
	return "STOPPED"
}

// cycladesError puts errors of the core that are left into Cyclades' forms.
func cycladesError(err error) error {
	if problem.Is(err, problem.Unsupported) {
		return problem.Invalidf("%s", strings.TrimSpace(err.Error()))
	}
	return err
}

func stateOf(err error) (*compute.StateError, bool) {
	var state *compute.StateError
	return state, errors.As(err, &state)
}

func asFault(err error) *namedFault {
	var f *namedFault
	if errors.As(err, &f) {
		return f
	}
	return nil
}
