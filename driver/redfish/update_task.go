package redfish

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/metal"
	"salvor/problem"
)

// maxTasks bounds how many tasks of a BMC are looked at.
const maxTasks = 2000

// taskIDs are the ids of the tasks that the BMC has; none if it has no such list.
func (s *bmcSession) taskIDs() (ids []string, err error) {
	before := s.bmc.Unread()
	all, err := s.bmc.Members(conversation.TasksPath, maxTasks)
	if err == nil && s.bmc.Unread() > before {
		err = problem.Unavailablef("the list of tasks cannot be read whole")
	}
	if errors.Is(err, conversation.ErrMissing) || problem.Is(err, problem.Unsupported) {
		return nil, nil
	}
	for _, member := range all {
		if id, ok := strings.CutPrefix(member.Path, conversation.TasksPath+"/"); ok && id != "" && !strings.Contains(id, "/") {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// isUpdate tells whether a task is that of an update of firmware.
func isUpdate(t conversation.Task) bool {
	if t.Payload.TargetURI != "" {
		return strings.Contains(t.Payload.TargetURI, "/UpdateService")
	}
	name := strings.ToLower(t.Name + " " + t.Description)
	return strings.Contains(name, "update") || strings.Contains(name, "firmware")
}

// followUpdate looks how far the task is, and restarts the machine where the firmware is taken at its next start.
func (s *bmcSession) followUpdate(ctx context.Context, n *metal.Node, r *updateRecord, image driver.Update) error {
	if r.Task == "" {
		// The BMC may still fetch and write the image, and nobody can ask how far it is: a machine must not be cut off in that.
		now, err := s.versionOf(image.Component)
		if err != nil || (now == "" || now == r.Before) && time.Since(r.BegunAt) < versionWait {
			return err
		}
	}
	task, err := s.bmc.Task(r.Task)
	if err != nil {
		return err
	}
	restart, ended := false, false
	if task.HasFailed() {
		return s.failed(task, image)
	}
	switch task.State {
	case "Completed":
		restart, ended = true, true // what has not been taken yet is taken at the next start
	case "Pending", "Suspended", "UserIntervention":
		restart = true
	case "New", "Starting":
		restart = time.Since(r.BegunAt) > startWait
	case "Running", "Service", "Stopping", "Cancelling":
	default: // a word of the vendor's own: the version tells
		driver.Note(ctx, "the BMC's task %s is in the state %s, which the standard does not have; salvor waits for the version", driver.Sanitize(r.Task), s.bmc.Quote(task.State))
		r.Task = ""
		return nil
	}
	if restart && !r.Restarted && image.Component != "bmc" {
		if err := s.cycle(ctx, n); err != nil {
			return err
		}
		r.Restarted = true
	}
	if ended {
		r.EndedAt = time.Now()
	}
	return nil
}

func (s *bmcSession) failed(task conversation.Task, image driver.Update) error {
	err := s.bmc.Failure(task)
	return problem.Conflictf("the BMC did not take the firmware image %s: %w", driver.Sanitize(metal.BareURL(image.URL)), err)
}

// endUpdate waits until the new version is shown, and goes on to the next image.
func (s *bmcSession) endUpdate(ctx context.Context, n *metal.Node, r *updateRecord, images []driver.Update) error {
	image := images[r.Index]
	now, err := s.versionOf(image.Component)
	if err != nil {
		return err
	}
	if r.Before != "" && (now == "" || now == r.Before) { // while it starts, a BMC or a BIOS may show no version
		if time.Since(r.EndedAt) < versionWait {
			return nil
		}
		driver.Note(ctx, "the update of %s ended, and the BMC still reads version %s", driver.Sanitize(cmp.Or(image.Component, "the firmware")), driver.Sanitize(now))
	}
	*r = updateRecord{Digest: r.Digest, Index: r.Index + 1}
	if r.Index < len(images) {
		return s.intendUpdate(n, r, images[r.Index])
	}
	return nil
}
