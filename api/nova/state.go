package nova

import (
	"fmt"
	"strings"

	"salvor/compute"
)

// stateStatuses are the words of Nova for states in which nothing, or nothing that has a word of its own, is done.
var stateStatuses = map[compute.VMState]string{
	compute.Building: "BUILD", compute.Active: "ACTIVE", compute.Stopped: "SHUTOFF", compute.Paused: "PAUSED", compute.Suspended: "SUSPENDED",
	compute.Rescued: "RESCUE", compute.Errored: "ERROR", compute.Deleted: "DELETED",
}

// taskStatuses are the words for tasks that have one, in the states in which they have it.
var taskStatuses = map[compute.VMState]map[compute.Task]string{
	compute.Active:  {compute.Rebooting: "REBOOT", compute.Migrating: "MIGRATING", compute.HardReboot: "HARD_REBOOT", compute.Rebuilding: "REBUILD"},
	compute.Stopped: {compute.Migrating: "MIGRATING", compute.HardReboot: "HARD_REBOOT", compute.Rebuilding: "REBUILD"},
	compute.Errored: {compute.Migrating: "MIGRATING", compute.HardReboot: "HARD_REBOOT", compute.Rebuilding: "REBUILD"},
	// Nova evacuates none of these and has no word for it; who waits for the end must not take the beginning for it.
	compute.Paused:    {compute.Rebuilding: "REBUILD", compute.Migrating: "MIGRATING"},
	compute.Suspended: {compute.Rebuilding: "REBUILD", compute.Migrating: "MIGRATING"},
	compute.Rescued:   {compute.Rebuilding: "REBUILD", compute.Migrating: "MIGRATING"},
}

func statusOf(srv *compute.Server) string {
	if word, ok := taskStatuses[srv.State][srv.Task]; ok {
		return word
	}
	return stateStatuses[srv.State]
}

// statesOf are the states that may have a status, and whether the task has to be looked at; nil for a word that is none.
func statesOf(status string) (states []compute.VMState, byTask bool) {
	for state, word := range stateStatuses {
		if word == status {
			states = append(states, state)
			byTask = byTask || len(taskStatuses[state]) > 0
		}
		for _, taskWord := range taskStatuses[state] {
			if taskWord == status {
				states, byTask = append(states, state), true
				break
			}
		}
	}
	return states, byTask
}

// hiddenTasks are shown as none, for Nova has no such task.
var hiddenTasks = map[compute.Task]bool{compute.NoTask: true, compute.Attaching: true, compute.Reconciling: true}

// powerNumbers are the numbers of Nova's power states.
var powerNumbers = map[compute.Power]int{
	compute.PowerUnknown: 0, compute.PowerOn: 1, compute.PowerPaused: 3, compute.PowerOff: 4, compute.PowerCrashed: 6, compute.PowerSaved: 7,
}

// inProgress are the statuses that have a progress.
var inProgress = map[string]int{"BUILD": 0, "REBUILD": 0, "ACTIVE": 100, "DELETED": 100}

// actionWords are Nova's words for actions, where they differ from ours.
var actionWords = map[compute.Action]string{
	compute.RebootHard: "reboot", compute.AttachVolume: "attach_volume", compute.DetachVolume: "detach_volume",
}

// stateWords says as Nova does that a server's state forbids an action.
func stateWords(e *compute.StateError) string {
	id := e.Server.ID
	if e.Locked {
		return fmt.Sprintf("Instance %s is locked", id)
	}
	action, ok := actionWords[e.Action]
	if !ok {
		action = strings.ReplaceAll(string(e.Action), " ", "_")
	}
	what := "vm_state " + string(e.Server.State)
	switch {
	case e.Busy && e.Allowed && hiddenTasks[e.Server.Task]:
		return fmt.Sprintf("Cannot '%s' instance %s while another operation works on it", action, id)
	case e.Busy && e.Allowed:
		what = "task_state " + string(e.Server.Task)
	case e.NotLaunched:
		return fmt.Sprintf("Cannot '%s' instance %s which has never been active", action, id)
	case e.InRescue && e.Server.State != compute.Rescued:
		what += " with an open rescue session: unrescue it first"
	case e.Saved:
		what += ": resume it first"
	}
	return compute.JoinWords(fmt.Sprintf("Cannot '%s' instance %s while it is in %s", action, id, what), e.Standstill())
}
